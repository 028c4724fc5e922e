//! The output of `show --compare`: the addresses in Kubernetes and in Calico, for each node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::views::{Comparison, NodeComparison, RecordedFor};

use super::View;
use crate::render::column::{Column, left, right};
use crate::render::output::Text;
use crate::render::text::{or_dash, thousands};

/// The position of the column `IN ENDPOINTS`, after `NODE`, `PODS` and `IN KUBERNETES`.
const AFTER_IN_KUBERNETES: usize = 3;

impl View for Comparison {
    const KIND: &'static str = "Comparison";
    const NAME: &'static str = "node";

    fn names(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| node.node.clone())
    }

    /// Writes a table of the nodes, and the number of nodes that differ.
    fn text(&self, text: &mut Text) {
        let wide = text.page.wide;
        let column_of_set = |title, set: fn(&NodeComparison) -> &BTreeSet<IpAddr>| {
            addresses(title, wide, move |node: &NodeComparison| {
                set(node).iter().map(ToString::to_string).collect()
            })
        };
        // Columns of differences that are rare are shown only if they have any.
        let mut columns = vec![
            left("NODE", |node: &NodeComparison| or_dash(&node.node)),
            right("PODS", |node: &NodeComparison| thousands(node.pods)).hidden(3),
            right("IN KUBERNETES", |node: &NodeComparison| {
                thousands(node.in_kubernetes)
            }),
            right("IN BLOCKS", |node: &NodeComparison| thousands(node.in_blocks)),
            right("AGREED", |node: &NodeComparison| thousands(node.agreed)).hidden(1),
            column_of_set("NOT RECORDED", |node| &node.not_recorded),
            column_of_set("NOT USED", |node| &node.not_used),
            addresses("RECORDED FOR OTHERS", wide, |node: &NodeComparison| {
                node.recorded_for_others
                    .iter()
                    .map(|(address, owner)| format!("{address} ({owner})"))
                    .collect()
            })
            .if_any(),
            column_of_set("RECORDED ELSEWHERE", |node| &node.recorded_elsewhere).if_any(),
        ];
        if self.with_endpoints {
            let in_endpoints = right("IN ENDPOINTS", |node: &NodeComparison| {
                thousands(node.in_endpoints)
            });
            columns.insert(AFTER_IN_KUBERNETES, in_endpoints.hidden(2));
            columns.push(column_of_set("WITHOUT ENDPOINT", |node| &node.without_endpoint));
            columns.push(column_of_set("ENDPOINT ONLY", |node| &node.endpoint_only));
        }
        text.table(&self.nodes, columns);

        text.notes(&[note(&self.nodes)]);
    }
}

/// Formats the number of nodes on which Kubernetes and Calico differ.
fn note(nodes: &[NodeComparison]) -> String {
    if nodes.is_empty() {
        return "Neither pods nor blocks have addresses".to_owned();
    }
    match nodes.iter().filter(|node| !agrees(node)).count() {
        0 => "Kubernetes and Calico agree on every node".to_owned(),
        1 => "Kubernetes and Calico differ on 1 node".to_owned(),
        number => format!("Kubernetes and Calico differ on {number} nodes"),
    }
}

/// Creates a column of addresses, which are listed in a wide table and otherwise counted. `addresses_of` returns those
/// of a row.
fn addresses<'a, R: 'a>(
    title: &'static str,
    wide: bool,
    addresses_of: impl Fn(R) -> Vec<String> + 'a,
) -> Column<'a, R> {
    if wide {
        left(title, move |row| {
            or_dash(&addresses_of(row).join(", ")).to_owned()
        })
    } else {
        right(title, move |row| thousands(addresses_of(row).len()))
    }
}

/// True if each address of the node is in every source, and none is recorded on another node, or for a tunnel or
/// service.
pub(crate) fn agrees(node: &NodeComparison) -> bool {
    let NodeComparison {
        not_recorded,
        recorded_elsewhere,
        not_used,
        recorded_for_others,
        ..
    } = node;
    // The address of a pod can be recorded for its machine, or for no known owner, but a tunnel or service cannot share
    // it.
    let is_clash = |owner: &RecordedFor| matches!(owner, RecordedFor::Tunnel | RecordedFor::Service);
    let differing = [
        not_recorded,
        recorded_elsewhere,
        not_used,
        &node.without_endpoint,
        &node.endpoint_only,
    ];
    differing.iter().all(|addresses| addresses.is_empty()) && !recorded_for_others.values().any(is_clash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_and_a_tunnel_with_one_address_do_not_agree() {
        let recorded_for = |owner| NodeComparison {
            recorded_for_others: [("10.0.0.1".parse().unwrap(), owner)].into(),
            ..NodeComparison::default()
        };
        assert!(agrees(&NodeComparison::default()) && agrees(&recorded_for(RecordedFor::VirtualMachine)));
        assert!(!agrees(&recorded_for(RecordedFor::Tunnel)) && !agrees(&recorded_for(RecordedFor::Service)));
    }
}
