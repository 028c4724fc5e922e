//! What the checks have left to be served.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::format::Format;
use crate::render::document;
use crate::render::report::{Checked, RunMetrics, page_with_notice, write_live_page, write_report_metrics};
use crate::render::table::Page;

/// What the last check left, and the last good one.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// Of the last check: that it succeeded or not, and with it all metrics of the last good one.
    pub metrics: Bytes,
    /// The page of the last good check; where a later one failed, it says so.
    pub page: Bytes,
    pub good: Option<Good>,
    /// Another text for each page: when its cluster was read, and whether a later check has failed. The page's script knows its own.
    pub version: String,
    /// Why no check has succeeded so far; `None` where the first one is under way.
    pub failure: Option<String>,
}

/// What a check that succeeded left.
#[derive(Clone, Debug)]
pub(super) struct Good {
    /// When the check ended.
    pub at: Timestamp,
    ended: Instant,
    pub took: Duration,
    /// How much was found, in words.
    pub summary: String,
    pub json: Bytes,
    /// What was checked, for questions.
    pub snapshot: Arc<Snapshot>,
    exit_code: u8,
    metrics: Bytes,
    page: Bytes,
}

impl Good {
    pub(super) fn new(checked: &Checked<'_>, summary: String, snapshot: Arc<Snapshot>) -> io::Result<Self> {
        let (mut json, mut page, mut metrics) = (Vec::new(), Vec::new(), Vec::new());
        document::write(checked, Format::Json, Page::default(), &mut json)?;
        write_live_page(checked, &mut page)?;
        write_report_metrics(checked, &mut metrics)?;
        Ok(Self {
            json: json.into(),
            page: page.into(),
            metrics: metrics.into(),
            snapshot,
            at: Timestamp::now(),
            ended: Instant::now(),
            took: checked.took,
            exit_code: checked.exit_code,
            summary,
        })
    }

    /// How long ago the check ended.
    pub(super) fn age(&self) -> Duration {
        self.ended.elapsed()
    }
}

impl Served {
    /// True before the first check has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// What is served after a check that succeeded.
    pub(super) fn good(good: Good) -> Self {
        let run = RunMetrics { up: true, took: good.took, exit_code: good.exit_code };
        Self {
            metrics: metrics(&run, Some(&good)),
            page: good.page.clone(),
            version: good.snapshot.taken_at.to_string(),
            good: Some(good),
            failure: None,
        }
    }

    /// What is served after a check that failed: the report of the last good one, and that it is old.
    pub(super) fn failed(&self, message: &str, exit_code: u8, took: Duration) -> Self {
        let run = RunMetrics { up: false, took, exit_code };
        let page = self.good.as_ref().map_or_else(Bytes::new, |good| {
            let notice = format!(
                "The last check, which ended at {}, failed: {message}. This is the report of {}.",
                Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC"),
                good.at.strftime("%Y-%m-%d %H:%M:%S UTC")
            );
            page_with_notice(&good.page, &notice).into()
        });
        let failure = self.good.is_none().then(|| message.to_owned());
        let read = self.good.as_ref().map(|good| good.snapshot.taken_at.to_string());
        let version = format!("{} failed", read.unwrap_or_default());
        Self { metrics: metrics(&run, self.good.as_ref()), page, good: self.good.clone(), version, failure }
    }
}

/// The metrics of a run, and those of the last good report.
fn metrics(run: &RunMetrics, good: Option<&Good>) -> Bytes {
    let mut text = Vec::new();
    // Writing into memory does not fail, and the names of the metrics are constants.
    let _ = run.write(good.map(|good| good.at), &mut text);
    text.extend_from_slice(good.map_or(b"", |good| &good.metrics));
    text.into()
}
