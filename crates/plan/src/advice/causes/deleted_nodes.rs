//! Nodes that were deleted and still hold blocks and addresses.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, Finding, LeakReason, Remedy, addresses, list};
use calipam_model::words::{count, thousands};

use super::{Facts, Found, leak_reasons, nodes_of};

/// Finds the deleted nodes whose blocks, affinities, addresses, endpoints or pods remain.
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
    let findings: Vec<_> = facts
        .open(&codes)
        .filter(|(_, finding)| is_of_gone(finding))
        .collect();
    let each = || findings.iter().map(|(_, finding)| *finding);
    let mut nodes = nodes_of(each().filter(|finding| finding.code != Code::LeakedAddress));
    nodes.extend(each().flat_map(recorded));
    if nodes.is_empty() {
        return Vec::new();
    }

    let held = held(each().map(|finding| finding.code).collect());
    let says = if nodes.len() == 1 {
        format!(
            "node {} was deleted, and its records remain: {held}",
            list(&nodes)
        )
    } else {
        let number = count(nodes.len(), "node", "nodes");
        format!(
            "{number} were deleted ({}), and their records remain: {held}",
            list(&nodes)
        )
    };
    let findings = findings.iter().map(|(position, _)| *position).collect();
    vec![Found {
        says,
        findings,
        remedies: vec![Remedy::ReleaseNodes(nodes)],
    }]
}

/// Lists the records of the nodes, from the codes of the findings: addresses and blocks, which others could use. If
/// there are none, affinities count, and otherwise endpoints and pods.
fn held(codes: Vec<Code>) -> String {
    let number = |code| codes.iter().filter(|found| **found == code).count();
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
    held.join(" and ")
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
