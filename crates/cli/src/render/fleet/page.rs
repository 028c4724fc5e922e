//! A fleet's report as one page: clusters, findings, and a map of all ranges. Like the page of one cluster, it loads
//! nothing and is limited in size.

mod ranges;

use std::io::{self, Write};

use calipam_check::Severity;
use calipam_check::fleet::Cluster;
use maud::{Markup, html};

use super::FleetReport;
use super::text::{age, header, severities, use_of_pools};
use crate::hints;
use crate::render::findings::Found;
use crate::render::html::{Frame, NO_SERVER, compact, head, long, notice};
use crate::render::report::page::findings::{choice_of_severity, code, kinds, meanings, rows, says};
use crate::render::report::page::{sentence, tiles, verdict};
use crate::render::text::{count, escape, joined, thousands};

const SCRIPT: &str = concat!(include_str!("../html/common.js"), include_str!("page.js"));

pub(super) fn write(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let findings = report.findings();
    let (clusters, counts) = (&report.clusters, report.counts());
    let title = format!("{} in {}", verdict(findings.len()), count(clusters.len(), "cluster", "clusters"));
    let pools = clusters.iter().flat_map(|of| of.pools.pools.iter().map(|pool| (of.name.as_str(), pool)));
    let body = html! {
        header {
            h1 { "IPAM check: " (sentence(&title, &counts)) }
            p.dim { (header(report)) br; "At " (report.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) }
            (tiles(&counts, pools))
            nav { a href="#clusters" { "Clusters" } a href="#kinds" { "What to do" } a href="#findings" { "Findings" } a href="#ranges" { "Ranges" } @if !findings.is_empty() { a href="#codes" { "Codes" } } }
        }
        main {
            @for note in &report.notes { (notice(note)) }
            div.controls.script {
                label { "Filter " input #filter type="search" placeholder="prod-eu, 10.244.1.7, leaked"; }
                (choice_of_severity())
            }
            (table_of_clusters(report))
            (kinds(&findings))
            (table_of_findings(&findings))
            (ranges::section(report))
            (meanings(&findings))
        }
    };
    Frame { title: &title, scripts: &[SCRIPT], server: NO_SERVER, read_at: None }.write(&body, out)
}

/// The number of rows that are shown, and a button for all.
fn shown(name: &str) -> Markup {
    html! {
        p.script { span.dim id={ (name) "-shown" } aria-live="polite" {} " " button id={ (name) "-all" } type="button" hidden { "Show all" } }
    }
}

fn table_of_clusters(report: &FleetReport) -> Markup {
    let rows = html! {
        table #clusters-table data-filtered="clusters" {
            (head(&["Cluster", "Group"], &["Critical", "Error", "Warning", "Info", "Nodes", "In use", "%", "Age"], &[]))
            tbody { @for cluster in &report.clusters { (row(report, cluster)) } }
        }
    };
    html! { section #clusters { h2 { "Clusters" } div.scroll { (compact(rows)) } (shown("clusters")) } }
}

fn row(report: &FleetReport, cluster: &Cluster) -> Markup {
    let counts: Vec<(Severity, usize)> = severities(&cluster.report.counts.findings).collect();
    let found = counts.iter().filter(|(_, number)| *number > 0).map(|(severity, _)| severity);
    let (used, share) = use_of_pools(cluster);
    html! {
        tr data-severity=(joined(found, " ")) {
            td class={ "name " (long(&cluster.name).unwrap_or_default()) } { a href="#findings" data-filter=(cluster.name) { (escape(&cluster.name)) } }
            td { (escape(cluster.group.as_deref().unwrap_or_default())) }
            @for (severity, number) in counts { td class={ "number " @if number > 0 { (severity) } } { (thousands(number)) } }
            @if cluster.is_read {
                td.number { (thousands(cluster.report.counts.nodes)) } td.number { (used) } td.number { (share) }
                td.number title=(cluster.report.cluster.taken_at) { (report.age(cluster).map(age).unwrap_or_default()) }
            } @else { td colspan="4" { "not read" } }
        }
    }
}

fn table_of_findings(findings: &[Found<'_>]) -> Markup {
    if findings.is_empty() {
        return html! { section #findings { h2 { "Findings" } p { "No findings." } } };
    }
    let (numbers, rows) = rows(findings, finding);
    let left_out: usize = numbers.values().map(|[_, left_out]| left_out).sum();
    let table = html! {
        table.cards data-filtered="findings" {
            (head(&["Cluster", "Severity", "Code", "Subject", "Finding"], &[], &[]))
            tbody { @for row in rows { (row) } }
        }
    };
    html! {
        section #findings {
            h2 { "Findings" }
            @if left_out > 0 {
                p.notice { "This page shows the first findings of each code, and leaves out " (thousands(left_out))
                    ". All of them: " code { (hints::command_in_document(&["check", "--fleet", "FILE", "-o", "json"])) } }
            }
            div.scroll { (compact(table)) }
            (shown("findings"))
        }
    }
}

fn finding(of: Found<'_>, detailed: bool) -> Markup {
    let Found { cluster, finding, .. } = of;
    let subject = finding.subject.to_string();
    html! {
        tr data-severity=(finding.severity) {
            td class={ "name " (long(cluster).unwrap_or_default()) } { (escape(cluster)) }
            td class=(finding.severity) { (finding.severity) }
            td { (code(finding)) }
            td class=[long(&subject)] { (escape(&subject)) }
            (says(of, detailed))
        }
    }
}
