//! Writing, by compare-and-swap only.
//!
//! A [`Change`] always says what it expects to replace, and a [`Batch`] of changes takes place as a whole
//! or not at all. There is no unconditional write. There is no [`Writer`] without [`Consent`].

mod backend;
mod consent;
mod etcd;
mod etcdv2;
mod kubernetes;
mod object;

use std::sync::Arc;

use bytes::Bytes;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Source};

pub use calipam_model::edit::Precondition;

pub(crate) use self::backend::Connection;
use self::backend::{Backend, Store};
pub use self::consent::{Consent, Question};
pub(crate) use self::etcd::LIMITS as ETCD_LIMITS;
pub(crate) use self::kubernetes::change as objects;
use self::kubernetes::change::is_version;
pub use self::object::Stored;
pub use crate::client::kubernetes::kinds::RECORDS;
use crate::error::Result;
use crate::store::{Datastore, Pending};

#[derive(Clone, Debug)]
pub struct Change {
    key: Key,
    expect: Precondition,
    value: Option<Bytes>,
    /// The object whole, if it was read as Kubernetes sends it.
    whole: Option<Bytes>,
}

impl Change {
    /// Creates an object if there is none, from its value in the form of etcd.
    pub fn create(key: Key, value: impl Into<Bytes>) -> Self {
        Self { key, expect: Precondition::Absent, value: Some(value.into()), whole: None }
    }

    /// Replaces a version of an object by a value in the form of etcd.
    pub fn update(key: Key, version: Revision, value: impl Into<Bytes>) -> Self {
        Self { key, expect: Precondition::At(version), value: Some(value.into()), whole: None }
    }

    /// Deletes a version of an object.
    pub fn delete(key: Key, version: Revision) -> Self {
        Self { key, expect: Precondition::At(version), value: None, whole: None }
    }

    /// The same, of an object that was read just before: on Kubernetes it is not read again for what stays as it is.
    #[must_use]
    pub fn of(self, read: &Stored) -> Self {
        Self { whole: read.whole.clone(), ..self }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn whole(&self) -> Option<&Bytes> {
        self.whole.as_ref()
    }

    pub fn precondition(&self) -> &Precondition {
        &self.expect
    }

    /// The value that it writes; `None` if it deletes.
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }
}

/// Changes that take place together, and what else has to be true for them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The changes, in the order in which a datastore without transactions makes them.
    pub changes: Vec<Change>,
    /// Objects that are not changed, but whose state justifies the changes.
    pub evidence: Vec<(Key, Precondition)>,
}

impl Batch {
    /// Its change, for a datastore that makes one at a time.
    fn only(&self) -> Result<&Change, BatchError> {
        match self.changes.as_slice() {
            [only] => Ok(only),
            several => Err(BatchError::Several(several.len())),
        }
    }
}

/// True if what was read of evidence is as expected.
fn are_expected(found: &[Option<Stored>], evidence: &[(Key, Precondition)]) -> bool {
    found.iter().zip(evidence).all(|(found, (_, expect))| match (found, expect) {
        (None, Precondition::Absent) => true,
        (Some(found), Precondition::At(version)) => is_version(&found.revision, version),
        _ => false,
    })
}

/// What became of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It took place. The revisions belong to the changes; a deletion has none on Kubernetes.
    Done(Vec<Option<Revision>>),
    /// Something was not as expected; nothing was written.
    Conflict,
}

/// Why a batch cannot be sent.
#[derive(Debug, thiserror::Error)]
enum BatchError {
    #[error("{0} changes cannot be made at once")]
    Several(usize),
    #[error("two different states of {0} are expected")]
    TwoStates(Key),
    #[error("{operations} operations and {bytes} bytes are more than etcd takes in one transaction")]
    TooLarge { operations: usize, bytes: usize },
    #[error("{0} is not stored in etcd")]
    NotInEtcd(Key),
    #[error("a write compares versions")]
    NoVersion,
    #[error("{0} is not a revision of etcd")]
    NotARevision(Revision),
    #[error("{0:?} is not an index of etcd")]
    NotAnIndex(Precondition),
    #[error("{0} is not there to be deleted")]
    DeletesNothing(Key),
    #[error("{0} is not deleted")]
    NeverDeleted(&'static str),
    #[error("the value is not text")]
    NoText,
    #[error("{0} is not one key of Calico 2.x")]
    NotInCalico2(Key),
    #[error("{0}")]
    Undecodable(String),
}

/// What one request can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub changes: usize,
    /// Most changes and pieces of evidence together.
    pub conditions: usize,
    pub bytes: usize,
    /// Where objects are written one by one: an affinity is created before its block, as Calico 2.x claims blocks (facts
    /// 6.5).
    pub affinity_first: bool,
}

/// Requests of one reading that are under way at the same time.
const IN_FLIGHT: usize = 8;

/// Writes to a datastore.
#[derive(Clone, Debug)]
pub struct Writer {
    backend: Backend,
    consent: Arc<Consent>,
}

impl Datastore {
    /// A writer, for what the operator agreed to.
    pub fn writer(&self, consent: Consent) -> Result<Writer> {
        Ok(Writer { backend: Backend::new(self)?, consent: Arc::new(consent) })
    }

    /// Asks whether the user may create, update and delete objects of these kinds, so that a run does not end in the
    /// middle; with `lock`, also the lock. etcd cannot be asked.
    pub fn may_write<'a>(&'a self, sources: &'a [Source], lock: bool) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            match Backend::new(self)?.store {
                Store::Etcd(..) | Store::EtcdV2(..) => Ok(()),
                Store::Kubernetes(client, _) => kubernetes::change::require(&client, sources, lock).await,
            }
        })
    }

    /// Reads objects as they are now, in the order of the keys; `None` if there is none.
    pub fn stored<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Result<Vec<Option<Stored>>>> {
        Box::pin(async move { Backend::new(self)?.read(keys).await })
    }
}

impl Writer {
    /// What the operator agreed to.
    pub fn consent(&self) -> &Consent {
        &self.consent
    }

    /// The kind of datastore that it writes to.
    pub fn kind(&self) -> DatastoreKind {
        match &self.backend.store {
            Store::Etcd(..) => DatastoreKind::Etcd,
            Store::EtcdV2(..) => DatastoreKind::EtcdV2,
            Store::Kubernetes(..) => DatastoreKind::Kubernetes,
        }
    }

    /// What one batch can hold.
    pub fn limits(&self) -> Limits {
        match &self.backend.store {
            Store::Etcd(..) => etcd::LIMITS,
            Store::EtcdV2(..) => etcdv2::LIMITS,
            Store::Kubernetes(..) => kubernetes::LIMITS,
        }
    }

    /// Reads objects as they are now, in the order of the keys; `None` if there is none.
    pub fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Result<Vec<Option<Stored>>>> {
        Box::pin(self.backend.read(keys))
    }

    /// The batch with the values that will be stored, if the datastore has other ones than etcd v3. A journal notes
    /// those.
    pub fn converted(&self, batch: Batch) -> Batch {
        match &self.backend.store {
            Store::EtcdV2(..) => etcdv2::converted(batch),
            Store::Etcd(..) | Store::Kubernetes(..) => batch,
        }
    }

    /// Makes the changes of a batch, if everything is as it expects.
    ///
    /// # Errors
    /// If the datastore cannot be written. It is open then whether the changes took place: the
    /// connection may have broken after them. Reading the objects tells. A batch above
    /// [`Self::limits`] is refused before it is sent.
    pub fn commit<'a>(&'a self, batch: &'a Batch) -> Pending<'a, Result<Swap>> {
        Box::pin(self.backend.commit(batch))
    }
}
