//! The report of a fleet as people read it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::fleet::Cluster;
use calipam_check::views::{Count, PoolView};
use calipam_check::{Change, Severity};
use jiff::SignedDuration;

use super::schema::numbers;
use super::{FleetReport, OfCluster};
use crate::render::check::{color, summary};
use crate::render::document::Detail;
use crate::render::show::percent;
use crate::render::table::{Grid, Page};
use crate::render::text::{count, escape, thousands};
use crate::render::wrap::on_page;

pub(super) fn write(report: &FleetReport, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let findings = |out: &mut dyn Write| match detail {
        Detail::Short => summary_table(report, page).write(out),
        Detail::Full => full_table(report, page).write(out),
    };
    if page.rows_only {
        return findings(out);
    }
    writeln!(out, "{}", on_page(&header(report), 0, page))?;
    for note in &report.notes {
        writeln!(out, "{}", on_page(&escape(note), 0, page))?;
    }
    writeln!(out)?;
    // Those without findings are many, and there is nothing to say about them.
    let shown = |cluster: &&Cluster| detail == Detail::Full || cluster.report.worst().is_some();
    let clusters: Vec<&Cluster> = report.clusters.iter().filter(shown).collect();
    if !clusters.is_empty() {
        clusters_table(report, &clusters, detail, Page { sort_by: None, ..page }).write(out)?;
        writeln!(out)?;
    }
    if report.number_of_findings() > 0 {
        findings(out)?;
        writeln!(out)?;
    }
    let clean = report.clusters.len() - clusters.len();
    let clean = (clean > 0).then(|| format!("; {} without findings", count(clean, "cluster", "clusters")));
    let line = summary(report.number_of_findings(), &report.counts()) + &clean.unwrap_or_default();
    writeln!(out, "{}", on_page(&line, 0, page))?;
    changes(report).iter().try_for_each(|line| writeln!(out, "{}", on_page(line, 0, page)))
}

/// `12 clusters in 2 groups · 1 not read · 60,000 allocations · 24 nodes`.
pub(super) fn header(report: &FleetReport) -> String {
    let clusters = &report.clusters;
    let groups: std::collections::BTreeSet<&String> =
        clusters.iter().filter_map(|cluster| cluster.group.as_ref()).collect();
    let sum = |number: fn(&Cluster) -> usize| clusters.iter().map(number).sum::<usize>();
    let unread = sum(|cluster| usize::from(!cluster.is_read));
    let mut first = count(clusters.len(), "cluster", "clusters");
    if !groups.is_empty() {
        first.push_str(&format!(" in {}", count(groups.len(), "group", "groups")));
    }
    let mut parts = vec![first];
    if unread > 0 {
        parts.push(format!("{} not read", thousands(unread)));
    }
    parts.push(count(sum(|cluster| cluster.report.counts.allocations), "allocation", "allocations"));
    parts.push(count(sum(|cluster| cluster.report.counts.pools), "pool", "pools"));
    parts.push(count(sum(|cluster| cluster.report.counts.nodes), "node", "nodes"));
    parts.join(" · ")
}

fn clusters_table(report: &FleetReport, clusters: &[&Cluster], detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(
        page,
        detail,
        "CLUSTER  GROUP  >CRITICAL  >ERROR  >WARNING  >INFO  >NODES  >IN USE  >%  >AGE",
    );
    grid.can_do_without(&["NODES", "IN USE", "INFO", "AGE"]);
    for cluster in clusters {
        let mut cells = vec![cluster.name.clone(), cluster.group.clone().unwrap_or_else(|| "-".into())];
        cells.extend(Severity::ALL.map(|severity| {
            thousands(cluster.report.counts.findings.get(&severity).copied().unwrap_or_default())
        }));
        if cluster.is_read {
            cells.push(thousands(cluster.report.counts.nodes));
            cells.extend(use_of_pools(cluster));
        } else {
            cells.extend(["-", "-", "-"].map(str::to_owned));
        }
        cells.push(report.age(cluster).map_or_else(|| "-".to_owned(), age));
        grid.colored_row(cluster.report.worst().and_then(color), cells);
    }
    grid
}

/// Addresses in use of the enabled pools of a cluster, and the share that is taken, in percent.
pub(super) fn use_of_pools(cluster: &Cluster) -> [String; 2] {
    let sum = |number: fn(&PoolView) -> Count| {
        let pools = cluster.pools.pools.iter().filter(|pool| pool.enabled);
        Count(pools.map(|pool| number(pool).0).fold(0, u128::saturating_add))
    };
    let share = percent(sum(|pool| pool.usable_taken), sum(|pool| pool.usable));
    [thousands(sum(|pool| pool.in_use)), share]
}

/// One row for each severity, code and cluster. In a comparison what is new is the example.
fn summary_table(report: &FleetReport, page: Page) -> Grid {
    let mut grid = Grid::new(page, Detail::Short, "CLUSTER  SEVERITY  CODE  >COUNT");
    if report.changes.is_some() {
        grid.columns(">NEW");
    }
    grid.columns("FOR EXAMPLE");
    let findings = report.findings();
    let same = |a: &OfCluster<'_>, b: &OfCluster<'_>| {
        let key = |of: &OfCluster<'_>| (of.finding.severity, of.finding.code);
        key(a) == key(b) && a.cluster.name == b.cluster.name
    };
    for kind in findings.chunk_by(same) {
        let is_news = |of: &&OfCluster<'_>| of.change.is_some_and(Change::is_news);
        let Some(example) = kind.iter().find(is_news).or(kind.first()) else { continue };
        let finding = example.finding;
        let mut cells =
            vec![example.cluster.name.clone(), finding.severity.to_string(), finding.code.to_string()];
        cells.push(thousands(kind.len()));
        if report.changes.is_some() {
            cells.push(thousands(kind.iter().filter(is_news).count()));
        }
        cells.push(finding.message());
        grid.colored_row(color(finding.severity), cells);
    }
    grid
}

/// One row for each finding.
fn full_table(report: &FleetReport, page: Page) -> Grid {
    let mut grid = Grid::new(page, Detail::Full, "CLUSTER  SEVERITY  CODE");
    if report.changes.is_some() {
        grid.columns("CHANGE");
    }
    grid.columns("SUBJECT  FINDING");
    for OfCluster { cluster, finding, change } in report.findings() {
        let mut cells = vec![cluster.name.clone(), finding.severity.to_string(), finding.code.to_string()];
        cells.extend(change.map(|change| change.to_string()));
        cells.extend([finding.subject.to_string(), finding.message()]);
        grid.colored_row(color(finding.severity), cells);
    }
    grid
}

/// How many findings are new, gone and the same since the earlier report; none without one.
fn changes(report: &FleetReport) -> Vec<String> {
    let Some(changes) = &report.changes else { return Vec::new() };
    let numbers = numbers(report);
    let sum =
        |number: fn(&calipam_check::Changes) -> usize| thousands(changes.iter().map(number).sum::<usize>());
    let since = changes.iter().map(|changes| changes.since).min().unwrap_or_default();
    let mut line = format!(
        "Since {}: {} new, {} more severe, {} gone, {} as before",
        since.strftime("%Y-%m-%d %H:%M:%S UTC"),
        thousands(numbers[&Change::New]),
        thousands(numbers[&Change::Worse]),
        sum(|changes| changes.gone.len()),
        thousands(numbers[&Change::Stays]),
    );
    let not_checked = sum(|changes| changes.not_checked.len());
    if not_checked != "0" {
        line.push_str(&format!(", {not_checked} not checked"));
    }
    vec![line]
}

/// `12 s`, `5 min`, `3 h`, `4 d`.
pub(super) fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs();
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", thousands(seconds / 86_400)),
    }
}

/// The findings of a cluster by severity: what the header of its row says.
pub(super) fn severities(counts: &BTreeMap<Severity, usize>) -> impl Iterator<Item = (Severity, usize)> {
    Severity::ALL.into_iter().map(|severity| (severity, counts.get(&severity).copied().unwrap_or_default()))
}
