//! Options of `record`.

use std::path::PathBuf;

use calipam_history::keep::Keep;
use clap::Args;
use clap::ValueHint::DirPath;

/// Options of `record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The folder to record in
    #[arg(value_name = "DIR", value_hint = DirPath)]
    pub folder: PathBuf,
    /// Full states to keep, with the changes after them, and up to which age, such as
    /// `24h:all,30d:daily,1y:monthly`
    #[arg(long, value_name = "RULES")]
    pub keep: Option<Keep>,
}
