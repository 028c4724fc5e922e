//! The check options of `check` and `serve`.

use std::path::PathBuf;

use calipam_check::Code;
use clap::Args;
use clap::ValueHint::FilePath;
use jiff::SignedDuration;

use super::cni_config::CniConfigArgs;
use super::code::CodeParser;
use super::duration;
use super::selection::{SELECTION, SelectionArgs};
use super::writing::{CHECKING, RecheckArgs};

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
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
    /// Leave out findings of these rules; comma-separated or repeated
    #[arg(
        long = "skip-rule",
        value_name = "RULE",
        value_delimiter = ',',
        value_parser = CodeParser,
        hide_possible_values = true,
        help_heading = SELECTION
    )]
    pub skip_rules: Vec<Code>,
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Only findings about pods and services in this namespace
    #[arg(short, long, value_name = "NAMESPACE", help_heading = SELECTION)]
    pub namespace: Option<String>,
    /// The default, accepted for users who are used to kubectl.
    #[arg(
        short = 'A',
        long = "all-namespaces",
        hide = true,
        conflicts_with = "namespace"
    )]
    _all_namespaces: bool,
    /// Ignore the findings in this file, in the format of `check -o ignore`
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = SELECTION)]
    pub ignore: Option<PathBuf>,

    /// Ignore younger allocations [default: leakGracePeriod, else 15m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = CHECKING)]
    pub grace: Option<SignedDuration>,
    #[command(flatten)]
    pub recheck: RecheckArgs,
    /// Read again after this time, and report only what is found twice
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = CHECKING)]
    pub confirm: Option<SignedDuration>,
    /// Usage above which a pool is nearly full, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = calipam_check::DEFAULT_POOL_THRESHOLD,
        value_parser = percent,
        help_heading = CHECKING
    )]
    pub pool_threshold: f64,
    #[command(flatten)]
    pub cni_config: CniConfigArgs,
}

/// Parses a percentage, with or without the sign.
fn percent(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix('%').unwrap_or(text).trim();
    let number: f64 = text
        .parse()
        .map_err(|_| "expected a percentage such as `90`".to_owned())?;
    if (0.0..=100.0).contains(&number) {
        Ok(number)
    } else {
        Err("expected a number from 0 to 100".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!((percent("90"), percent("87.5%")), (Ok(90.0), Ok(87.5)));
        for bad in ["-1", "101", "", "many", "NaN"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
