//! Metrics in the text format of Prometheus. `docs/reports.md` names them, and what kube-controllers calls the same.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::views::{self, Count};
use calipam_check::{Changes, Code, Report};
use calipam_model::snapshot::{Coverage, Snapshot};
use jiff::Timestamp;
use prometheus::{Encoder, Gauge, GaugeVec, Opts, Registry, TextEncoder};

use super::Checked;

/// The metrics of one run.
struct Metrics(Registry);

/// Writes what a check found, and how full pools and nodes are.
pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let run = RunMetrics { up: true, took: checked.took, exit_code: checked.exit_code };
    let metrics = Metrics(Registry::new());
    let gathered = metrics.run(&run).and_then(|()| metrics.report(checked));
    metrics.encode(gathered, out)
}

/// Writes the same without the metrics of the run.
pub(crate) fn write_report(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let metrics = Metrics(Registry::new());
    let gathered = metrics.report(checked);
    metrics.encode(gathered, out)
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunMetrics {
    /// The cluster could be read and judged.
    pub up: bool,
    pub took: Duration,
    pub exit_code: u8,
}

impl RunMetrics {
    /// Writes the metrics of a run that has just ended, so that an alert can tell one that failed from one that did not
    /// run; and when the last good one ended, where that is known.
    pub(crate) fn write(&self, last_good: Option<Timestamp>, out: &mut dyn Write) -> io::Result<()> {
        let metrics = Metrics(Registry::new());
        let help = "When the last check that succeeded ended, in seconds since 1970.";
        let name = "last_success_timestamp_seconds";
        let good = last_good.map_or(Ok(()), |at| metrics.gauge(name, help, seconds(at)));
        let gathered = good.and_then(|()| metrics.run(self));
        metrics.encode(gathered, out)
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

impl Metrics {
    fn encode(&self, gathered: prometheus::Result<()>, out: &mut dyn Write) -> io::Result<()> {
        let mut text = Vec::new();
        gathered
            .and_then(|()| TextEncoder::new().encode(&self.0.gather(), &mut text))
            .map_err(io::Error::other)?;
        out.write_all(&text)
    }

    /// When the run ended, how long it took, and how.
    fn run(&self, run: &RunMetrics) -> prometheus::Result<()> {
        self.gauge(
            "up",
            "1 where the last check could read and judge the cluster, else 0.",
            f64::from(u8::from(run.up)),
        )?;
        let now = seconds(Timestamp::now());
        self.gauge("last_run_timestamp_seconds", "When the last check ended, in seconds since 1970.", now)?;
        let took = run.took.as_secs_f64();
        self.gauge("last_run_duration_seconds", "How long the last check took.", took)?;
        let code = f64::from(run.exit_code);
        self.gauge("last_run_exit_code", "The exit code of the last check.", code)?;
        let build = self.vector("build_info", "The version of calipam; always 1.", &["version"])?;
        set(&build, &[env!("CARGO_PKG_VERSION")], 1.0)
    }

    /// Everything about the cluster.
    fn report(&self, checked: &Checked<'_>) -> prometheus::Result<()> {
        self.cluster(checked.report)?;
        self.findings(checked.report)?;
        if let Some(changes) = checked.changes {
            self.changes(changes, checked.report)?;
        }
        self.pools(checked.snapshot)?;
        self.nodes(checked.snapshot)
    }

    /// Which cluster was read, and how much of it.
    fn cluster(&self, report: &Report) -> prometheus::Result<()> {
        let labels = ["guid", "datastore", "calico_version"];
        let info = self.vector("cluster_info", "The cluster that was read; always 1.", &labels)?;
        let cluster = &report.cluster;
        set(&info, &[&cluster.guid, &cluster.datastore.to_string(), &cluster.calico_version], 1.0)?;

        let coverage = self.vector(
            "source_coverage",
            "How much was read of a source; always 1.",
            &["source", "coverage"],
        )?;
        for (source, read) in &report.coverage {
            let read = match read {
                Coverage::Read => "read",
                Coverage::Partial => "partial",
                Coverage::Skipped(_) => "skipped",
            };
            set(&coverage, &[&source.to_string(), read], 1.0)?;
        }

        let objects = self.vector("objects", "Objects that were read, by kind.", &["kind"])?;
        let counts = &report.counts;
        for (kind, number) in [
            ("block", counts.blocks),
            ("allocation", counts.allocations),
            ("affinity", counts.affinities),
            ("handle", counts.handles),
            ("pool", counts.pools),
            ("node", counts.nodes),
            ("endpoint", counts.endpoints),
            ("pod", counts.pods),
        ] {
            set(&objects, &[kind], number as f64)?;
        }
        Ok(())
    }

    /// Every code has a value, also where nothing was found, so that an alert sees it return to zero.
    fn findings(&self, report: &Report) -> prometheus::Result<()> {
        let mut numbers = BTreeMap::new();
        for code in Code::ALL {
            numbers.insert((*code, code.severity()), 0_u64);
        }
        for finding in &report.findings {
            *numbers.entry((finding.code, finding.severity)).or_default() += 1;
        }
        let findings = self.vector("findings", "Findings by code and severity.", &["code", "severity"])?;
        for ((code, severity), number) in numbers {
            set(&findings, &[code.name(), &severity.to_string()], number as f64)?;
        }
        let stranded = report.findings.iter().filter(|f| f.code == Code::StrandedAddresses);
        let stranded = stranded.flat_map(|f| &f.nodes).collect::<std::collections::BTreeSet<_>>().len();
        self.gauge("nodes_stranded", "Nodes that cannot get one more address.", stranded as f64)
    }

    /// What has changed since the report that this one was compared with.
    fn changes(&self, changes: &Changes, report: &Report) -> prometheus::Result<()> {
        let since = seconds(changes.since);
        let help = "When the cluster was read for the report that this one was compared with.";
        self.gauge("compared_report_timestamp_seconds", help, since)?;
        let help = "Findings by what became of them since the report that this one was compared with.";
        let changed = self.vector("findings_changed", help, &["change"])?;
        for (change, number) in changes.counts(report) {
            set(&changed, &[&change.to_string()], number as f64)?;
        }
        set(&changed, &["gone"], changes.gone.len() as f64)?;
        set(&changed, &["not_judged"], changes.not_judged.len() as f64)
    }

    /// How full the pools are. The states of one pool add up to its size.
    fn pools(&self, snapshot: &Snapshot) -> prometheus::Result<()> {
        let pool = ["ippool", "cidr"];
        let size = self.vector("ippool_size", "Addresses of the pool.", &pool)?;
        let state = ["ippool", "cidr", "state"];
        let addresses = self.vector("ippool_addresses", "Addresses of the pool by state.", &state)?;
        let help = "Free addresses that the nodes can get now; absent where that is not known.";
        let allocatable = self.vector("ippool_allocatable", help, &pool)?;
        let blocks = self.vector("ippool_blocks", "Blocks in the pool.", &pool)?;
        let enabled =
            self.vector("ippool_enabled", "1 where Calico allocates from the pool, else 0.", &pool)?;
        for view in views::pools(snapshot).pools {
            let cidr = view.cidr.to_string();
            let labels = [view.name.as_str(), &cidr];
            set(&size, &labels, number(view.total))?;
            set(&blocks, &labels, view.blocks as f64)?;
            set(&enabled, &labels, f64::from(u8::from(view.enabled)))?;
            if let Some(count) = view.allocatable {
                set(&allocatable, &labels, number(count))?;
            }
            for (state, count) in [
                ("in_use", view.in_use),
                ("cooling", view.cooling),
                ("windows_reserved", view.windows_reserved),
                ("reserved", view.reserved),
                ("unknown", view.unknown),
                ("free", view.free),
            ] {
                set(&addresses, &[labels[0], labels[1], state], number(count))?;
            }
        }
        Ok(())
    }

    fn nodes(&self, snapshot: &Snapshot) -> prometheus::Result<()> {
        let blocks = self.vector("node_blocks", "Blocks that the node owns.", &["node"])?;
        let help = "Addresses recorded for the node, in its own blocks and in others.";
        let in_use = self.vector("node_allocations_in_use", help, &["node"])?;
        let help = "Of these, addresses in blocks that are not the node's own.";
        let borrowed = self.vector("node_allocations_borrowed", help, &["node"])?;
        for view in views::nodes(snapshot).nodes {
            set(&blocks, &[&view.node], f64::from(view.blocks))?;
            set(&in_use, &[&view.node], f64::from(view.addresses))?;
            set(&borrowed, &[&view.node], f64::from(view.borrowed))?;
        }
        Ok(())
    }

    fn gauge(&self, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
        let gauge = Gauge::with_opts(options(name, help))?;
        gauge.set(value);
        self.0.register(Box::new(gauge))
    }

    fn vector(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        let vector = GaugeVec::new(options(name, help), labels)?;
        self.0.register(Box::new(vector.clone()))?;
        Ok(vector)
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("calipam")
}

fn set(vector: &GaugeVec, labels: &[&str], value: f64) -> prometheus::Result<()> {
    vector.get_metric_with_label_values(labels).map(|gauge| gauge.set(value))
}

/// Metrics are doubles: large IPv6 pools are rounded.
fn number(count: Count) -> f64 {
    count.0 as f64
}
