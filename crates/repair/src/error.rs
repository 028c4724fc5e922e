//! Why a repair does not begin or breaks off.

use crate::journal::JournalError;

/// Why a repair did not begin, or broke off. What single steps met is no error but a
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
    #[error("the journal names {path:?}, which is nothing that calipam writes")]
    StrangeKey {
        /// What it names.
        path: String,
    },
    /// What is to be written is more than what the operator agreed to.
    #[error("the operator agreed to change {agreed} objects, but the plan changes {planned}")]
    NotAgreed {
        /// Number of objects that was agreed to.
        agreed: usize,
        /// Number of objects of the plan.
        planned: usize,
    },
    /// The datastore lock cannot be taken or restored.
    #[error("cannot {action} the datastore lock: {reason}")]
    Lock {
        /// `take` or `restore`.
        action: &'static str,
        /// What happened.
        reason: String,
    },
}

impl RepairError {
    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            // The program writes the hints for errors of the datastore.
            Self::Datastore(_) => None,
            Self::Journal(error) => Some(error.hint().to_owned()),
            Self::OtherCluster { .. } => Some(
                "connect to the cluster that it was made for; `calipam show --configuration` prints the GUID"
                    .into(),
            ),
            Self::StrangeKey { .. } => Some("use an unchanged copy of the journal".into()),
            Self::NotAgreed { .. } => Some("run it again, and answer what it asks then".into()),
            Self::Lock { action: "restore", .. } => Some(
                "`calicoctl datastore migrate unlock` unlocks it; while it is locked no pod starts or stops"
                    .into(),
            ),
            Self::Lock { .. } => Some("run it again, or without `--lock`".into()),
        }
    }
}
