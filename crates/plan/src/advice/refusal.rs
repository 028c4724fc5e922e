//! Requests that get no address: the remedies for each reason, and the causes of what no other cause explains.

use std::collections::{BTreeMap, BTreeSet};

use calipam_assign::{PoolPassedOver, Reason, Refused};
use calipam_check::views::{Asking, Explanation, explain};
use calipam_check::{Code, Evidence, Finding, PoolChange, Remedy, Report, Severity, Subject, list};
use calipam_model::config::IpamSetting;
use calipam_model::words::count;

use super::causes::{Cause, Facts, Found};
use super::trial::Trials;

/// The causes of nodes and pods without addresses that no other cause explains: one for each reason. What a pod asks for
/// is a reason of its own.
pub(super) fn causes(facts: &mut Facts<'_>, trials: &Trials<'_, '_>) -> Vec<Cause> {
    let mut by_reason: BTreeMap<(&'static str, &str), Vec<(usize, &Finding)>> = BTreeMap::new();
    for (position, finding) in facts.open(&[Code::NodeWithoutAddresses, Code::PodWithoutAddress]) {
        // Such findings are about addresses that no pod asks for.
        if finding.severity == Severity::Info {
            continue;
        }
        let Evidence::NoAddress(evidence) = &finding.evidence else {
            continue;
        };
        let Some(refusal) = evidence.refusals.first() else {
            continue;
        };
        let request = if refusal.of_request {
            refusal.why.as_str()
        } else {
            ""
        };
        let with_same_reason = by_reason.entry((refusal.reason, request)).or_default();
        with_same_reason.push((position, finding));
    }

    let mut described = Vec::new();
    for ((reason, _), findings) in by_reason {
        described.push((reason, describe(&findings, facts.report, trials)));
    }
    let mut causes = Vec::new();
    for (reason, found) in described {
        causes.push(facts.cause(reason, found));
    }
    causes
}

/// Describes the findings with one reason, and collects the remedies for the first of them.
fn describe(findings: &[(usize, &Finding)], report: &Report, trials: &Trials<'_, '_>) -> Found {
    let request = findings.iter().find_map(|(_, finding)| request_of(finding));
    let basis = trials.basis();
    let explanation = request.and_then(|request| explain(&basis.context, basis.snapshot, request));
    let remedies = match explanation {
        Some(explanation) => remedies(&explanation, report),
        None => Vec::new(),
    };
    Found {
        says: summary(findings),
        findings: findings.iter().map(|(position, _)| *position).collect(),
        remedies,
    }
}

/// Returns one sentence about nodes and pods that get no address for the same reason.
fn summary(findings: &[(usize, &Finding)]) -> String {
    if let [(_, only)] = findings {
        return only.message();
    }

    let mut nodes: BTreeSet<&String> = BTreeSet::new();
    let mut pods: Vec<&Subject> = Vec::new();
    for (_, finding) in findings {
        if finding.code == Code::NodeWithoutAddresses {
            nodes.extend(&finding.nodes);
        } else {
            pods.push(&finding.subject);
        }
    }

    let reason = findings.iter().find_map(|(_, finding)| reason_of(finding));
    let reason = reason.unwrap_or_default();
    if nodes.is_empty() {
        let pods_get = count(pods.len(), "pod gets", "pods get");
        return format!("{pods_get} no address ({}): {reason}", list(pods));
    }
    let nodes_get = count(nodes.len(), "node gets", "nodes get");
    if pods.is_empty() {
        return format!("{nodes_get} no further address: {reason}");
    }
    let pods_wait = count(pods.len(), "pod waits", "pods wait");
    format!("{nodes_get} no further address, and {pods_wait}: {reason}")
}

/// Returns the allocator's first reason for refusing an address, in words.
fn reason_of(finding: &Finding) -> Option<&str> {
    let Evidence::NoAddress(evidence) = &finding.evidence else {
        return None;
    };
    evidence.refusals.first().map(|refusal| refusal.why.as_str())
}

/// Returns the request that a finding is about: that of a pod, or of the next pod on a node.
fn request_of(finding: &Finding) -> Option<Asking<'_>> {
    let Subject::Endpoint(pod) = &finding.subject else {
        return finding.nodes.first().map(|node| Asking::Node(node));
    };
    let (namespace, name) = pod.split_once('/')?;
    Some(Asking::Pod(namespace, name))
}

/// The remedies to try for a request that gets no address: for the pod, and then for the node's tunnels.
pub(super) fn remedies(explained: &Explanation, report: &Report) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    for refused in explained.refusal().into_iter().chain(explained.tunnel_refusal()) {
        for remedy in of_refusal(refused, &explained.node, report) {
            if !remedies.contains(&remedy) {
                remedies.push(remedy);
            }
        }
    }
    remedies
}

/// Returns the remedies for a refusal of an address on a node; none if no change of settings and no release helps.
fn of_refusal(refused: &Refused, node: &str, report: &Report) -> Vec<Remedy> {
    let change = |pool: &str, change: PoolChange| Remedy::ChangePool {
        pool: pool.to_owned(),
        change,
    };
    let configure = |settings: &[IpamSetting]| Remedy::Configure(settings.to_vec());
    let of_node = || Remedy::ReleaseLeakedOf(node.to_owned());
    let everywhere = || release_nodes(report).into_iter().chain([Remedy::ReleaseLeaked]);
    match &refused.reason {
        Reason::NoneEnabled => changes(refused, PoolChange::Enable, |why| {
            *why == PoolPassedOver::Disabled
        }),
        Reason::NoneAutomatic => changes(refused, PoolChange::AssignAutomatically, |why| {
            *why == PoolPassedOver::Manual
        }),
        Reason::NoneSelectsNode => changes(refused, PoolChange::SelectAllNodes, |why| {
            matches!(why, PoolPassedOver::NodeSelector(_))
        }),
        Reason::NoneForWorkloads => changes(refused, PoolChange::AllowWorkloads, |why| {
            matches!(why, PoolPassedOver::Use(_))
        }),
        Reason::NamedClosed {
            pool,
            why: PoolPassedOver::Disabled,
        }
        | Reason::InClosedPool {
            pool,
            why: PoolPassedOver::Disabled,
            ..
        } => {
            vec![change(pool, PoolChange::Enable)]
        }
        Reason::NotForWorkloads { pool, .. } => vec![change(pool, PoolChange::AllowWorkloads)],
        Reason::BrokenSelector(pool) => vec![change(pool, PoolChange::SelectAllNodes)],
        Reason::BlockLimit { limit, .. } => {
            let raised = IpamSetting::one_more_block(*limit);
            vec![of_node(), configure(&[raised, IpamSetting::StrictAffinity(true)])]
        }
        Reason::SingleBlock => vec![of_node()],
        Reason::NoAutoAllocation => vec![configure(&[IpamSetting::AutoAllocateBlocks(true)])],
        Reason::StrictAffinity => everywhere()
            .chain([configure(&[IpamSetting::StrictAffinity(false)])])
            .collect(),
        Reason::Exhausted(cooling) => {
            let at_once = cooling.as_ref().map(|_| configure(&[IpamSetting::Cooldown(0)]));
            at_once.into_iter().chain(everywhere()).collect()
        }
        Reason::WindowsNeedsStrictAffinity => vec![configure(&[IpamSetting::StrictAffinity(true)])],
        Reason::Taken(address) | Reason::TakenByEarlier(address) => vec![Remedy::ReleaseAddress(*address)],
        Reason::ForeignBlock(_) => vec![configure(&[IpamSetting::StrictAffinity(false)])],
        _ => Vec::new(),
    }
}

/// The release of all nodes that were deleted, if there are any.
fn release_nodes(report: &Report) -> Option<Remedy> {
    let mut deleted: BTreeSet<String> = BTreeSet::new();
    for finding in &report.findings {
        if matches!(
            finding.code,
            Code::BlockOfMissingNode | Code::AffinityOfMissingNode
        ) {
            deleted.extend(finding.nodes.iter().cloned());
        }
    }
    if deleted.is_empty() {
        return None;
    }
    Some(Remedy::ReleaseNodes(deleted))
}

/// The same change of each pool that is passed over for such a reason.
fn changes(refused: &Refused, change: PoolChange, is_meant: impl Fn(&PoolPassedOver) -> bool) -> Vec<Remedy> {
    let mut changes = Vec::new();
    for (pool, why) in &refused.pools {
        if is_meant(why) {
            let pool = pool.clone();
            changes.push(Remedy::ChangePool { pool, change });
        }
    }
    changes
}
