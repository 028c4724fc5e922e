//! A fleet's report as one page: clusters, findings, and a map of all ranges. Like the page of one cluster, it loads
//! nothing and is limited in size.

mod ranges;

use std::collections::BTreeSet;
use std::io::{self, Write};

use calipam_check::fleet::Cluster;
use calipam_check::{Code, Severity};
use maud::{Markup, html};

use super::FleetReport;
use super::text::{age, header, severities, use_of_pools};
use crate::hints;
use crate::render::findings::Found;
use crate::render::report::page::findings::{choice_of_severity, meanings, rows, says};
use crate::render::report::page::{Frame, NO_SERVER, STYLE, compact, long, tiles};
use crate::render::text::{count, escape, joined, thousands};

const SCRIPT: &str = concat!(include_str!("../report/page/common.js"), include_str!("page.js"));
/// Styles in addition to those of the page of one cluster.
const OWN_STYLE: &str = ".strip{position:relative;height:1.1em;background:var(--unclaimed);margin:.15em 0}\
.strip i{position:absolute;top:0;height:100%;min-width:2px;background:var(--used);outline:1px solid var(--paper)}\
 td.name,td:nth-child(2),td:nth-child(3){white-space:nowrap}.strip i.error{background:var(--error)}.strip i.info{background:var(--free)}";

pub(super) fn write(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let findings = report.findings();
    let verdict = count(findings.len(), "finding", "findings");
    let title = format!("calipam: {verdict} in {}", count(report.clusters.len(), "cluster", "clusters"));
    let codes: BTreeSet<Code> = findings.iter().map(|of| of.finding.code).collect();
    let body = html! {
        header {
            h1 { "IPAM check of a fleet: " (verdict) }
            p.dim { (header(report)) br; "At " (report.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) }
            nav { a href="#clusters" { "Clusters" } a href="#findings" { "Findings" } a href="#ranges" { "Ranges" } @if !codes.is_empty() { a href="#codes" { "Codes" } } }
        }
        main {
            (tiles(&report.counts()))
            @for note in &report.notes { p.notice { (escape(note)) } }
            div.controls.script {
                label { "Filter " input #filter type="search" placeholder="prod-eu, 10.244.1.7, leaked"; }
                (choice_of_severity())
            }
            (clusters(report))
            (table_of_findings(&findings))
            (ranges::section(report))
            (meanings(codes))
        }
    };
    let (styles, scripts) = (&[STYLE, OWN_STYLE], &[SCRIPT]);
    Frame { title: &title, styles, scripts, server: NO_SERVER, read_at: None }.write(&body, out)
}

/// The number of rows that are shown, and a button for all.
fn shown(name: &str) -> Markup {
    html! {
        p.script { span.dim id={ (name) "-shown" } aria-live="polite" {} " " button id={ (name) "-all" } type="button" hidden { "Show all" } }
    }
}

fn clusters(report: &FleetReport) -> Markup {
    let rows = html! {
        table #clusters-table data-filtered="clusters" {
            thead { tr {
                @for head in ["Cluster", "Group"] { th scope="col" { (head) } }
                @for severity in Severity::ALL { th.number scope="col" { (severity) } }
                @for head in ["Nodes", "In use", "%", "Age"] { th.number scope="col" { (head) } }
            } }
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
            td class={ "name " (long(&cluster.name).unwrap_or_default()) } { a href="#findings" { (escape(&cluster.name)) } }
            td { (escape(cluster.group.as_deref().unwrap_or_default())) }
            @for (severity, number) in counts { td class=[(number > 0).then_some(severity)] { (thousands(number)) } }
            @if cluster.is_read {
                td { (thousands(cluster.report.counts.nodes)) } td { (used) } td { (share) }
                td title=(cluster.report.cluster.taken_at) { (report.age(cluster).map(age).unwrap_or_default()) }
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
        table data-filtered="findings" {
            thead { tr { @for head in ["Cluster", "Severity", "Code", "Subject", "Finding"] { th scope="col" { (head) } } } }
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
            td { a href={ "#code-" (finding.code) } { (finding.code) } }
            td class=[long(&subject)] { (escape(&subject)) }
            (says(of, detailed))
        }
    }
}
