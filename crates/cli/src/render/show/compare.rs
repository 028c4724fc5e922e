//! Kubernetes against Calico, node by node.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;

use calipam_check::views::{Comparison, NodeComparison};

use super::{View, or_dash, table};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::thousands;

impl View for Comparison {
    const KIND: &'static str = "Comparison";
    const NAMED: [&'static str; 3] = ["node", "nodes", "node"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let endpoints = self.with_endpoints;
        let wide = detail == Detail::Full;
        // Numbers are on the right, the addresses of the wide table on the left.
        let side = if wide { "" } else { ">" };
        let mut grid = Grid::new(page, detail, "NODE  >PODS  >IN KUBERNETES");
        if endpoints {
            grid.columns(">IN ENDPOINTS");
        }
        grid.columns(&format!(">IN BLOCKS  >AGREED  {side}NOT RECORDED  {side}NOT USED"));
        let others = self.nodes.iter().any(|node| !node.recorded_for_others.is_empty());
        if others {
            grid.columns(&format!("{side}RECORDED FOR OTHERS"));
        }
        let elsewhere = self.nodes.iter().any(|node| !node.recorded_elsewhere.is_empty());
        if elsewhere {
            grid.columns(&format!("{side}RECORDED ELSEWHERE"));
        }
        if endpoints {
            grid.columns(&format!("{side}WITHOUT ENDPOINT  {side}ENDPOINT ONLY"));
        }
        grid.can_do_without(&["AGREED", "IN ENDPOINTS", "PODS"]);
        for node in &self.nodes {
            grid.row(row(node, [endpoints, others, elsewhere], wide));
        }
        let differing = self.nodes.iter().filter(|node| !agrees(node)).count();
        let notes = match differing {
            0 if self.nodes.is_empty() => "Neither pods nor blocks name an address".to_owned(),
            0 => "Kubernetes and Calico agree on every node".to_owned(),
            1 => "Kubernetes and Calico differ on 1 node".to_owned(),
            nodes => format!("Kubernetes and Calico differ on {nodes} nodes"),
        };
        table(grid, &[notes], page, out)
    }
}

/// True if no source names an address that another one does not.
pub(crate) fn agrees(node: &NodeComparison) -> bool {
    let NodeComparison { not_recorded, recorded_elsewhere, not_used, .. } = node;
    [not_recorded, recorded_elsewhere, not_used, &node.without_endpoint, &node.endpoint_only]
        .iter()
        .all(|set| set.is_empty())
}

fn row(node: &NodeComparison, [endpoints, others, elsewhere]: [bool; 3], wide: bool) -> Vec<String> {
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
    if others {
        let named = node.recorded_for_others.iter().map(|(address, whose)| format!("{address} ({whose})"));
        row.push(match wide {
            true => or_dash(&named.collect::<Vec<_>>().join(", ")).to_owned(),
            false => thousands(node.recorded_for_others.len()),
        });
    }
    row.extend(elsewhere.then(|| differing(&node.recorded_elsewhere)));
    if endpoints {
        row.extend([&node.without_endpoint, &node.endpoint_only].map(differing));
    }
    row
}
