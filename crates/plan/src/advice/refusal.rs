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
        described.push((reason, found(&findings, facts.report, trials)));
    }
    described
        .into_iter()
        .map(|(reason, found)| facts.cause(reason, found))
        .collect()
}

/// Describes the findings with one reason, and collects the remedies for the first of them.
fn found(findings: &[(usize, &Finding)], report: &Report, trials: &Trials<'_, '_>) -> Found {
    let says = match findings {
        [(_, only)] => only.message(),
        _ => {
            let mut nodes: BTreeSet<&String> = BTreeSet::new();
            let mut pods: Vec<&Subject> = Vec::new();
            for (_, finding) in findings {
                if finding.code == Code::NodeWithoutAddresses {
                    nodes.extend(&finding.nodes);
                } else {
                    pods.push(&finding.subject);
                }
            }
            let why = findings.iter().find_map(|(_, finding)| why(finding));
            let why = why.unwrap_or_default();
            let nodes_get = count(nodes.len(), "node gets", "nodes get");
            match (nodes.len(), pods.len()) {
                (0, number) => {
                    let pods_get = count(number, "pod gets", "pods get");
                    format!("{pods_get} no address ({}): {why}", list(pods))
                }
                (_, 0) => format!("{nodes_get} no further address: {why}"),
                (_, number) => {
                    let pods_wait = count(number, "pod waits", "pods wait");
                    format!("{nodes_get} no further address, and {pods_wait}: {why}")
                }
            }
        }
    };

    let request = findings.iter().find_map(|(_, finding)| asking(finding));
    let basis = trials.basis();
    let explained = request.and_then(|request| explain(&basis.context, basis.snapshot, request));
    let remedies = match explained {
        Some(explained) => remedies(&explained, report),
        None => Vec::new(),
    };
    Found {
        says,
        findings: findings.iter().map(|(position, _)| *position).collect(),
        remedies,
    }
}

fn why(finding: &Finding) -> Option<String> {
    let Evidence::NoAddress(evidence) = &finding.evidence else {
        return None;
    };
    evidence.refusals.first().map(|refusal| refusal.why.clone())
}

/// The request that a finding is about.
fn asking(finding: &Finding) -> Option<Asking<'_>> {
    match &finding.subject {
        Subject::Endpoint(pod) => pod
            .split_once('/')
            .map(|(namespace, name)| Asking::Pod(namespace, name)),
        _ => finding.nodes.first().map(|node| Asking::Node(node)),
    }
}

/// The remedies to try for a request that gets no address: for the pod, and then for the node's tunnels.
pub(super) fn remedies(explained: &Explanation, report: &Report) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    for refused in explained.refusal().into_iter().chain(explained.tunnel_refusal()) {
        let more = of_refusal(refused, &explained.node, report);
        remedies.extend(
            more.into_iter()
                .filter(|remedy| !remedies.contains(remedy))
                .collect::<Vec<_>>(),
        );
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
            let raised = IpamSetting::MaxBlocksPerHost(i64::from(*limit) + 1);
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
    let meant = refused.pools.iter().filter(|(_, why)| is_meant(why));
    meant
        .map(|(pool, _)| Remedy::ChangePool {
            pool: pool.clone(),
            change,
        })
        .collect()
}
