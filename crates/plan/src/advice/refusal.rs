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
    let open = facts.open(&[Code::NodeWithoutAddresses, Code::PodWithoutAddress]);
    // Findings of severity info are about addresses that no pod asks for.
    for (at, finding) in open.filter(|(_, finding)| finding.severity != Severity::Info) {
        let Evidence::NoAddress(evidence) = &finding.evidence else {
            continue;
        };
        let Some(refusal) = evidence.refusals.first() else {
            continue;
        };
        let why = if refusal.of_request {
            refusal.why.as_str()
        } else {
            ""
        };
        by_reason
            .entry((refusal.reason, why))
            .or_default()
            .push((at, finding));
    }
    let found = by_reason
        .into_iter()
        .map(|((reason, _), of)| (reason, found(&of, facts.report, trials)));
    let found: Vec<_> = found.collect();
    found
        .into_iter()
        .map(|(reason, found)| facts.cause(reason, found))
        .collect()
}

/// Describes the findings with one reason, and collects the remedies for the first of them.
fn found(of: &[(usize, &Finding)], report: &Report, trials: &Trials<'_, '_>) -> Found {
    let findings = of.iter().map(|(at, _)| *at).collect();
    let says = match of {
        [(_, only)] => only.message(),
        _ => {
            let is_of_node = |finding: &Finding| finding.code == Code::NodeWithoutAddresses;
            let of_nodes = of.iter().filter(|(_, finding)| is_of_node(finding));
            let nodes: BTreeSet<&String> = of_nodes.flat_map(|(_, finding)| &finding.nodes).collect();
            let pods: Vec<&Subject> = of
                .iter()
                .filter(|(_, finding)| !is_of_node(finding))
                .map(|(_, f)| &f.subject)
                .collect();
            let why = of
                .iter()
                .find_map(|(_, finding)| why(finding))
                .unwrap_or_default();
            match (nodes.len(), pods.len()) {
                (0, number) => {
                    let who = count(number, "pod gets", "pods get");
                    format!("{who} no address ({}): {why}", list(pods))
                }
                (number, 0) => {
                    format!(
                        "{} no further address: {why}",
                        count(number, "node gets", "nodes get")
                    )
                }
                (number, waiting) => {
                    let who = count(number, "node gets", "nodes get");
                    let waiting = count(waiting, "pod waits", "pods wait");
                    format!("{who} no further address, and {waiting}: {why}")
                }
            }
        }
    };
    let asked = of.iter().find_map(|(_, finding)| asking(finding));
    let basis = trials.basis();
    let explained = asked.and_then(|asking| explain(&basis.context, basis.snapshot, asking));
    let remedies = explained
        .map(|explained| remedies(&explained, report))
        .unwrap_or_default();
    Found {
        says,
        findings,
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
    let is_of_gone = |finding: &&Finding| {
        matches!(
            finding.code,
            Code::BlockOfMissingNode | Code::AffinityOfMissingNode
        )
    };
    let nodes: BTreeSet<String> = report
        .findings
        .iter()
        .filter(is_of_gone)
        .flat_map(|finding| finding.nodes.iter().cloned())
        .collect();
    (!nodes.is_empty()).then_some(Remedy::ReleaseNodes(nodes))
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
