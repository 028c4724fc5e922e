//! Options of `check`.

use std::ffi::OsStr;
use std::path::PathBuf;

use calipam_check::{Code, Severity, UnknownCode};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum, ValueHint};
use jiff::SignedDuration;

use super::duration;
use super::writing::SettleArgs;
use crate::hints;
use crate::output::HINT;
use crate::output_file::OutputFile;

const SELECTION: &str = "Selection";
const JUDGEMENT: &str = "Judgement";
const REPORTS: &str = "Reports";

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Only findings of these rules; comma-separated or repeated
    #[arg(
        long = "rule",
        value_name = "RULE",
        value_delimiter = ',',
        value_parser = CodeParser,
        hide_possible_values = true,
        help_heading = SELECTION
    )]
    pub rules: Vec<Code>,
    /// No findings of these rules; comma-separated or repeated
    #[arg(
        long = "skip-rule",
        value_name = "RULE",
        value_delimiter = ',',
        value_parser = CodeParser,
        hide_possible_values = true,
        help_heading = SELECTION
    )]
    pub skip_rules: Vec<Code>,
    /// List all rules, and read nothing
    #[arg(long, help_heading = SELECTION)]
    pub list_rules: bool,
    /// Only what concerns this node; can be repeated; `*` and `?` stand for other characters
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',', help_heading = SELECTION)]
    pub nodes: Vec<String>,
    /// Only what belongs to a pod or service in this namespace
    #[arg(short, long, value_name = "NAMESPACE", help_heading = SELECTION)]
    pub namespace: Option<String>,
    /// Only what lies in this pool, by name or CIDR; can be repeated
    #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', help_heading = SELECTION)]
    pub pools: Vec<String>,
    /// `-o wide`, as calicoctl spells it.
    #[arg(long, hide = true)]
    pub show_problem_ips: bool,
    /// Leave out the findings that this file lists: lines of `RULE SUBJECT`, which may end with `until 2027-01-31`,
    /// and comments after `#`; `-o ignore` prints such lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SELECTION)]
    pub ignore: Option<PathBuf>,

    /// Exit with 1 from this severity on
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "SEVERITY",
        help_heading = JUDGEMENT
    )]
    pub fail_on: FailOn,
    /// Do not judge allocations younger than this [default: the cluster's leakGracePeriod, else 15m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = JUDGEMENT)]
    pub grace: Option<SignedDuration>,
    /// When to look again.
    #[command(flatten)]
    pub settling: SettleArgs,
    /// Repeat the whole read after this time, and keep what was found both times
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = JUDGEMENT)]
    pub confirm: Option<SignedDuration>,
    /// A pool is nearly full above this share of its addresses, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = calipam_check::DEFAULT_POOL_THRESHOLD,
        value_parser = percent,
        help_heading = JUDGEMENT
    )]
    pub pool_threshold: f64,

    /// Write the report into a file as well; can be repeated, so that one read serves people and programs
    #[arg(
        long = "output-file",
        value_name = "FORMAT=PATH",
        value_parser = OutputFile::parse,
        value_hint = ValueHint::FilePath,
        conflicts_with = "list_rules",
        help_heading = REPORTS
    )]
    pub output_files: Vec<OutputFile>,
}

/// From which severity on the exit code is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Traffic is or will be broken
    Critical,
    /// Capacity is lost, or Calico may trip over a structure
    Error,
    /// Drift
    #[default]
    Warning,
    /// Good to know
    Info,
    /// Never exit with 1
    Never,
}

impl FailOn {
    /// True where the worst finding asks for exit code 1.
    pub fn fails(self, worst: Option<Severity>) -> bool {
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

/// Reads the name of a rule. Completion suggests all of them; an error names only those that are near.
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

/// The rule that was meant, as far as one is near.
fn nearest(text: &str) -> Option<Code> {
    let part = |code: &&Code| text.len() > 3 && code.name().contains(text);
    let all = Code::ALL.iter();
    all.clone().find(part).copied().or_else(|| {
        let near = all.map(|code| (distance(text, code.name()), *code)).min();
        near.filter(|(distance, _)| *distance <= 3).map(|(_, code)| code)
    })
}

/// Letters to change, add or take away to get from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn percent(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix('%').unwrap_or(text).trim();
    let number: f64 = text.parse().map_err(|_| "expected a number of percent such as `90`".to_owned())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("expected a number from 0 to 100".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_the_worst_finding() {
        assert!(
            FailOn::Warning.fails(Some(Severity::Critical)) && FailOn::Warning.fails(Some(Severity::Warning))
        );
        assert!(!FailOn::Warning.fails(Some(Severity::Info)) && FailOn::Info.fails(Some(Severity::Info)));
        assert!(!FailOn::Critical.fails(Some(Severity::Error)) && FailOn::Error.fails(Some(Severity::Error)));
        assert!(!FailOn::Never.fails(Some(Severity::Critical)) && !FailOn::Info.fails(None));
    }

    #[test]
    fn a_misspelt_code_is_recognised() {
        assert_eq!(nearest("leaked"), Some(Code::LeakedAddress));
        assert_eq!(nearest("orphan-handel"), Some(Code::OrphanHandle));
        assert_eq!(nearest("weather"), None);
        assert_eq!((distance("", "abc"), distance("abc", "abd"), distance("abc", "")), (3, 1, 3));
    }

    #[test]
    fn percentages() {
        assert_eq!((percent("90"), percent("87.5%")), (Ok(90.0), Ok(87.5)));
        for bad in ["-1", "101", "", "many", "NaN"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
