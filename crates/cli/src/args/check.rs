//! Options of `check`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use calipam_check::{Code, Severity, UnknownCode};
use clap::ValueHint::{DirPath, FilePath};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum};
use jiff::Timestamp;

use super::check_options::CheckOptions;
use super::diff::time_with_zone;
use super::writing::CHECKING;
use super::{FleetArgs, PrintingArgs};
use crate::console::HINT;
use crate::format::Format;
use crate::hints;
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
    #[arg(long, value_name = "TIME", value_parser = time_with_zone, requires = "archive", conflicts_with_all = ["confirm", "watch"])]
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
    /// With --compare-with: print only new or worse findings, and exit with 1 only for those
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
        self.output_files.iter().any(|file| is_report(file) && file.path == report)
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
        let limit = match self {
            Self::Critical => Severity::Critical,
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Info => Severity::Info,
            Self::Never => return false,
        };
        worst.is_some_and(|worst| worst <= limit)
    }
}

/// A parser for rule names. Completion suggests all names, but an error suggests only a similar one.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeParser;

impl TypedValueParser for CodeParser {
    type Value = Code;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Code, clap::Error> {
        let name = value.to_string_lossy();
        name.to_lowercase().parse().map_err(|UnknownCode(lowercase)| {
            let unknown = UnknownCode(name.into_owned());
            let near = nearest(&lowercase);
            let option = arg.and_then(Arg::get_long).map(|name| format!("--{name}: ")).unwrap_or_default();
            let all = format!("{} lists all of them", hints::command_elsewhere(&["explain"]));
            let hint = near.map_or_else(|| all.clone(), |code| format!("did you mean `{code}`? {all}"));
            let message = format!("{option}{unknown}\n{HINT}hint:{HINT:#} {hint}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Code::ALL.iter().map(|code| PossibleValue::new(code.name()).help(code.summary()))))
    }
}

/// Returns the rule with the most similar name, if any name is similar.
fn nearest(text: &str) -> Option<Code> {
    calipam_workflow::nearest(text, Code::ALL.iter().map(|code| code.name()))?.parse().ok()
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

    #[test]
    fn a_misspelt_code_is_recognised() {
        assert_eq!(nearest("leaked"), Some(Code::LeakedAddress));
        assert_eq!(nearest("orphan-handel"), Some(Code::OrphanHandle));
        assert_eq!(nearest("weather"), None);
    }
}
