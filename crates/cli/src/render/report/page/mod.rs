//! A self-contained HTML page with findings, pools, and a map of every pool. It loads nothing, shows tables even
//! without its script, and has at most a few megabytes, however large the cluster is.

pub(in crate::render) mod findings;
mod pools;

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use calipam_check::views::{self, MapLimits};
use calipam_check::{Code, Finding, Report, Severity};
use calipam_model::digest::sha256;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Checked;
use crate::render::check::unread;
use crate::render::header;
use crate::render::text::{escape, thousands};

pub(in crate::render) const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(include_str!("common.js"), include_str!("page.js"));
/// The additional script of a `serve` page.
const LIVE_SCRIPT: &str = include_str!("live.js");

/// Limits that keep the page of a million allocations below five megabytes.
const LIMITS: MapLimits = MapLimits { cells: 1 << 14, blocks: 20_000, owners: 20_000 };

pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    page(checked, &[SCRIPT], out)
}

/// Writes a `serve` page: it has a form for questions, and is replaced with a later page automatically.
pub(crate) fn write_live(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    page(checked, &[SCRIPT, LIVE_SCRIPT], out)
}

fn page(checked: &Checked<'_>, scripts: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let Checked { report, snapshot, .. } = checked;
    let pools = views::pools(snapshot);
    let maps = views::map(snapshot, report, LIMITS);
    let title = format!("calipam: {}", verdict(report));

    let is_live = scripts.contains(&LIVE_SCRIPT);
    let body = html! {
        header {
            h1 { "IPAM check: " (verdict(report)) }
            p.dim { (header::cluster(&report.cluster)) br; (header::counts(report)) br;
                "Read at " (report.cluster.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()) }
            nav { a href="#findings" { "Findings" } a href="#pools" { "Pools" } a href="#maps" { "Maps" } @if !report.findings.is_empty() { a href="#codes" { "Codes" } } }
        }
        @if is_live {
            form.ask action="/ask" {
                label { "Ask about an address, a pod, a node or a handle " input name="q" required placeholder="10.244.1.7, default/web-0"; }
                " " button { "Show" }
            }
        }
        main {
            @for outage in outages(report) { p.notice role="alert" { (escape(&outage.message())) } }
            (summary(report))
            @if let Some(changes) = &report.changes { (findings::changes(changes, report)) }
            (findings::section(report))
            (pools::section(&pools))
            (pools::maps(&maps))
            (findings::meanings(report.findings.iter().map(|finding| finding.code).collect()))
        }
        (pools::data(&maps))
    };
    let server = if is_live { "form-action 'self'; connect-src 'self'" } else { NO_SERVER };
    Frame { title: &title, styles: &[STYLE], scripts, server, read_at: Some(report.cluster.taken_at) }
        .write(&body, out)
}

/// The policy of a page in a file: it connects to no server.
pub(in crate::render) const NO_SERVER: &str = "form-action 'none'";

/// The parts of a page around its content.
pub(in crate::render) struct Frame<'a> {
    pub title: &'a str,
    pub styles: &'a [&'a str],
    pub scripts: &'a [&'a str],
    /// The part of the content security policy about the page's server.
    pub server: &'a str,
    /// The time of the data, for the scripts.
    pub read_at: Option<Timestamp>,
}

impl Frame<'_> {
    pub(in crate::render) fn write(&self, body: &Markup, out: &mut dyn Write) -> io::Result<()> {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(self.policy());
                    title { (self.title) }
                    style { @for style in self.styles { (PreEscaped(style)) } }
                }
                body data-read=[self.read_at] {
                    (body)
                    @for script in self.scripts { script { (PreEscaped(script)) } }
                }
            }
        };
        out.write_all(page.into_string().as_bytes())
    }

    /// The content security policy: the page runs only its own scripts, and connects only to its server, if at all.
    /// Even an unescaped name from the cluster could do no harm.
    fn policy(&self) -> String {
        let hash = |script: &&str| format!(" 'sha256-{}'", STANDARD.encode(sha256(script)));
        let scripts = match self.scripts {
            [] => String::new(),
            scripts => format!("script-src{}; ", scripts.iter().map(hash).collect::<String>()),
        };
        let server = self.server;
        format!("default-src 'none'; style-src 'unsafe-inline'; {scripts}base-uri 'none'; {server}")
    }
}

/// Removes the end tags of cells and rows, which HTML does not require: they are a fifth of a long table. Texts from
/// the cluster contain none, since their `<` is escaped.
pub(in crate::render) fn compact(table: Markup) -> Markup {
    PreEscaped(table.into_string().replace("</td>", "").replace("</tr>", ""))
}

/// The class for names too long for a column; other names are never broken. An IPv6 CIDR is the longest that fits.
pub(in crate::render) fn long(name: &str) -> Option<&'static str> {
    (name.chars().count() > 43).then_some("long")
}

/// Adds a notice above the content of a page.
pub(crate) fn with_notice(page: &[u8], text: &str) -> Vec<u8> {
    let notice = html! { p.notice role="alert" { (escape(text)) } }.into_string();
    let main = b"<main>";
    let place = page.windows(main.len()).position(|part| part == main).map_or(0, |start| start + main.len());
    [&page[..place], notice.as_bytes(), &page[place..]].concat()
}

/// The findings about nodes on which pods cannot start. They are shown first.
fn outages(report: &Report) -> impl Iterator<Item = &Finding> {
    let is_outage = |finding: &&Finding| {
        finding.code == Code::NodeWithoutAddresses && finding.severity == Severity::Critical
    };
    report.findings.iter().filter(is_outage)
}

fn verdict(report: &Report) -> String {
    match report.findings.len() {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{} findings", thousands(many)),
    }
}

/// A tile with the number of findings for each severity.
pub(in crate::render) fn tiles(findings: &BTreeMap<Severity, usize>) -> Markup {
    html! {
        ul.tiles {
            @for severity in Severity::ALL {
                @let number = findings.get(&severity).copied().unwrap_or_default();
                @let class = if number > 0 { severity.to_string() } else { String::new() };
                li class=(class) { strong { (thousands(number)) } (severity) }
            }
        }
    }
}

/// The numbers of findings by severity, and notices about what the report leaves out.
fn summary(report: &Report) -> Markup {
    html! {
        (tiles(&report.counts.findings))
        @if let Some(unread) = unread(&report.coverage, report.cluster.datastore) { p.notice { "Not everything was read: " (escape(&unread)) "." } }
        @for note in &report.notes { p.notice { (escape(note)) } }
        @if !report.rechecked && !report.findings.is_empty() {
            p.dim { "A single read: some findings could be changes in progress." }
        }
    }
}
