//! Reasons why a journal cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use calipam_model::hint::{Call, Hint};

use super::entry::FORMAT;

/// The reason why a journal cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("cannot write the journal {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
    #[error("cannot read the journal {}: {reason}", path.display())]
    Read { path: PathBuf, reason: String },
    /// The file does not begin like a journal.
    #[error("{} is not a calipam journal", path.display())]
    NoJournal { path: PathBuf },
    /// A different version of calipam wrote the journal.
    #[error("the journal {} has format {found}; this program reads format {FORMAT}", path.display())]
    OtherFormat { path: PathBuf, found: u32 },
    #[error("the run that is writing the journal {} has not ended", path.display())]
    Alive { path: PathBuf },
    /// A line, numbered from 1, has a fault.
    #[error("line {line} of the journal {}: {reason}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        reason: String,
    },
}

impl JournalError {
    /// Suggests how to go on after the error.
    pub fn hint(&self) -> Hint {
        match self {
            Self::Write { .. } => Hint::new(
                "nothing is written to the datastore without a journal: {}",
                [Call::JournalPlace],
            ),
            Self::Read { .. } | Self::NoJournal { .. } => {
                Hint::new("name the journal that the repair printed; {} lists the journals", [Call::elsewhere(["undo", "--list"])])
            }
            Self::Alive { .. } => "wait until it has ended, or stop it".into(),
            Self::OtherFormat { .. } => {
                "use the version of calipam that wrote it: `zstdcat JOURNAL | head -1` names it".into()
            }
            Self::Line { .. } => {
                "the file was changed after it was written, and a damaged journal cannot be undone: use an unchanged copy".into()
            }
        }
    }
}

impl JournalError {
    pub(crate) fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    pub(super) fn read(path: &Path, error: &io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}
