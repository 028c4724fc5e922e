//! The failure of a task, with an optional hint.

use std::fmt;
use std::path::Path;

/// A failed task. Displayed as `error: …`, followed by its hint if it has one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Creates a failure. The message says what failed, and for which object.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// Creates the failure of an operation on a file or folder. `act` names the operation, such as `read`.
    pub(crate) fn io(act: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::new(format!("cannot {act} {}: {error}", path.display()))
    }

    /// Adds a hint: what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the text as a warning, for a task that continues despite the failure.
    pub(crate) fn as_warning(&self) -> String {
        self.to_string().replacen("error:", "warning:", 1)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
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
        assert_eq!(
            failure.hint("install it").to_string(),
            "error: no Go on this machine\nhint: install it"
        );
    }
}
