//! The report of a check in formats for monitoring (Prometheus), tests (JUnit), browsers (HTML), calicoctl and
//! `--ignore`, and as a list of names. This module only converts the report, and does not judge anything.

mod calicoctl;
pub(crate) mod changes;
pub(super) mod junit;
pub(super) mod page;
pub(super) mod prometheus;

use std::io::{self, Write};
use std::time::Duration;

use calipam_check::{Code, Report};
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use serde::{Serialize, Serializer};

use super::check;
use super::document::{Document, unsupported};
use super::findings::{Found, WithFindings, write_ignore_file, write_names};
use super::output::Text;
use crate::format::Format;

pub(crate) use self::calicoctl::write as write_calicoctl;
pub(crate) use self::page::write_live as write_live_page;
pub(crate) use self::prometheus::{RunMetrics, write_report as write_report_metrics};

/// A finished check.
pub(crate) struct Checked<'a> {
    pub report: &'a Report,
    /// The causes of the findings, and what helps.
    pub advice: &'a Advice,
    /// The checked snapshot. Metrics and pages also show the usage of its pools.
    pub snapshot: &'a Snapshot,
    /// The time from the start of the command to the result.
    pub took: Duration,
    /// The exit code of the program.
    pub exit_code: u8,
}

impl Serialize for Checked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WithFindings::of_report(self.report, self.advice).serialize(serializer)
    }
}

impl Document for Checked<'_> {
    const KIND: &'static str = "CheckReport";

    fn text(&self, out: &mut Text) {
        check::text(self.report, self.advice, self.snapshot, out);
    }

    /// Writes the report in a format for programs.
    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let findings = || Found::of_report(self.report).collect::<Vec<_>>();
        match format {
            Format::Name => write_names(&findings(), out),
            Format::Prometheus => prometheus::write(self, out),
            Format::Junit => {
                let suite = [("calipam check", self.report, self.advice)];
                junit::write(suite.into_iter(), Code::of_one_cluster(), self.took, out)
            }
            Format::Html => page::write(self, out),
            Format::Ignore => write_ignore_file(&findings(), out),
            // The common formats are not written here.
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}
