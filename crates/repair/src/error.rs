//! Errors that stop a repair.

use std::fmt;

use calipam_model::hint::{Call, Hint};

use crate::journal::JournalError;

/// The result of a part of a repair.
pub type Result<T, E = RepairError> = std::result::Result<T, E>;

/// The reason why a repair did not begin, or ended early. A single step that is abandoned is a
/// [`Conflict`](crate::Conflict) instead.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Datastore(#[from] calipam_datastore::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The plan or journal belongs to another cluster.
    #[error("the {what} was made for cluster {planned}, but the datastore holds cluster {found}")]
    OtherCluster {
        /// `plan` or `journal`.
        what: &'static str,
        /// The GUID in the plan or journal.
        planned: String,
        /// The GUID in the datastore.
        found: String,
    },
    /// A journal names an object that calipam never writes.
    #[error("the journal names {path:?}, which calipam never writes")]
    UnexpectedKey { path: String },
    /// The plan changes more objects than the operator agreed to.
    #[error("changes to {agreed} objects were confirmed, but the plan changes {planned}")]
    NotAgreed { agreed: usize, planned: usize },
    #[error("cannot {action} the datastore lock: {reason}")]
    Lock {
        action: LockAction,
        reason: Box<LockFailure>,
    },
}

impl RepairError {
    /// True if the datastore has not answered for as long as the run may wait.
    pub fn is_given_up(&self) -> bool {
        matches!(self, Self::Datastore(error) if error.is_given_up())
    }

    /// True if the run failed since the datastore did not answer, within the limit of a request or of the whole run.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Datastore(error) if error.is_unanswered())
    }

    /// Suggests how to go on after the error.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Datastore(error) => return error.hint(),
            Self::Journal(error) => error.hint(),
            Self::OtherCluster { .. } => Hint::new(
                "connect to the cluster that it was made for; {} prints the GUID",
                [Call::to(["show", "--configuration"])],
            ),
            Self::UnexpectedKey { .. } => "use an unchanged copy of the journal".into(),
            Self::NotAgreed { .. } => "retry, and confirm the new plan".into(),
            Self::Lock {
                action: LockAction::Restore,
                ..
            } => Hint::new(
                "{} unlocks it; while it is locked, no pod can start or stop",
                [Call::calicoctl(["datastore", "migrate", "unlock"])],
            ),
            Self::Lock { .. } => Hint::new(
                "wait for the other run; or run without the lock, since every write checks that nothing has changed: {}",
                [Call::again().without(&["lock"])],
            ),
        })
    }
}

/// An operation on the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    Take,
    Restore,
}

impl LockAction {
    pub(crate) fn failed(self, reason: LockFailure) -> RepairError {
        RepairError::Lock {
            action: self,
            reason: Box::new(reason),
        }
    }
}

impl fmt::Display for LockAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Take { "take" } else { "restore" })
    }
}

/// The reason why the lock cannot be taken or restored.
#[derive(Debug, thiserror::Error)]
pub enum LockFailure {
    #[error("there is no ClusterInformation")]
    NoInformation,
    #[error("{0}")]
    Undecodable(String),
    #[error("it is already locked, by another run or by a person")]
    Taken,
    #[error("it is not known whether it is locked now: {0}")]
    Unsure(calipam_datastore::Error),
    #[error("others keep changing ClusterInformation")]
    Contended,
    #[error(transparent)]
    GivenUp(RepairError),
}
