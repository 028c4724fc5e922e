//! Nodes that were deleted and still hold blocks and addresses.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, Finding, LeakReason, Remedy, list};
use calipam_model::words::count;

use super::{Facts, Found, leak_reasons};

/// Finds the deleted nodes whose blocks, affinities, addresses, endpoints or pods remain.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let codes = [
        Code::BlockOfMissingNode,
        Code::AffinityOfMissingNode,
        Code::LeakedAddress,
        Code::EndpointOfMissingNode,
    ];
    let mut positions: Vec<usize> = Vec::new();
    let mut found_codes: Vec<Code> = Vec::new();
    let mut nodes: BTreeSet<String> = BTreeSet::new();
    for (position, finding) in facts.open(&codes) {
        if is_of_other_leak(finding) {
            continue;
        }
        nodes.extend(deleted_nodes(finding));
        positions.push(position);
        found_codes.push(finding.code);
    }
    if nodes.is_empty() {
        return Vec::new();
    }

    vec![Found {
        says: describe(&nodes, &describe_records(&found_codes)),
        findings: positions,
        remedies: vec![Remedy::ReleaseNodes(nodes)],
    }]
}

/// Returns true if an address leaked for another reason than that its node was deleted.
fn is_of_other_leak(finding: &Finding) -> bool {
    finding.code == Code::LeakedAddress && !leak_reasons(finding).contains(&LeakReason::NodeGone)
}

/// Returns the deleted nodes that a finding is about.
fn deleted_nodes(finding: &Finding) -> BTreeSet<String> {
    // A leaked address can be in the block of another node: only its record tells the deleted node.
    if finding.code == Code::LeakedAddress {
        return recorded_nodes(finding);
    }
    finding.nodes.iter().cloned().collect()
}

/// Returns the sentence about deleted nodes of which these records remain.
fn describe(nodes: &BTreeSet<String>, records: &str) -> String {
    let names = list(nodes);
    if nodes.len() == 1 {
        return format!("node {names} was deleted, and its records remain: {records}");
    }
    let number = count(nodes.len(), "node", "nodes");
    format!("{number} were deleted ({names}), and their records remain: {records}")
}

/// Counts in words the records that remain of deleted nodes, from the codes of the findings: addresses and blocks, which
/// others could use. If there are none, affinities are counted, and otherwise endpoints and pods.
fn describe_records(codes: &[Code]) -> String {
    let number_of = |code| codes.iter().filter(|found| **found == code).count();
    let leaked = number_of(Code::LeakedAddress);
    let blocks = number_of(Code::BlockOfMissingNode);
    let affinities = number_of(Code::AffinityOfMissingNode);
    let endpoints = number_of(Code::EndpointOfMissingNode);

    let mut records: Vec<String> = Vec::new();
    if leaked > 0 {
        records.push(count(leaked, "address", "addresses"));
    }
    if blocks > 0 {
        records.push(count(blocks, "block", "blocks"));
    }
    if records.is_empty() && affinities > 0 {
        records.push(count(affinities, "affinity", "affinities"));
    }
    if records.is_empty() {
        records.push(count(endpoints, "endpoint or pod", "endpoints and pods"));
    }
    records.join(" and ")
}

/// Returns the nodes that the record of an address names.
fn recorded_nodes(finding: &Finding) -> BTreeSet<String> {
    match &finding.evidence {
        Evidence::Address(evidence) => evidence.recorded_nodes().collect(),
        _ => BTreeSet::new(),
    }
}
