//! The report of a check in formats for monitoring (Prometheus), tests (JUnit), browsers (HTML), calicoctl and
//! `--ignore`, and as a list of names. This module only converts the report, and decides nothing.

mod calicoctl;
pub(crate) mod changes;
pub(super) mod junit;
pub(super) mod page;
pub(super) mod prometheus;

use std::io::{self, Write};
use std::time::Duration;

use calipam_check::{Changes, Code, Report};
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::check;
use super::document::{Document, unsupported};
use super::findings::{Found, WithFindings, write_ignore_file, write_names};
use super::page::Text;
use crate::format::Format;

pub(crate) use self::calicoctl::write as write_calicoctl;
pub(crate) use self::page::{with_notice as page_with_notice, write_live as write_live_page};
pub(crate) use self::prometheus::{RunMetrics, write_report as write_report_metrics};

/// A finished check.
pub(crate) struct Checked<'a> {
    pub report: &'a Report,
    /// The snapshot, since metrics and pages also show the usage of pools.
    pub snapshot: &'a Snapshot,
    /// The changes since an earlier report, if there is one to compare with.
    pub changes: Option<&'a Changes>,
    /// The time from the start of the command to the result.
    pub took: Duration,
    /// The exit code of the program.
    pub exit_code: u8,
}

impl Document for Checked<'_> {
    fn kind(&self) -> &'static str {
        "CheckReport"
    }

    fn text(&self, text: &mut Text) {
        check::text(self, text);
    }

    fn schema(&self) -> impl Serialize {
        WithFindings::of_report(self.report, self.changes)
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => write_names(&Found::all_of(&self.report.findings, None), out),
            Format::Prometheus => prometheus::write(self, out),
            Format::Junit => {
                let suite = [("calipam check", self.report, self.changes)];
                junit::write(suite.into_iter(), Code::of_one_cluster(), self.took, out)
            }
            Format::Html => page::write(self, out),
            Format::Ignore => write_ignore_file(&Found::all_of(&self.report.findings, None), out),
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}
