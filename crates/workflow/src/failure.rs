//! The error of a command.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use calipam_model::hint::{Call, Hint};
use calipam_plan::split::SplitRefusal;
use calipam_plan::{FailedTrial, Refused};
use calipam_repair::RepairError;
use calipam_repair::journal::JournalError;

/// The error of a command. Nothing was written, unless a run has begun.
#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
    /// A suggestion for a fix.
    pub hint: Option<Hint>,
    pub form: FailureForm,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// The result of a command or of a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The form in which the error is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureForm {
    Labelled,
    /// Only the message, without a label.
    Plain,
    /// The error was printed when it happened.
    Already,
}

/// The kind of a failure, which is the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request names something that does not exist, or is refused.
    Refused = 1,
    /// The arguments or settings have to be changed.
    Usage = 2,
    /// Something cannot be read or written.
    Failed = 3,
    /// A bug in this program.
    Internal = 4,
    /// The user interrupted the program. Shells use 128 plus the signal number.
    Interrupted = 130,
}

impl Failure {
    /// Creates a failure without a hint and a cause.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            form: FailureForm::Labelled,
            cause: None,
        }
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Returns a function for `map_err` that converts an I/O error. `doing` is the failed action, such as `read` and a
    /// path.
    pub fn io(doing: impl Into<String>) -> impl Fn(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::new(Kind::Failed, format!("cannot {doing}: {error}"))
    }

    /// Like [`Self::io`], with a path.
    pub fn io_at(doing: &str, path: &Path) -> impl Fn(io::Error) -> Self {
        Self::io(format!("{doing} {}", path.display()))
    }

    /// The error for a command that needs a live datastore, but was given a file.
    pub fn not_live(what: &str) -> Self {
        Self::usage(format!("a file is never changed; {what} needs a live datastore"))
            .hint("connect to the cluster")
    }

    pub fn no_journal_directory() -> Self {
        Self::usage(
            "there is no place for journals: neither HOME nor XDG_STATE_HOME is an absolute path, and /var/lib/calipam \
             cannot be written",
        )
            .hint(Hint::new("{}", [Call::JournalPlace]))
    }

    /// The error when the operator does not agree.
    pub fn declined() -> Self {
        Self::refused("aborted; nothing was changed")
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<Hint>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Adds a hint if there is one. An earlier hint stays otherwise.
    #[must_use]
    pub fn hint_if(self, hint: Option<impl Into<Hint>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    #[must_use]
    pub fn form(self, form: FailureForm) -> Self {
        Self { form, ..self }
    }

    /// Returns the original library error, if it has this type.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.cause.as_ref()?.downcast_ref()
    }

    /// Wraps a library error.
    pub(crate) fn of(kind: Kind, error: impl Error + Send + Sync + 'static, hint: Option<Hint>) -> Self {
        let message = error.to_string();
        Self {
            kind,
            message,
            hint,
            form: FailureForm::Labelled,
            cause: Some(Box::new(error)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<calipam_datastore::Error> for Failure {
    /// Converts an error of the datastore.
    fn from(error: calipam_datastore::Error) -> Self {
        let kind = if error.is_usage() {
            Kind::Usage
        } else {
            Kind::Failed
        };
        let hint = error.hint();
        Self::of(kind, error, hint)
    }
}

impl From<calipam_files::Error> for Failure {
    fn from(error: calipam_files::Error) -> Self {
        calipam_datastore::Error::from(error).into()
    }
}

impl From<RepairError> for Failure {
    /// Converts an error of a repair.
    fn from(error: RepairError) -> Self {
        let kind = match error {
            RepairError::Datastore(error) => return error.into(),
            RepairError::Journal(_) | RepairError::Lock { .. } => Kind::Failed,
            // The plan or journal belongs to another cluster, is not calipam's, or exceeds the consent: no run was
            // begun.
            RepairError::OtherCluster { .. }
            | RepairError::UnexpectedKey { .. }
            | RepairError::NotAgreed { .. } => Kind::Refused,
        };
        let hint = error.hint();
        Self::of(kind, error, hint)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        RepairError::from(error).into()
    }
}

impl From<FailedTrial> for Failure {
    /// Reports a bug in the planner.
    fn from(error: FailedTrial) -> Self {
        Self::refused(format!("the plan was tried in memory and refused: {error}"))
            .hint("nothing was changed; retry, and report it if it happens again: this is a bug in calipam")
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let hint = refused.hint.clone();
        Self::of(Kind::Refused, refused, hint)
    }
}

impl From<SplitRefusal> for Failure {
    fn from(refusal: SplitRefusal) -> Self {
        let hint = Refused::from(refusal.clone()).hint;
        Self::of(Kind::Refused, refusal, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_does_not_exist_leaves_the_earlier_one() {
        let failure = Failure::usage("no").hint("earlier");
        assert_eq!(failure.hint_if(None::<Hint>).hint, Some("earlier".into()));
    }
}
