//! The check results that are served.

use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use calipam_check::Report;
use calipam_history::trend::Trends;
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use calipam_workflow::{LiveCounts, SharedSnapshot};
use jiff::Timestamp;

use crate::exit::{self, Failure, Outcome};
use crate::format::Format;
use crate::render::page::Page;
use crate::render::report::{Checked, RunMetrics, write_live_page, write_report_metrics};
use crate::render::text::utc;
use crate::render::{document, html};

/// The results of the last check and of the last successful one.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// The metrics of the last check; `None` before the end of the first one.
    run: Option<RunMetrics>,
    /// The last successful check.
    pub success: Option<Arc<Success>>,
    /// The version of the page: that of the last successful check, followed by `failed` after a failed check. The
    /// page's script compares it with the version that the browser shows.
    pub version: String,
    /// The message and time of the last check, if it failed.
    failure: Option<(String, Timestamp)>,
}

/// The result of a successful check. Its documents are formatted when they are first requested.
#[derive(Debug)]
pub(super) struct Success {
    /// The end of the check.
    pub at: Timestamp,
    ended: Instant,
    pub took: Duration,
    pub report: Report,
    pub advice: Advice,
    /// The checked data, or later data of a followed cluster.
    pub snapshot: SharedSnapshot,
    /// The counters of a followed cluster.
    pub counts: Option<LiveCounts>,
    /// The trends of the pools of a followed cluster.
    trends: Option<Trends>,
    /// The documents, each at the place of its `Text`.
    texts: [OnceLock<Bytes>; TEXTS],
}

/// A served document about the last successful check, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Json,
    /// The page, with a notice if a later check has failed.
    Page,
    /// The run metrics of the last check, and the report metrics of the last successful one.
    Metrics,
}

/// The number of documents: `Metrics` is the last one.
const TEXTS: usize = Text::Metrics as usize + 1;

impl Success {
    /// Keeps the result of a check, with the time at which it ended.
    pub(super) fn new(
        report: Report,
        advice: Advice,
        snapshot: SharedSnapshot,
        took: Duration,
        counts: Option<LiveCounts>,
        trends: Option<Trends>,
    ) -> Self {
        let at = Timestamp::now();
        let ended = Instant::now();
        Self {
            at,
            ended,
            took,
            report,
            advice,
            snapshot,
            counts,
            trends,
            texts: Default::default(),
        }
    }

    /// Returns the version of the page, which no other result has.
    fn version(&self) -> String {
        self.at.to_string()
    }

    /// Returns the time since the end of the check.
    pub(super) fn age(&self) -> Duration {
        self.ended.elapsed()
    }

    pub(super) fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a document of this check, which is formatted when it is first requested, and kept for later requests.
    fn text(&self, text: Text) -> io::Result<&Bytes> {
        let cached = &self.texts[text as usize];
        if let Some(written) = cached.get() {
            return Ok(written);
        }
        let snapshot = self.snapshot();
        let checked = Checked {
            report: &self.report,
            advice: &self.advice,
            snapshot: &snapshot,
            took: self.took,
            exit_code: exit::code(&Ok(Outcome::Clean)),
        };
        let mut out = Vec::new();
        match text {
            Text::Json => document::write(&checked, Format::Json, Page::default(), &mut out)?,
            Text::Page => write_live_page(&checked, &self.version(), &mut out)?,
            Text::Metrics => write_report_metrics(&checked, self.trends.as_ref(), &mut out)?,
        }
        Ok(cached.get_or_init(|| out.into()))
    }
}

impl Served {
    /// True before the end of the first check.
    pub(super) fn is_empty(&self) -> bool {
        self.run.is_none()
    }

    /// Creates the state after a successful check.
    pub(super) fn succeeded(success: Success) -> Self {
        let run = RunMetrics {
            up: true,
            took: success.took,
            exit_code: exit::code(&Ok(Outcome::Clean)),
            live: success.counts,
        };
        let version = success.version();
        Self {
            run: Some(run),
            version,
            success: Some(Arc::new(success)),
            ..Self::default()
        }
    }

    /// Creates the state after a failed check: the last report of a successful check, and a notice that this report is
    /// old.
    pub(super) fn failed(&self, failure: &Failure, took: Duration) -> Self {
        let live = self.success.as_ref().and_then(|success| success.counts);
        let run = RunMetrics {
            up: false,
            took,
            exit_code: failure.kind as u8,
            live,
        };
        let last_version = match &self.success {
            Some(success) => success.version(),
            None => String::new(),
        };
        let version = format!("{last_version} failed");
        let failure = Some((failure.message.clone(), Timestamp::now()));
        Self {
            run: Some(run),
            success: self.success.clone(),
            version,
            failure,
        }
    }

    /// Returns the failure of the last check, if no check has succeeded yet.
    pub(super) fn failure(&self) -> Option<&str> {
        match (&self.failure, &self.success) {
            (Some((message, _)), None) => Some(message),
            _ => None,
        }
    }

    /// Returns a document of the last successful check, which can take a while to format; `None` before the first
    /// result. The metrics also tell about the last run, and the page about its failure.
    pub(super) fn text(&self, text: Text) -> io::Result<Option<Bytes>> {
        let Some(success) = &self.success else {
            return match text {
                Text::Metrics => self.metrics(None),
                Text::Json | Text::Page => Ok(None),
            };
        };
        let document = success.text(text)?;
        match text {
            Text::Json => Ok(Some(document.clone())),
            Text::Page => Ok(Some(self.page(document, success))),
            Text::Metrics => self.metrics(Some(document)),
        }
    }

    /// Returns the metrics of the last run, then those of the last successful check; `None` before the first run.
    fn metrics(&self, of_report: Option<&Bytes>) -> io::Result<Option<Bytes>> {
        let Some(run) = &self.run else {
            return Ok(None);
        };
        let mut metrics = Vec::new();
        run.write(self.success.as_ref().map(|success| success.at), &mut metrics)?;
        if let Some(of_report) = of_report {
            metrics.extend_from_slice(of_report);
        }
        Ok(Some(metrics.into()))
    }

    /// Adds a notice to the page of the last successful check, if a later check has failed.
    fn page(&self, page: &Bytes, success: &Success) -> Bytes {
        let Some((message, ended)) = &self.failure else {
            return page.clone();
        };
        let ended = utc(*ended);
        let reported = utc(success.at);
        let notice = format!(
            "The last check, which ended at {ended}, failed: {message}. This is the report of {reported}."
        );
        html::with_failure(page, &notice).into()
    }
}
