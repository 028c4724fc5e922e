//! Why a task failed, and what to do next.

use std::fmt;
use std::path::Path;

/// A failed task. Printed as `error: …`, followed by its hint where it has one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
}

impl Failure {
    /// What happened, to what.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// Something that was tried with a file or folder, and why it failed.
    pub(crate) fn io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::new(format!("cannot {what} {}: {error}", path.display()))
    }

    /// What to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Its text where the task continues anyway.
    pub(crate) fn as_warning(&self) -> String {
        self.to_string().replacen("error:", "warning:", 1)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_and_what_to_do() {
        let failure = Failure::new("no Go on this machine");
        assert_eq!(failure.to_string(), "error: no Go on this machine");
        assert_eq!(failure.hint("install it").to_string(), "error: no Go on this machine\nhint: install it");
    }
}
