//! Why a repair does not begin, or ends early.

use calipam_model::hint::{Call, Hint};

use crate::journal::JournalError;
use crate::lock::{LockAction, LockFailure};

/// Why a repair did not begin, or ended early. What single steps met is not an error but a
/// [`Conflict`](crate::Conflict).
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The datastore cannot be read or written.
    #[error(transparent)]
    Datastore(#[from] calipam_datastore::Error),
    /// The journal cannot be written or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The plan or journal belongs to another cluster.
    #[error("the {what} was made for cluster {planned}, but the datastore holds cluster {found}")]
    OtherCluster {
        /// `plan` or `journal`.
        what: &'static str,
        /// The GUID that it names.
        planned: String,
        /// The GUID that was found.
        found: String,
    },
    /// A journal names something that calipam never writes.
    #[error("the journal names {path:?}, which calipam never writes")]
    StrangeKey { path: String },
    /// What is to be written is more than what the operator agreed to.
    #[error("the operator agreed to change {agreed} objects, but the plan changes {planned}")]
    NotAgreed { agreed: usize, planned: usize },
    /// The datastore lock cannot be taken or restored.
    #[error("cannot {action} the datastore lock: {reason}")]
    Lock { action: LockAction, reason: Box<LockFailure> },
}

impl RepairError {
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Datastore(error) => return error.hint(),
            Self::Journal(error) => error.hint(),
            Self::OtherCluster { .. } => Hint::new(
                "connect to the cluster that it was made for; {} prints the GUID",
                [Call::ShowConfiguration],
            ),
            Self::StrangeKey { .. } => "use an unchanged copy of the journal".into(),
            Self::NotAgreed { .. } => "retry, and confirm the new plan".into(),
            Self::Lock { action: LockAction::Restore, .. } => {
                "`calicoctl datastore migrate unlock` unlocks it; while it is locked no pod starts or stops"
                    .into()
            }
            Self::Lock { .. } => Hint::new(
                "wait for the other run; or run without the lock, since every write checks that nothing has changed: {}",
                [Call::Unlocked],
            ),
        })
    }
}
