//! Errors of the installer, with hints.

use std::fmt;
use std::io;
use std::path::Path;

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// An error, with a hint about what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

impl fmt::Display for Problem {
    /// Prints the error and, on a line of its own, the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl Problem {
    pub(super) fn new(what: String) -> Self {
        Self { what, hint: None }
    }

    pub(super) fn hint(self, hint: &str) -> Self {
        Self {
            hint: Some(hint.to_owned()),
            ..self
        }
    }
}

/// Returns a function for `map_err` that describes a failed file operation.
pub(super) fn cannot(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Problem {
    let what = format!("cannot {doing} {}", path.display());
    move |error| Problem::new(format!("{what}: {error}"))
}
