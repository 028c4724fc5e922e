//! A fleet's report as text.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::Severity;
use calipam_check::fleet::Cluster;
use calipam_check::views::Count;
use jiff::SignedDuration;

use super::FleetReport;
use crate::render::advice;
use crate::render::check::{color, leaves_out_known, summary, table};
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::show::percent;
use crate::render::table::Grid;
use crate::render::text::{count, dash, thousands, utc};

/// Writes the report of a fleet: its clusters, causes and findings, and the changes since an earlier report.
pub(super) fn write(report: &FleetReport, text: &mut Text) {
    text.line(header(report));
    text.lines(&report.notes);
    text.blank();

    let listed = listed_clusters(report, text.page.wide);
    let number_not_listed = report.clusters.len() - listed.len();
    text.aside(clusters_table(report, listed));

    let advice_by_name = report
        .with_advice()
        .map(|(cluster, advice)| (cluster.name.as_str(), advice));
    advice::text_of_fleet(advice_by_name, text);

    let is_compared = report.reports().any(|report| report.changes.is_some());
    text.section(table(report.findings(), is_compared, text.page.wide));

    text.line(summary_of(report, number_not_listed));
    text.lines(changes(report));
}

/// Returns the clusters that the table lists: all in the wide form, otherwise those with findings, which are usually
/// few.
fn listed_clusters(report: &FleetReport, wide: bool) -> Vec<&Cluster> {
    let mut listed = Vec::new();
    for cluster in &report.clusters {
        let has_findings = cluster.report.worst().is_some() || !cluster.shared.is_empty();
        if has_findings || wide {
            listed.push(cluster);
        }
    }
    listed
}

/// Formats the numbers of findings, and the number of clusters that are not listed because they have none.
fn summary_of(report: &FleetReport, number_not_listed: usize) -> String {
    let summary = summary(report.reports());
    if number_not_listed == 0 {
        return summary;
    }
    let clusters = count(number_not_listed, "cluster", "clusters");
    if report.reports().any(leaves_out_known) {
        return format!("{summary}; {clusters} without new findings");
    }
    format!("{summary}; {clusters} without findings")
}

/// Formats `12 clusters in 2 groups · 1 not read · 60,000 allocations · 24 pools · 240 nodes`.
pub(super) fn header(report: &FleetReport) -> String {
    let mut parts = vec![clusters_in_groups(&report.clusters)];
    let unread = report.clusters.iter().filter(|cluster| !cluster.is_read).count();
    if unread > 0 {
        parts.push(format!("{} not read", thousands(unread)));
    }

    let mut allocations = 0;
    let mut pools = 0;
    let mut nodes = 0;
    for cluster in &report.clusters {
        let counts = &cluster.report.counts;
        allocations += counts.allocations;
        pools += counts.pools;
        nodes += counts.nodes;
    }
    parts.push(count(allocations, "allocation", "allocations"));
    parts.push(count(pools, "pool", "pools"));
    parts.push(count(nodes, "node", "nodes"));
    parts.join(" · ")
}

/// Formats `12 clusters in 2 groups`, or `12 clusters` if none has a group.
fn clusters_in_groups(clusters: &[Cluster]) -> String {
    let number = count(clusters.len(), "cluster", "clusters");
    let groups: BTreeSet<&String> = clusters.iter().flat_map(|cluster| &cluster.group).collect();
    if groups.is_empty() {
        return number;
    }
    format!("{number} in {}", count(groups.len(), "group", "groups"))
}

/// Creates the table of clusters, with their findings by severity, and the number of findings listed for other clusters
/// that concern them, too.
fn clusters_table<'a>(report: &FleetReport, clusters: impl IntoIterator<Item = &'a Cluster>) -> Grid {
    let columns = vec![
        left("CLUSTER", |cluster: &Cluster| &cluster.name)
            .colored(|cluster: &Cluster| cluster.report.worst().and_then(color)),
        left("GROUP", |cluster: &Cluster| {
            cluster.group.as_deref().unwrap_or("-")
        }),
        right("CRITICAL", |cluster: &Cluster| {
            findings(cluster, Severity::Critical)
        }),
        right("ERROR", |cluster: &Cluster| findings(cluster, Severity::Error)),
        right("WARNING", |cluster: &Cluster| {
            findings(cluster, Severity::Warning)
        }),
        right("INFO", |cluster: &Cluster| findings(cluster, Severity::Info)).hidden(3),
        right("SHARED", |cluster: &Cluster| thousands(cluster.shared.len())).if_any(),
        right("NODES", |cluster: &Cluster| {
            if_read(cluster, thousands(cluster.report.counts.nodes))
        })
        .hidden(1),
        right("IN USE", |cluster: &Cluster| {
            let (in_use, _) = use_of_pools(cluster);
            if_read(cluster, in_use)
        })
        .hidden(2),
        right("%", |cluster: &Cluster| {
            let (_, percent) = use_of_pools(cluster);
            if_read(cluster, percent)
        }),
        right("AGE", |cluster: &Cluster| dash(report.age(cluster).map(age))).hidden(4),
    ];
    Grid::fixed(clusters, columns)
}

/// Formats the number of a cluster's findings of a severity.
fn findings(cluster: &Cluster, severity: Severity) -> String {
    let counts = &cluster.report.counts.findings;
    thousands(counts.get(&severity).copied().unwrap_or_default())
}

/// Returns a number of a cluster, or a dash if the cluster could not be read, so that the number is not known.
fn if_read(cluster: &Cluster, number: String) -> String {
    if cluster.is_read { number } else { "-".to_owned() }
}

/// Formats the number of addresses in use in the enabled pools of a cluster, and the percentage of usable addresses
/// that are taken.
pub(super) fn use_of_pools(cluster: &Cluster) -> (String, String) {
    let mut in_use: u128 = 0;
    let mut usable: u128 = 0;
    let mut usable_taken: u128 = 0;
    for pool in &cluster.pools.pools {
        if pool.enabled {
            in_use = in_use.saturating_add(pool.in_use.0);
            usable = usable.saturating_add(pool.usable.0);
            usable_taken = usable_taken.saturating_add(pool.usable_taken.0);
        }
    }
    (
        thousands(Count(in_use)),
        percent(Count(usable_taken), Count(usable)),
    )
}

/// Formats the numbers of findings by change since the earlier report; `None` if there is no earlier report.
fn changes(report: &FleetReport) -> Option<String> {
    let changes = report.changes()?;
    let mut line = format!(
        "Since {}: {} new, {} more severe, {} gone, {} unchanged",
        utc(changes.since),
        thousands(changes.new),
        thousands(changes.worse),
        thousands(changes.gone.len()),
        thousands(changes.stay),
    );
    if !changes.not_checked.is_empty() {
        line.push_str(&format!(", {} not checked", thousands(changes.not_checked.len())));
    }
    Some(line)
}

/// Formats `12 s`, `5 min`, `3 h`, `4 d`.
pub(super) fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs();
    // A unit is used from two of it on, so that rounding down hides at most a third.
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", thousands(seconds / 86_400)),
    }
}

/// Returns each severity with the number of findings, for a cluster's row.
pub(super) fn severities(counts: &BTreeMap<Severity, usize>) -> impl Iterator<Item = (Severity, usize)> {
    Severity::ALL
        .into_iter()
        .map(|severity| (severity, counts.get(&severity).copied().unwrap_or_default()))
}
