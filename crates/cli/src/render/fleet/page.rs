//! A fleet's report as one HTML page: clusters, findings, and a map of all ranges. Like the page of a single cluster,
//! it loads no other files, and its size is limited.

mod ranges;

use std::io::{self, Write};

use calipam_check::fleet::Cluster;
use maud::{Markup, html};

use super::FleetReport;
use super::text::{age, header, severities, use_of_pools};
use crate::render::check::verdict;
use crate::render::html::{COMMON_SCRIPT, Frame, NO_SERVER, head, long, notice};
use crate::render::report::page::causes::causes;
use crate::render::report::page::findings::{controls, filtered, kinds, list, meanings};
use crate::render::report::page::{sentence, tiles};
use crate::render::sources::unread;
use crate::render::text::{count, escape, thousands, utc};

/// Writes the page of the fleet.
pub(super) fn write(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let findings = report.findings();
    let clusters = &report.clusters;
    let counts = report.counts();
    let title = format!(
        "{} in {}",
        verdict(report.reports()),
        count(clusters.len(), "cluster", "clusters")
    );
    let mut pools = Vec::new();
    for cluster in clusters {
        for pool in &cluster.pools.pools {
            pools.push((cluster.name.as_str(), pool));
        }
    }
    let is_whole = report
        .reports()
        .all(|report| unread(&report.coverage, report.cluster.datastore).is_none());
    let body = html! {
        header {
            h1 { "IPAM check: " (sentence(&title, &counts, is_whole)) }
            p.dim { (header(report)) br; "At " (utc(report.taken_at)) }
            (tiles(&counts, pools.into_iter()))
            nav {
                a href="#kinds" { "What to do" }
                a href="#clusters" { "Clusters" }
                a href="#findings" { "Findings" }
                a href="#ranges" { "Ranges" }
                @if !findings.is_empty() { a href="#codes" { "Codes" } }
            }
        }
        main {
            @for note in &report.notes { (notice(note)) }
            (causes(report.with_advice().map(|(cluster, advice)| (cluster.name.as_str(), advice))))
            (kinds(&findings, &report.advice.iter().collect::<Vec<_>>()))
            (controls())
            (table_of_clusters(report))
            section #findings { h2 { "Findings" } (list(&findings)) }
            (ranges::section(report))
            (meanings(&findings))
        }
    };
    Frame {
        title: &title,
        scripts: &[COMMON_SCRIPT],
        server: NO_SERVER,
        version: None,
    }
    .write(&body, out)
}

/// Creates the table of clusters, with a filter.
fn table_of_clusters(report: &FleetReport) -> Markup {
    let rows = html! {
        table #clusters-table data-filtered="clusters" {
            (head(&["Cluster", "Group"], &["Critical", "Error", "Warning", "Info", "Shared", "Nodes", "In use", "%", "Age"], &[]))
            tbody { @for cluster in &report.clusters { (row(report, cluster)) } }
        }
    };
    html! { section #clusters { h2 { "Clusters" } (filtered("clusters", rows)) } }
}

/// Draws the row of a cluster: its findings by severity and, if it was read, the numbers of its nodes and addresses.
fn row(report: &FleetReport, cluster: &Cluster) -> Markup {
    let name = escape(&cluster.name);
    let name_class = format!("name {}", long(&cluster.name).unwrap_or_default());
    let (used, share) = use_of_pools(cluster);
    let taken_at = cluster.report.cluster.taken_at;
    html! {
        tr {
            td class=(name_class) {
                a href="#findings" data-filter=(name) { (name) }
            }
            td { (escape(cluster.group.as_deref().unwrap_or_default())) }

            @for (severity, number) in severities(&cluster.report.counts.findings) {
                td class={ "number " @if number > 0 { (severity) } } { (thousands(number)) }
            }

            td.number { (thousands(cluster.shared.len())) }

            @if cluster.is_read {
                td.number { (thousands(cluster.report.counts.nodes)) }
                td.number { (used) }
                td.number { (share) }
                td.number title=(taken_at) { (report.age(cluster).map(age).unwrap_or_default()) }
            } @else {
                td colspan="4" { "not read" }
            }
        }
    }
}
