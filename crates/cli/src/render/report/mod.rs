//! The report of a check, in the formats that only a report has: for programs that watch (Prometheus) and test
//! (JUnit), and as a list of names. None of them decides anything: all of it is in the report.

mod calicoctl;
pub(crate) mod changes;
pub(super) mod junit;
pub(super) mod page;
pub(super) mod prometheus;

use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::{Changes, Report};
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::check;
use super::document::{Detail, Document, unsupported};
use super::findings::WithFindings;
use super::table::Page;
use super::text::escape;
use crate::format::Format;
use crate::ignore;

pub(crate) use self::calicoctl::write as write_calicoctl;
pub(crate) use self::page::{with_notice as page_with_notice, write_live as write_live_page};
pub(crate) use self::prometheus::{RunMetrics, write_report as write_report_metrics};

/// A check that came to an end.
pub(crate) struct Checked<'a> {
    pub report: &'a Report,
    /// What was checked: metrics and pages show how full the pools are as well.
    pub snapshot: &'a Snapshot,
    /// What has changed since an earlier report, if there is one to compare with.
    pub changes: Option<&'a Changes>,
    /// From the start of the command to the verdict.
    pub took: Duration,
    /// With which the program will end.
    pub exit_code: u8,
}

impl Document for Checked<'_> {
    fn kind(&self) -> &'static str {
        "CheckReport"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        check::text(self, detail, page, out)
    }

    fn schema(&self) -> impl Serialize {
        WithFindings::of_report(self.report, self.changes)
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => names(self.report, out),
            Format::Prometheus => prometheus::write(self, out),
            Format::Junit => junit::write(self, out),
            Format::Html => page::write(self, out),
            Format::Ignore => {
                self.report.findings.iter().try_for_each(|finding| writeln!(out, "{}", ignore::line(finding)))
            }
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}

/// The subjects, each once, in the order of the findings. Control characters of the datastore are escaped, so that a
/// subject stays on its line.
fn names(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut written = HashSet::new();
    for finding in &report.findings {
        if written.insert(&finding.subject) {
            let name = finding.subject.to_string();
            writeln!(out, "{}/{}", finding.subject.kind(), escape(&name))?;
        }
    }
    Ok(())
}
