//! Metrics in the Prometheus text format. `docs/reports.md` lists them, with the equivalents from kube-controllers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::views::{self, Count, PoolList};
use calipam_check::{Changes, Code, Report};
use calipam_history::trend::Trends;
use calipam_model::snapshot::{Coverage, Snapshot};
use calipam_workflow::LiveCounts;
use jiff::Timestamp;

use super::Checked;
use crate::render::fleet::FleetReport;

/// Metrics by name, in the order of the output: help, type, and values by formatted labels.
#[derive(Default)]
struct Metrics<'a> {
    all: BTreeMap<&'static str, (&'static str, &'static str, BTreeMap<String, f64>)>,
    /// The `cluster` label of the next values, for a fleet.
    cluster: Option<&'a str>,
}

/// Writes the metrics of a check: the run, the findings, and the usage of pools and nodes.
pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut metrics = Metrics::default();
    metrics.run(&RunMetrics { up: true, took: checked.took, exit_code: checked.exit_code, live: None });
    metrics.report(checked);
    metrics.write(out)
}

/// Like `write`, without the metrics of the run, and with the trends of pools if the cluster is followed.
pub(crate) fn write_report(
    checked: &Checked<'_>,
    trends: Option<&Trends>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut metrics = Metrics::default();
    let pools = metrics.report(checked);
    if let Some(trends) = trends {
        metrics.trends(trends, &pools);
    }
    metrics.write(out)
}

/// Writes the results of a check of many clusters, with the label `cluster`.
pub(in crate::render) fn write_fleet(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let mut metrics = Metrics::default();
    metrics.run(&RunMetrics { up: true, took: report.took, exit_code: report.exit_code, live: None });
    for cluster in &report.clusters {
        metrics.cluster = Some(&cluster.name);
        let help = "1 if the cluster could be read and checked, otherwise 0.";
        metrics.set("cluster_up", help, &[], f64::from(u8::from(cluster.is_read)));
        metrics.findings(&cluster.report, Code::ALL.iter().copied());
        if !cluster.is_read {
            continue;
        }
        let help = "When the cluster's data was read, in seconds since 1970.";
        let taken_at = seconds(cluster.report.cluster.taken_at);
        metrics.set("cluster_taken_at_timestamp_seconds", help, &[], taken_at);
        metrics.cluster(&cluster.report, &cluster.pools);
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
    /// Writes the metrics of a run that has just ended, and the time of the last successful run if it is known. An
    /// alert can tell a failed run from a missing one.
    pub(crate) fn write(&self, last_good: Option<Timestamp>, out: &mut dyn Write) -> io::Result<()> {
        let mut metrics = Metrics::default();
        if let Some(at) = last_good {
            let help = "When the last check that succeeded ended, in seconds since 1970.";
            metrics.set("last_success_timestamp_seconds", help, &[], seconds(at));
        }
        metrics.run(self);
        metrics.write(out)
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

impl Metrics<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (name, (help, kind, values)) in &self.all {
            writeln!(out, "# HELP calipam_{name} {help}\n# TYPE calipam_{name} {kind}")?;
            for (labels, value) in values {
                match value.is_infinite() {
                    true => writeln!(out, "calipam_{name}{labels} +Inf")?,
                    false => writeln!(out, "calipam_{name}{labels} {value}")?,
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.declare(name, "gauge", help);
        self.put(name, labels, value);
    }

    /// Declares a metric, which can be without values.
    fn declare(&mut self, name: &'static str, kind: &'static str, help: &'static str) {
        self.all.entry(name).or_insert_with(|| (help, kind, BTreeMap::new()));
    }

    fn put(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let labels = self.labels(labels);
        if let Some((_, _, values)) = self.all.get_mut(name) {
            values.insert(labels, value);
        }
    }

    fn labels(&self, labels: &[(&str, &str)]) -> String {
        let cluster = self.cluster.map(|name| ("cluster", name));
        let labels = labels.iter().copied().chain(cluster);
        let mut labels: Vec<String> =
            labels.map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
        labels.sort();
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
    }

    /// Adds the time, duration and result of a run, the counters of a followed cluster, and the version.
    fn run(&mut self, run: &RunMetrics) {
        let help = "1 if the last check could read the cluster and check it, otherwise 0.";
        self.set("up", help, &[], f64::from(u8::from(run.up)));
        let help = "When the last check ended, in seconds since 1970.";
        self.set("last_run_timestamp_seconds", help, &[], seconds(Timestamp::now()));
        let help = "How long the last check took.";
        self.set("last_run_duration_seconds", help, &[], run.took.as_secs_f64());
        self.set("last_run_exit_code", "The exit code of the last check.", &[], f64::from(run.exit_code));
        if let Some(live) = run.live {
            let [changes, checks, reads] = [
                "Datastore keys that have changed since the start.",
                "How often the cluster was checked since the start.",
                "How often everything was read since the start.",
            ];
            self.set("live_changes", changes, &[], live.changes as f64);
            self.set("live_checks", checks, &[], live.checks as f64);
            self.set("live_reads", reads, &[], live.reads as f64);
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.set("build_info", "The version of calipam; always 1.", &version, 1.0);
    }

    /// Adds everything about the cluster, and returns the usage of its pools.
    fn report(&mut self, checked: &Checked<'_>) -> PoolList {
        let pools = views::pools(checked.snapshot);
        self.findings(checked.report, Code::of_one_cluster());
        self.cluster(checked.report, &pools);
        self.nodes(checked.snapshot);
        pools
    }

    /// Adds the identity, the coverage and the size of the cluster, the changes in it, and its pools.
    fn cluster(&mut self, report: &Report, pools: &PoolList) {
        self.pools(pools);
        if let Some(changes) = &report.changes {
            self.changes(changes, report);
        }
        let cluster = &report.cluster;
        let datastore = cluster.datastore.to_string();
        let labels = [
            ("guid", cluster.guid.as_str()),
            ("datastore", &datastore),
            ("calico_version", &cluster.calico_version),
        ];
        self.set("cluster_info", "The cluster that was read; always 1.", &labels, 1.0);

        for (source, read) in &report.coverage {
            let read = match read {
                Coverage::Read => "read",
                Coverage::Partial => "partial",
                Coverage::Skipped(_) => "skipped",
            };
            let source = source.to_string();
            let labels = [("source", source.as_str()), ("coverage", read)];
            self.set("source_coverage", "How much of a source was read; always 1.", &labels, 1.0);
        }

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
            self.set("objects", "Objects that were read, by kind.", &[("kind", kind)], number as f64);
        }
    }

    /// Adds the numbers of nodes and pods without addresses, and a value for every code, even zero, so that alerts end.
    fn findings(&mut self, report: &Report, codes: impl Iterator<Item = Code>) {
        let mut numbers = BTreeMap::new();
        for code in codes {
            numbers.insert((code, code.severity()), 0_u64);
        }
        for finding in &report.findings {
            *numbers.entry((finding.code, finding.severity)).or_default() += 1;
        }
        for ((code, severity), number) in numbers {
            let severity = severity.to_string();
            let labels = [("code", code.name()), ("severity", severity.as_str())];
            self.set("findings", "Findings by code and severity.", &labels, number as f64);
        }

        let of = |code| report.findings.iter().filter(move |finding| finding.code == code);
        let nodes: std::collections::BTreeSet<_> =
            of(Code::NodeWithoutAddresses).flat_map(|finding| &finding.nodes).collect();
        let help = "Nodes whose next pod gets no address.";
        self.set("nodes_without_addresses", help, &[], nodes.len() as f64);
        let help = "Pods that are waiting for an address and get none from IPAM.";
        self.set("pods_without_address", help, &[], of(Code::PodWithoutAddress).count() as f64);
    }

    /// Adds the changes since the earlier report.
    fn changes(&mut self, changes: &Changes, report: &Report) {
        let help = "When the cluster was read for the earlier report of the comparison.";
        self.set("compared_report_timestamp_seconds", help, &[], seconds(changes.since));
        let counts = changes.counts(report).into_iter().map(|(change, number)| (change.to_string(), number));
        let others = [("gone", changes.gone.len()), ("not_checked", changes.not_checked.len())];
        let others = others.map(|(change, number)| (change.to_owned(), number));
        for (change, number) in counts.chain(others) {
            let help = "Findings by change since the earlier report.";
            self.set("findings_changed", help, &[("change", change.as_str())], number as f64);
        }
    }

    /// Adds the usage of pools. The states of a pool add up to its size.
    fn pools(&mut self, list: &PoolList) {
        for view in &list.pools {
            let cidr = view.cidr.to_string();
            let pool = [("ippool", view.name.as_str()), ("cidr", cidr.as_str())];
            self.set("ippool_size", "Addresses of the pool.", &pool, number(view.total));
            self.set("ippool_blocks", "Blocks in the pool.", &pool, view.blocks as f64);
            let help = "1 if Calico allocates from the pool, otherwise 0.";
            self.set("ippool_enabled", help, &pool, f64::from(u8::from(view.enabled)));
            if let Some(count) = view.by_name.or(view.allocatable) {
                let help = "Free addresses that the nodes can get now; absent if that is not known.";
                self.set("ippool_allocatable", help, &pool, number(count));
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
                self.set("ippool_addresses", "Addresses of the pool by state.", &labels, number(count));
            }
        }
    }

    /// Adds the counters of pools, and the time until an enabled pool is exhausted.
    fn trends(&mut self, trends: &Trends, list: &PoolList) {
        let [assigned, released, exhaustion] =
            ["ippool_assigned_total", "ippool_released_total", "ippool_exhaustion_seconds"];
        self.declare(assigned, "counter", "Addresses of the pool that were assigned since the start.");
        self.declare(released, "counter", "Addresses of the pool that were released since the start.");
        let help = "Seconds until nodes get no more addresses from the pool, at the rate of the last day; absent for an hour \
                    after the start.";
        self.declare(exhaustion, "gauge", help);
        for view in &list.pools {
            let Some(trend) = trends.of(view.cidr) else { continue };
            let cidr = view.cidr.to_string();
            let pool = [("ippool", view.name.as_str()), ("cidr", cidr.as_str())];
            self.put(assigned, &pool, trend.assigned as f64);
            self.put(released, &pool, trend.released as f64);
            let free = view.by_name.or(view.allocatable).unwrap_or(view.free);
            let Some(forecast) = trend.forecast(free.0).filter(|_| view.enabled) else { continue };
            for (bound, seconds) in [
                ("earliest", forecast.earliest),
                ("expected", forecast.expected),
                ("latest", forecast.latest),
            ] {
                self.put(exhaustion, &[pool[0], pool[1], ("bound", bound)], seconds);
            }
        }
    }

    fn nodes(&mut self, snapshot: &Snapshot) {
        for view in views::nodes(snapshot).nodes {
            let node = [("node", view.node.as_str())];
            self.set("node_blocks", "Blocks that the node owns.", &node, f64::from(view.blocks));
            let help = "Addresses recorded for the node, in its own blocks and in others.";
            self.set("node_allocations_in_use", help, &node, f64::from(view.addresses));
            let help = "Addresses recorded for the node in blocks that it does not own.";
            self.set("node_allocations_borrowed", help, &node, f64::from(view.borrowed));
        }
    }
}

/// Escapes the value of a label for the text format and for terminals.
fn escape(value: &str) -> String {
    crate::render::text::escape(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Converts to a double, like all metric values: large IPv6 pools are rounded.
fn number(count: Count) -> f64 {
    count.0 as f64
}
