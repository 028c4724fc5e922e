//! Kubernetes against Calico, node by node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::views::{Comparison, NodeComparison};
use calipam_model::snapshot::Snapshot;

use super::{or_dash, print};
use crate::args::Format;
use crate::exit::Failure;
use crate::output::Console;
use crate::render::table::{Align, Grid};
use crate::render::text::thousands;

use Align::{Left, Right};

/// Prints the comparison. The wide table names the addresses on which the sources differ.
///
/// # Errors
/// Where stdout cannot be written.
pub fn compare(comparison: &Comparison, snapshot: &Snapshot, console: &Console) -> Result<(), Failure> {
    print("Comparison", comparison, snapshot, console, || {
        let endpoints = comparison.with_endpoints;
        let wide = console.format == Format::Wide;
        // Numbers stand on the right, the addresses of the wide table on the left.
        let differing = if wide { Left } else { Right };
        let mut columns = vec![("NODE", Left), ("PODS", Right), ("IN KUBERNETES", Right)];
        columns.extend(endpoints.then_some(("IN ENDPOINTS", Right)));
        columns.extend([
            ("IN BLOCKS", Right),
            ("AGREED", Right),
            ("NOT RECORDED", differing),
            ("NOT USED", differing),
        ]);
        if endpoints {
            columns.extend([("WITHOUT ENDPOINT", differing), ("ENDPOINT ONLY", differing)]);
        }
        let mut grid = Grid::new(console, &columns);
        for node in &comparison.nodes {
            grid.row(row(node, endpoints, wide));
        }
        let differing = comparison.nodes.iter().filter(|node| !agrees(node)).count();
        let notes = match differing {
            0 => "Kubernetes and Calico agree on every node".to_owned(),
            1 => "Kubernetes and Calico differ on 1 node".to_owned(),
            nodes => format!("Kubernetes and Calico differ on {nodes} nodes"),
        };
        (grid, vec![notes])
    })
}

/// True where no source names an address that another one does not.
pub fn agrees(node: &NodeComparison) -> bool {
    [&node.not_recorded, &node.not_used, &node.without_endpoint, &node.endpoint_only]
        .iter()
        .all(|set| set.is_empty())
}

fn row(node: &NodeComparison, endpoints: bool, wide: bool) -> Vec<String> {
    let differing = |set: &BTreeSet<IpAddr>| {
        if wide {
            let texts: Vec<String> = set.iter().map(ToString::to_string).collect();
            or_dash(&texts.join(", ")).to_owned()
        } else {
            thousands(set.len())
        }
    };
    let mut row = vec![or_dash(&node.node).to_owned(), thousands(node.pods), thousands(node.in_kubernetes)];
    row.extend(endpoints.then(|| thousands(node.in_endpoints)));
    row.extend([thousands(node.in_blocks), thousands(node.agreed)]);
    row.extend([&node.not_recorded, &node.not_used].map(differing));
    if endpoints {
        row.extend([&node.without_endpoint, &node.endpoint_only].map(differing));
    }
    row
}
