//! Options of `check`.

use std::path::{Path, PathBuf};

use calipam_check::Severity;
use clap::ValueHint::{DirPath, FilePath};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::check_options::CheckOptions;
use super::moment::moment;
use super::writing::CHECKING;
use super::{FleetArgs, PrintingArgs};
use crate::format::Format;
use crate::output_file::OutputFile;

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub options: CheckOptions,
    /// Exit with 1 from this severity up, or `never`
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "SEVERITY",
        hide_possible_values = true,
        help_heading = CHECKING
    )]
    pub fail_on: FailOn,
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten, next_help_heading = "Reports")]
    pub reports: ReportArgs,
    #[command(flatten)]
    pub printing: PrintingArgs,
}

/// Earlier reports and states, and files for reports.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Show when leaked addresses were last used, from exports in DIR
    #[arg(long, value_name = "DIR", value_hint = DirPath)]
    pub archive: Option<PathBuf>,
    /// Check the state at this time, from the --archive folder
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "archive", conflicts_with_all = ["confirm", "watch"])]
    pub at: Option<Timestamp>,
    /// Also write the report to a file; can be repeated
    #[arg(long = "output-file", value_name = "FORMAT=PATH", value_parser = OutputFile::parse, value_hint = FilePath)]
    pub output_files: Vec<OutputFile>,
    /// Also write the report that `calicoctl ipam check --output` writes
    #[arg(long, value_name = "FILE", value_hint = FilePath)]
    pub report: Option<PathBuf>,
    /// Show what is new and gone since this report (JSON or YAML); the file may be missing if --output-file writes it
    #[arg(long, value_name = "REPORT", value_hint = FilePath)]
    pub compare_with: Option<PathBuf>,
    /// With --compare-with: print and fail on new or worse findings only
    #[arg(long, requires = "compare_with")]
    pub only_new: bool,
    /// With --compare-with: exit with 1 only for new or worse findings
    #[arg(long, requires = "compare_with")]
    pub fail_on_new: bool,
}

impl ReportArgs {
    /// True if `--output-file` writes this report, so that the next call can compare with it.
    pub(crate) fn writes(&self, report: &Path) -> bool {
        let is_report = |file: &OutputFile| matches!(file.format, Format::Json | Format::Yaml);
        self.output_files
            .iter()
            .any(|file| is_report(file) && file.path == report)
    }
}

/// The lowest severity that leads to exit code 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Traffic is or will be broken
    Critical,
    /// Capacity is lost, or Calico can fail on the data
    Error,
    /// Inconsistent data
    #[default]
    Warning,
    /// Informational
    Info,
    /// Never exit with 1
    Never,
}

impl FailOn {
    /// True if the most severe finding requires exit code 1.
    pub(crate) fn fails(self, worst: Option<Severity>) -> bool {
        let (Some(limit), Some(worst)) = (self.severity(), worst) else {
            return false;
        };
        // The most severe finding is the least in the order of severities.
        worst <= limit
    }

    /// Returns the lowest severity that requires exit code 1; `None` if none does.
    fn severity(self) -> Option<Severity> {
        match self {
            Self::Critical => Some(Severity::Critical),
            Self::Error => Some(Severity::Error),
            Self::Warning => Some(Severity::Warning),
            Self::Info => Some(Severity::Info),
            Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_the_worst_finding() {
        assert!(FailOn::Warning.fails(Some(Severity::Critical)));
        assert!(FailOn::Warning.fails(Some(Severity::Warning)));
        assert!(!FailOn::Warning.fails(Some(Severity::Info)) && FailOn::Info.fails(Some(Severity::Info)));
        assert!(!FailOn::Critical.fails(Some(Severity::Error)) && FailOn::Error.fails(Some(Severity::Error)));
        assert!(!FailOn::Never.fails(Some(Severity::Critical)) && !FailOn::Info.fails(None));
    }
}
