//! Errors of the installer, with hints.

use std::fmt;
use std::io;
use std::path::Path;

pub(super) type Result<T> = std::result::Result<T, Problem>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    what: String,
    hint: &'static str,
}

impl Problem {
    pub(super) fn new(what: String) -> Self {
        Self { what, hint: "" }
    }

    pub(super) fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", self.hint) }
    }
}

impl std::error::Error for Problem {}

/// Returns a function for `map_err` that describes a failed file operation.
pub(super) fn cannot(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Problem {
    let what = format!("cannot {doing} {}", path.display());
    move |error| Problem::new(format!("{what}: {error}"))
}
