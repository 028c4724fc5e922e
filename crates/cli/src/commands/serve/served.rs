//! What the checks have left to be served.

use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use calipam_check::Report;
use calipam_history::trend::Trends;
use calipam_model::snapshot::Snapshot;
use calipam_workflow::{LiveCounts, SharedSnapshot};
use jiff::Timestamp;

use crate::exit::{self, Failure, Outcome};
use crate::format::Format;
use crate::render::document;
use crate::render::page::Page;
use crate::render::report::{Checked, RunMetrics, page_with_notice, write_live_page, write_report_metrics};

/// What the last check left, and the last good one.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// How the last check ended; `None` before the first one has.
    run: Option<RunMetrics>,
    pub good: Option<Arc<Good>>,
    /// Another text for each page: when its cluster was read, and whether a later check has failed. The page's script knows its own.
    pub version: String,
    /// Why the last check failed, and when it ended.
    failure: Option<(String, Timestamp)>,
}

/// What a check that succeeded left. Its texts are written when they are asked for first.
#[derive(Debug)]
pub(super) struct Good {
    /// When the check ended.
    pub at: Timestamp,
    ended: Instant,
    pub took: Duration,
    pub report: Report,
    /// What was checked. If the cluster is followed, it may be later.
    pub snapshot: SharedSnapshot,
    /// What was done to follow the cluster, if it is.
    pub counts: Option<LiveCounts>,
    /// What becomes of the pools, where the cluster is followed.
    trends: Option<Trends>,
    json: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
    metrics: OnceLock<Bytes>,
}

/// A text of the last good check, or of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Json,
    /// Where a later check has failed, it says so.
    Page,
    /// That the last check succeeded or not, and with it all metrics of the last good one.
    Metrics,
}

impl Good {
    pub(super) fn new(
        report: Report,
        snapshot: SharedSnapshot,
        took: Duration,
        counts: Option<LiveCounts>,
        trends: Option<Trends>,
    ) -> Self {
        let (at, ended) = (Timestamp::now(), Instant::now());
        let (json, page, metrics) = Default::default();
        Self { at, ended, took, report, snapshot, counts, trends, json, page, metrics }
    }

    /// How long ago the check ended.
    pub(super) fn age(&self) -> Duration {
        self.ended.elapsed()
    }

    pub(super) fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text, written now where it has not been yet.
    fn text(&self, text: Text) -> io::Result<&Bytes> {
        let place = match text {
            Text::Json => &self.json,
            Text::Page => &self.page,
            Text::Metrics => &self.metrics,
        };
        if let Some(written) = place.get() {
            return Ok(written);
        }
        let snapshot = self.snapshot();
        let checked = Checked {
            report: &self.report,
            snapshot: &snapshot,
            changes: None,
            took: self.took,
            exit_code: exit::code(&Ok(Outcome::Clean)),
        };
        let mut out = Vec::new();
        match text {
            Text::Json => document::write(&checked, Format::Json, Page::default(), &mut out)?,
            Text::Page => write_live_page(&checked, &mut out)?,
            Text::Metrics => write_report_metrics(&checked, self.trends.as_ref(), &mut out)?,
        }
        Ok(place.get_or_init(|| out.into()))
    }
}

impl Served {
    /// True before the first check has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.run.is_none()
    }

    /// What is served after a check that succeeded.
    pub(super) fn good(good: Good) -> Self {
        let run = RunMetrics {
            up: true,
            took: good.took,
            exit_code: exit::code(&Ok(Outcome::Clean)),
            live: good.counts,
        };
        let version = good.report.cluster.taken_at.to_string();
        Self { run: Some(run), version, good: Some(Arc::new(good)), ..Self::default() }
    }

    /// What is served after a check that failed: the report of the last good one, and that it is old.
    pub(super) fn failed(&self, failure: &Failure, took: Duration) -> Self {
        let live = self.good.as_ref().and_then(|good| good.counts);
        let run = RunMetrics { up: false, took, exit_code: failure.kind as u8, live };
        let read = self.good.as_ref().map(|good| good.report.cluster.taken_at.to_string());
        let version = format!("{} failed", read.unwrap_or_default());
        let failure = Some((failure.message.clone(), Timestamp::now()));
        Self { run: Some(run), good: self.good.clone(), version, failure }
    }

    /// Why no check has succeeded so far; `None` if one has, and where the first one is under way.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_ref().filter(|_| self.good.is_none()).map(|(message, _)| message.as_str())
    }

    /// A text, which may take its time; `None` if there is nothing to write it of yet.
    pub(super) fn text(&self, text: Text) -> io::Result<Option<Bytes>> {
        let of_good = self.good.as_ref().map(|good| good.text(text)).transpose()?;
        match (text, &self.run, of_good) {
            (Text::Metrics, Some(run), of_good) => {
                let mut metrics = Vec::new();
                run.write(self.good.as_ref().map(|good| good.at), &mut metrics)?;
                metrics.extend_from_slice(of_good.map_or(b"", |text| text));
                Ok(Some(metrics.into()))
            }
            (Text::Page, _, Some(page)) => Ok(Some(match (&self.failure, &self.good) {
                (Some((message, ended)), Some(good)) => {
                    let [ended, read] = [*ended, good.at].map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC"));
                    let notice = format!(
                        "The last check, which ended at {ended}, failed: {message}. This is the report of {read}."
                    );
                    page_with_notice(page, &notice).into()
                }
                _ => page.clone(),
            })),
            (_, _, of_good) => Ok(of_good.cloned()),
        }
    }
}
