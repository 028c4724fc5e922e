//! Nodes that were deleted and still hold blocks and addresses.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, Finding, LeakReason, Remedy, addresses, list};
use calipam_model::words::{count, thousands};

use super::{Facts, Found, leak_reasons, nodes_of};

/// Finds the deleted nodes whose blocks, affinities, addresses, endpoints or pods remain.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let codes = [
        Code::BlockOfMissingNode,
        Code::AffinityOfMissingNode,
        Code::LeakedAddress,
        Code::EndpointOfMissingNode,
    ];
    let of_gone_nodes = facts.open(&codes).filter(|(_, finding)| {
        finding.code != Code::LeakedAddress || leak_reasons(finding).contains(&LeakReason::NodeGone)
    });
    let (positions, findings): (Vec<usize>, Vec<&Finding>) = of_gone_nodes.unzip();

    // An address can also be in the block of another node, so only the record of a leaked address tells its node.
    let (leaked, others): (Vec<&Finding>, Vec<&Finding>) = findings
        .iter()
        .partition(|finding| finding.code == Code::LeakedAddress);
    let mut nodes = nodes_of(others);
    nodes.extend(leaked.into_iter().flat_map(recorded_nodes));
    if nodes.is_empty() {
        return Vec::new();
    }

    let held = held(findings.iter().map(|finding| finding.code).collect());
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
    vec![Found {
        says,
        findings: positions,
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

/// Returns the nodes that the record of an address names.
fn recorded_nodes(finding: &Finding) -> BTreeSet<String> {
    match &finding.evidence {
        Evidence::Address(evidence) => evidence.recorded_nodes().collect(),
        _ => BTreeSet::new(),
    }
}
