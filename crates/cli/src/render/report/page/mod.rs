//! A self-contained HTML page. It begins with a summary in one sentence, five numbers, and what to do about each kind
//! of finding. Then follow the findings, the pools, and a map of every pool. The page has at most a few megabytes,
//! however large the cluster is.

pub(in crate::render) mod causes;
pub(in crate::render) mod findings;
mod pools;

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::occupancy::whole_percent;
use calipam_check::views::{self, MapLimits, PoolView};
use calipam_check::{Code, Finding, Report, Severity};
use maud::{Markup, html};

use super::Checked;
use crate::render::check::verdict;
use crate::render::explanation;
use crate::render::findings::Found;
use crate::render::header;
use crate::render::html::{Frame, NO_SERVER, alert, ask, notice};
use crate::render::sources::unread;
use crate::render::text::{escape, thousands, utc};

const SCRIPT: &str = concat!(include_str!("../../html/common.js"), include_str!("page.js"));
/// The additional script of a `serve` page.
const LIVE_SCRIPT: &str = include_str!("live.js");

/// Limits that keep the page of a cluster with a million allocations below five megabytes.
const LIMITS: MapLimits = MapLimits {
    cells: 1 << 14,
    blocks: 20_000,
    owners: 20_000,
};

pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let live_version = None;
    page(checked, live_version, out)
}

/// Writes a `serve` page, which has a form for questions, and reloads itself when the server has another version.
pub(crate) fn write_live(checked: &Checked<'_>, version: &str, out: &mut dyn Write) -> io::Result<()> {
    page(checked, Some(version), out)
}

/// Writes the page of a report. Only a `serve` page has a version.
fn page(checked: &Checked<'_>, live_version: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let Checked {
        report,
        advice,
        snapshot,
        ..
    } = checked;
    let pools = views::pools(snapshot);
    let maps = views::map(snapshot, report, LIMITS);
    let found: Vec<Found<'_>> = Found::of_report(report).collect();
    let title = verdict([*report].into_iter());
    let counts = &report.counts.findings;
    let unread = unread(&report.coverage, report.cluster.datastore);

    let is_live = live_version.is_some();
    let scripts: &[&str] = if is_live {
        &[SCRIPT, LIVE_SCRIPT]
    } else {
        &[SCRIPT]
    };
    let body = html! {
        header {
            h1 { "IPAM check: " (sentence(&title, counts, unread.is_none())) }
            p.dim { (header::cluster(&report.cluster)) br;
                "Read at " (utc(report.cluster.taken_at)) ": " (header::counts(report)) }
            (tiles(counts, pools.pools.iter().map(|pool| ("", pool))))
            nav { @if !advice.causes.is_empty() { a href="#causes" { "Causes" } } a href="#kinds" { "What to do" } a href="#findings" { "Findings" } a href="#pools" { "Pools" } a href="#maps" { "Maps" } @if !found.is_empty() { a href="#codes" { "Codes" } } }
        }
        @if is_live { (ask()) }
        main {
            @for outage in outages(report) { (alert(&outage.message())) }
            @if let Some(unread) = unread { (notice(format!("Not read: {unread}."))) }
            @for note in &report.notes { (notice(note)) }
            @if !report.rechecked && !found.is_empty() {
                p.dim { "A single read: some findings could be changes in progress." }
            }
            (causes::causes(std::iter::once(("", *advice))))
            (findings::kinds(&found, &[advice]))
            @if let Some(changes) = &report.changes { (findings::changes(changes, report)) }
            section #findings {
                h2 { "Findings" }
                @if !found.is_empty() { (findings::controls()) }
                (findings::list(&found))
            }
            (pools::section(&pools))
            (pools::maps(&maps))
            (findings::meanings(&found))
        }
        (pools::data(&maps))
    };
    let server = if is_live {
        "form-action 'self'; connect-src 'self'"
    } else {
        NO_SERVER
    };
    Frame {
        title: &title,
        scripts,
        server,
        version: live_version,
    }
    .write(&body, out)
}

/// Returns the findings about nodes on which pods cannot start. The page shows them first.
fn outages(report: &Report) -> impl Iterator<Item = &Finding> {
    let is_outage = |finding: &&Finding| {
        finding.code == Code::NodeWithoutAddresses && finding.severity == Severity::Critical
    };
    report.findings.iter().filter(is_outage)
}

/// Formats a report in one sentence: `34 findings; at worst, traffic is or will be broken`. Without findings, says that
/// there is nothing to do, but only if everything was read, and no known findings were left out.
pub(in crate::render) fn sentence(
    verdict: &str,
    counts: &BTreeMap<Severity, usize>,
    is_whole: bool,
) -> String {
    // The severities are in order, the worst first.
    if let Some((worst, _)) = counts.iter().find(|(_, number)| **number > 0) {
        return format!("{verdict}; at worst, {}", explanation::meaning(*worst));
    }
    if !is_whole {
        return format!("{verdict}, but not everything was read");
    }
    let leaves_out_known = verdict.starts_with("no new");
    if leaves_out_known {
        return verdict.to_owned();
    }
    format!("{verdict}, nothing to do")
}

/// Creates five tiles: the number of findings of each severity, and how full the fullest enabled pool is. `pools` has
/// each pool with the name of its cluster, which is empty if there is only one cluster.
pub(in crate::render) fn tiles<'a>(
    counts: &BTreeMap<Severity, usize>,
    pools: impl Iterator<Item = (&'a str, &'a PoolView)>,
) -> Markup {
    let fullest = fullest_pool(pools);
    html! {
        ul.tiles {
            @for severity in Severity::ALL {
                @let number = counts.get(&severity).copied().unwrap_or_default();
                li class=[(number > 0).then_some(severity)] {
                    strong { (thousands(number)) } (severity) small { (explanation::meaning(severity)) }
                }
            }
            @if let Some((cluster, pool)) = fullest {
                li {
                    strong { (percent_taken(pool).unwrap_or_default()) " %" } "of the fullest pool taken"
                    small { (escape(&pool.name)) @if !cluster.is_empty() { " in " (escape(cluster)) } }
                }
            }
        }
    }
}

/// Returns the enabled pool with the highest percentage of taken addresses, with its cluster's name; the first of
/// several. `None` if no pool is enabled.
fn fullest_pool<'a>(pools: impl Iterator<Item = (&'a str, &'a PoolView)>) -> Option<(&'a str, &'a PoolView)> {
    let mut fullest: Option<(&str, &PoolView)> = None;
    for (cluster, pool) in pools {
        let is_fuller = fullest.is_none_or(|(_, other)| percent_taken(pool) > percent_taken(other));
        if pool.enabled && is_fuller {
            fullest = Some((cluster, pool));
        }
    }
    fullest
}

/// Returns the percentage of a pool's usable addresses that are taken; `None` if no address is usable.
fn percent_taken(pool: &PoolView) -> Option<u8> {
    whole_percent(pool.usable_taken.0, pool.usable.0)
}
