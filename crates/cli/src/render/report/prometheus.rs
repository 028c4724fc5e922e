//! Metrics in the Prometheus text format. `docs/reports.md` lists them, with the equivalents from kube-controllers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::fleet::Cluster;
use calipam_check::views::{self, Count, PoolList, PoolView};
use calipam_check::{Changes, Code, Report};
use calipam_history::trend::{Trend, Trends};
use calipam_model::snapshot::{Coverage, Snapshot};
use calipam_workflow::LiveCounts;
use jiff::Timestamp;

use super::Checked;

/// The type and the help of each metric.
const METRICS: &str = include_str!("metrics.txt");

/// Values by metric and by formatted labels, which is also the order of the output.
#[derive(Default)]
struct Metrics<'a> {
    all: BTreeMap<&'static str, BTreeMap<String, f64>>,
    /// The `cluster` label of the next values, for a fleet.
    cluster: Option<&'a str>,
}

/// Writes the metrics of a check: the run, the findings, and the usage of pools and nodes.
pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut metrics = Metrics::default();
    metrics.add_run(&RunMetrics {
        up: true,
        took: checked.took,
        exit_code: checked.exit_code,
        live: None,
    });
    metrics.add_report(checked);
    metrics.write(out)
}

/// Writes the metrics of a check without those of the run, which `serve` writes itself, even after a failure. If the
/// cluster is followed, includes the trends of pools.
pub(crate) fn write_report(
    checked: &Checked<'_>,
    trends: Option<&Trends>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut metrics = Metrics::default();
    let pools = metrics.add_report(checked);
    if let Some(trends) = trends {
        metrics.add_trends(trends, &pools);
    }
    metrics.write(out)
}

/// Writes the results of a check of many clusters, with the label `cluster`.
pub(in crate::render) fn write_fleet(
    run: &RunMetrics,
    clusters: &[Cluster],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut metrics = Metrics::default();
    metrics.add_run(run);
    for cluster in clusters {
        metrics.cluster = Some(&cluster.name);
        metrics.set("cluster_up", &[], f64::from(u8::from(cluster.is_read)));
        // Of a cluster that was not read, only this and the findings between clusters are known.
        metrics.add_findings(&cluster.report, Code::ALL.iter().copied());
        if !cluster.is_read {
            continue;
        }
        metrics.set(
            "cluster_taken_at_timestamp_seconds",
            &[],
            seconds(cluster.report.cluster.taken_at),
        );
        metrics.add_cluster(&cluster.report, &cluster.pools);
    }
    metrics.write(out)
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunMetrics {
    /// True if the cluster could be read and checked.
    pub up: bool,
    pub took: Duration,
    pub exit_code: u8,
    /// The counters of a followed cluster; `None` if the cluster is read again for each check.
    pub live: Option<LiveCounts>,
}

impl RunMetrics {
    /// Writes the metrics of a run that has just ended, and the time of the last successful run if it is known. With
    /// both, an alert can distinguish a failed run from a missing one.
    pub(crate) fn write(&self, last_success: Option<Timestamp>, out: &mut dyn Write) -> io::Result<()> {
        let mut metrics = Metrics::default();
        if let Some(time) = last_success {
            metrics.set("last_success_timestamp_seconds", &[], seconds(time));
        }
        metrics.add_run(self);
        metrics.write(out)
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

impl Metrics<'_> {
    /// Writes the metrics in the text format, each with its help and type.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (name, values) in &self.all {
            let (kind, help) = type_and_help(name).unwrap_or_default();
            writeln!(out, "# HELP calipam_{name} {help}\n# TYPE calipam_{name} {kind}")?;
            for (labels, value) in values {
                // Rust would write `inf`.
                if value.is_infinite() {
                    writeln!(out, "calipam_{name}{labels} +Inf")?
                } else {
                    writeln!(out, "calipam_{name}{labels} {value}")?
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let labels = self.labels(labels);
        self.all.entry(name).or_default().insert(labels, value);
    }

    /// Formats labels, sorted by name, with the label of the cluster in a fleet: `{code="leaked-address"}`. Empty
    /// without any.
    fn labels(&self, labels: &[(&str, &str)]) -> String {
        let mut formatted: Vec<String> = Vec::new();
        for (label, value) in labels {
            formatted.push(format!("{label}=\"{}\"", escape(value)));
        }
        if let Some(name) = self.cluster {
            formatted.push(format!("cluster=\"{}\"", escape(name)));
        }
        if formatted.is_empty() {
            return String::new();
        }
        formatted.sort();
        format!("{{{}}}", formatted.join(","))
    }

    /// Adds the time, duration and result of a run, the counters of a followed cluster, and the version.
    fn add_run(&mut self, run: &RunMetrics) {
        self.set("up", &[], f64::from(u8::from(run.up)));
        self.set("last_run_timestamp_seconds", &[], seconds(Timestamp::now()));
        self.set("last_run_duration_seconds", &[], run.took.as_secs_f64());
        self.set("last_run_exit_code", &[], f64::from(run.exit_code));
        if let Some(live) = run.live {
            self.set("live_changes", &[], live.changes as f64);
            self.set("live_checks", &[], live.checks as f64);
            self.set("live_reads", &[], live.reads as f64);
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.set("build_info", &version, 1.0);
    }

    /// Adds everything about the cluster, and returns the usage of its pools.
    fn add_report(&mut self, checked: &Checked<'_>) -> PoolList {
        let pools = views::pools(checked.snapshot);
        self.add_findings(checked.report, Code::of_one_cluster());
        self.add_cluster(checked.report, &pools);
        self.add_nodes(checked.snapshot);
        pools
    }

    /// Adds the identity, coverage and size of the cluster, the changes in its findings, and its pools.
    fn add_cluster(&mut self, report: &Report, pools: &PoolList) {
        self.add_pools(pools);
        if let Some(changes) = &report.changes {
            self.add_changes(changes, report);
        }
        self.add_identity(report);
        self.add_coverage(report);
        self.add_objects(report);
    }

    /// Adds the identity of the cluster.
    fn add_identity(&mut self, report: &Report) {
        let cluster = &report.cluster;
        let datastore = cluster.datastore.to_string();
        let labels = [
            ("guid", cluster.guid.as_str()),
            ("datastore", &datastore),
            ("calico_version", &cluster.calico_version),
        ];
        self.set("cluster_info", &labels, 1.0);
    }

    /// Adds how much of each source was read.
    fn add_coverage(&mut self, report: &Report) {
        for (source, coverage) in &report.coverage {
            let coverage = match coverage {
                Coverage::Read => "read",
                Coverage::Partial => "partial",
                Coverage::Skipped(_) => "skipped",
            };
            let source = source.to_string();
            let labels = [("source", source.as_str()), ("coverage", coverage)];
            self.set("source_coverage", &labels, 1.0);
        }
    }

    /// Adds the number of objects of each kind.
    fn add_objects(&mut self, report: &Report) {
        let counts = &report.counts;
        for (kind, number) in [
            ("block", counts.blocks),
            ("allocation", counts.allocations),
            ("cooling", counts.cooling),
            ("affinity", counts.affinities),
            ("handle", counts.handles),
            ("pool", counts.pools),
            ("node", counts.nodes),
            ("endpoint", counts.endpoints),
            ("pod", counts.pods),
        ] {
            self.set("objects", &[("kind", kind)], number as f64);
        }
    }

    /// Adds the number of findings for every code, even if it is zero, so that alerts resolve. Also adds the number of
    /// pods without addresses.
    fn add_findings(&mut self, report: &Report, codes: impl Iterator<Item = Code>) {
        // A finding can have another severity than is usual for its code.
        let mut numbers: BTreeMap<_, u64> = codes.map(|code| ((code, code.severity()), 0)).collect();
        let mut pods_without_address: u32 = 0;
        for finding in &report.findings {
            *numbers.entry((finding.code, finding.severity)).or_default() += 1;
            if finding.code == Code::PodWithoutAddress {
                pods_without_address += 1;
            }
        }
        self.set("pods_without_address", &[], f64::from(pods_without_address));
        for ((code, severity), number) in numbers {
            let severity = severity.to_string();
            let labels = [("code", code.name()), ("severity", severity.as_str())];
            self.set("findings", &labels, number as f64);
        }
    }

    /// Adds the changes since the earlier report.
    fn add_changes(&mut self, changes: &Changes, report: &Report) {
        self.set("compared_report_timestamp_seconds", &[], seconds(changes.since));
        let mut set = |change: &str, number: usize| {
            self.set("findings_changed", &[("change", change)], number as f64);
        };
        for (change, number) in changes.counts(&report.findings) {
            set(&change.to_string(), number);
        }
        set("gone", changes.gone.len());
        set("not_checked", changes.not_checked.len());
    }

    /// Adds the usage of pools. The states of a pool add up to its size.
    fn add_pools(&mut self, list: &PoolList) {
        for view in &list.pools {
            let cidr = view.cidr.to_string();
            let pool = [("ippool", view.name.as_str()), ("cidr", cidr.as_str())];
            self.set("ippool_size", &pool, number(view.total));
            self.set("ippool_blocks", &pool, view.blocks as f64);
            self.set("ippool_enabled", &pool, f64::from(u8::from(view.enabled)));
            if let Some(count) = view.allocatable {
                self.set("ippool_allocatable", &pool, number(count));
            }
            if let Some(count) = view.by_name {
                self.set("ippool_allocatable_by_name", &pool, number(count));
            }

            for (state, count) in [
                ("in_use", view.in_use),
                ("cooling", view.cooling),
                ("windows_reserved", view.windows_reserved),
                ("reserved", view.reserved),
                ("unknown", view.unknown),
                ("free", view.free),
            ] {
                let labels = [pool[0], pool[1], ("state", state)];
                self.set("ippool_addresses", &labels, number(count));
            }
        }
    }

    /// Adds the counters of pools with trends, and the time until an enabled pool is exhausted, if that can be
    /// forecast.
    fn add_trends(&mut self, trends: &Trends, list: &PoolList) {
        // These metrics are in the output even if they have no values.
        for name in [
            "ippool_assigned_total",
            "ippool_released_total",
            "ippool_exhaustion_seconds",
        ] {
            self.all.entry(name).or_default();
        }
        for pool in &list.pools {
            if let Some(trend) = trends.of(pool.cidr) {
                self.add_counters(pool, trend);
                self.add_exhaustion(pool, trend);
            }
        }
    }

    /// Adds the numbers of addresses of a pool that were assigned and released.
    fn add_counters(&mut self, pool: &PoolView, trend: &Trend) {
        let cidr = pool.cidr.to_string();
        let labels = [("ippool", pool.name.as_str()), ("cidr", cidr.as_str())];
        self.set("ippool_assigned_total", &labels, trend.assigned as f64);
        self.set("ippool_released_total", &labels, trend.released as f64);
    }

    /// Adds the time until a pool is exhausted. Nothing is added for a disabled pool, or without a forecast.
    fn add_exhaustion(&mut self, pool: &PoolView, trend: &Trend) {
        if !pool.enabled {
            return;
        }
        // Of the free addresses, those that can be allocated, if that is known.
        let free = pool.by_name.or(pool.allocatable).unwrap_or(pool.free);
        let Some(forecast) = trend.forecast(free.0) else {
            return;
        };
        let cidr = pool.cidr.to_string();
        for (bound, seconds) in [
            ("earliest", forecast.earliest),
            ("expected", forecast.expected),
            ("latest", forecast.latest),
        ] {
            let labels = [
                ("ippool", pool.name.as_str()),
                ("cidr", cidr.as_str()),
                ("bound", bound),
            ];
            self.set("ippool_exhaustion_seconds", &labels, seconds);
        }
    }

    /// Sets the metrics about nodes.
    fn add_nodes(&mut self, snapshot: &Snapshot) {
        let nodes = views::nodes(snapshot).nodes;
        let without_address = nodes.iter().filter(|view| view.is_without_address()).count();
        self.set("nodes_without_addresses", &[], without_address as f64);
        for view in nodes {
            let node = [("node", view.node.as_str())];
            self.set("node_blocks", &node, f64::from(view.blocks));
            self.set("node_allocations_in_use", &node, f64::from(view.addresses));
            self.set("node_allocations_borrowed", &node, f64::from(view.borrowed));
        }
    }
}

/// Returns the type and the help of a metric; `None` if [`METRICS`] does not have it.
fn type_and_help(name: &str) -> Option<(&'static str, &'static str)> {
    for line in METRICS.lines() {
        if let Some((metric, description)) = line.split_once(' ')
            && metric == name
        {
            return description.split_once(' ');
        }
    }
    None
}

/// Escapes the value of a label for the text format and for terminals.
fn escape(value: &str) -> String {
    crate::render::text::escape(value)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Converts a number to a double, the type of all metric values. The numbers of large IPv6 pools are rounded.
fn number(count: Count) -> f64 {
    count.0 as f64
}
