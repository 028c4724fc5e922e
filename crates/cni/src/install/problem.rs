//! Errors of the installer, with hints.

use std::io;
use std::path::Path;

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// The text of an error, with a hint on a line of its own if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Problem(String);

impl Problem {
    pub(super) fn new(what: String) -> Self {
        Self(what)
    }

    pub(super) fn hint(self, hint: &str) -> Self {
        Self(format!("{self}\nhint: {hint}"))
    }
}

/// Returns a function for `map_err` that describes a failed file operation.
pub(super) fn cannot(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Problem {
    let what = format!("cannot {doing} {}", path.display());
    move |error| Problem::new(format!("{what}: {error}"))
}
