//! Options of `check` and `show` for tables and `--watch`.

use clap::Args;
use jiff::SignedDuration;

use super::duration;

/// The shortest interval, which limits the load on the datastore.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);

#[derive(Debug, Args)]
#[command(next_help_heading = "Printing")]
pub(crate) struct PrintingArgs {
    /// Print only the rows of the table, without header and notes
    #[arg(long)]
    pub no_headers: bool,
    /// Sort by this column, such as `free`, `"IN USE"`, or `-free` (descending)
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort_by: Option<String>,
    /// Print again when something changes; read at least this often
    #[arg(
        short = 'w',
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30s",
        value_parser = interval
    )]
    pub watch: Option<SignedDuration>,
}

pub(super) fn interval(text: &str) -> Result<SignedDuration, String> {
    match duration::parse(text)? {
        short if short < SHORTEST => Err("the shortest interval is `1s`".into()),
        interval => Ok(interval),
    }
}
