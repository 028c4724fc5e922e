//! Nodes that were deleted and still hold blocks and addresses.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, Finding, LeakReason, Remedy, addresses, list};
use calipam_model::words::{count, thousands};

use super::{Facts, Found, leak_reasons, nodes_of};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let is_of_gone = |finding: &Finding| match finding.code {
        Code::LeakedAddress => leak_reasons(finding).contains(&LeakReason::NodeGone),
        _ => true,
    };
    let codes = [
        Code::BlockOfMissingNode,
        Code::AffinityOfMissingNode,
        Code::LeakedAddress,
        Code::EndpointOfMissingNode,
    ];
    let of: Vec<_> = facts.open(&codes).filter(|(_, finding)| is_of_gone(finding)).collect();
    let each = || of.iter().map(|(_, finding)| *finding);
    let mut nodes = nodes_of(each().filter(|finding| finding.code != Code::LeakedAddress));
    nodes.extend(each().flat_map(recorded));
    if nodes.is_empty() {
        return Vec::new();
    }

    let number = |code| each().filter(|finding| finding.code == code).count();
    let leaked = number(Code::LeakedAddress);
    let blocks = number(Code::BlockOfMissingNode);
    let affinities = number(Code::AffinityOfMissingNode);
    let endpoints = number(Code::EndpointOfMissingNode);
    let mut held: Vec<String> = Vec::new();
    if leaked > 0 {
        held.push(addresses(thousands(leaked)));
    }
    if blocks > 0 {
        held.push(count(blocks, "block", "blocks"));
    }
    if held.is_empty() && affinities > 0 {
        held.push(count(affinities, "affinity", "affinities"));
    }
    if held.is_empty() {
        held.push(count(endpoints, "endpoint or pod", "endpoints and pods"));
    }
    let held = held.join(" and ");
    let says = match nodes.first().filter(|_| nodes.len() == 1) {
        Some(_) => format!("node {} was deleted, and its records remain: {held}", list(&nodes)),
        None => format!(
            "{} were deleted ({}), and their records remain: {held}",
            count(nodes.len(), "node", "nodes"),
            list(&nodes)
        ),
    };
    let findings = of.iter().map(|(at, _)| *at).collect();
    vec![Found { says, findings, remedies: vec![Remedy::ReleaseNodes(nodes)] }]
}

/// The nodes that the record of a leaked address names.
fn recorded(finding: &Finding) -> BTreeSet<String> {
    match &finding.evidence {
        Evidence::Address(evidence) if finding.code == Code::LeakedAddress => {
            evidence.recorded_nodes().collect()
        }
        _ => BTreeSet::new(),
    }
}
