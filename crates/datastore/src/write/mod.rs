//! Writes by compare-and-swap only.
//!
//! A [`Change`] always states the expected state of the object that it replaces, and a [`Batch`] of changes is
//! committed as a whole or not at all. There is no unconditional write, and no [`Writer`] without [`Consent`].

mod consent;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use calipam_model::edit::{Found, User};
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Source};
use calipam_model::writable::Object;

pub use calipam_model::edit::Precondition;

pub use self::consent::{Consent, ObjectCounts, ProposedChange, Question};
use crate::error::{Error, Failure, Result};

/// The current state of a stored object.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The version that was read.
    pub revision: Revision,
    /// The value in etcd's form. On Kubernetes, the whole object for a custom resource without [`Self::object`], and
    /// empty for a built-in object.
    pub raw: Bytes,
    /// The whole object from Kubernetes, whose other fields are kept when it is replaced.
    pub whole: Option<Bytes>,
    /// The decoded object; `None` if it cannot be decoded, and for kinds that a repair does not edit.
    pub object: Option<Object>,
    /// The node, pod or service, if it is a Kubernetes object that a repair only reads.
    pub user: Option<User>,
}

impl Stored {
    /// Creates the state from the value under `key` in etcd.
    pub(crate) fn new(key: &Key, revision: Revision, raw: Bytes) -> Self {
        let object = Object::parse(key, &raw).ok().flatten();
        Self {
            revision,
            raw,
            whole: None,
            object,
            user: None,
        }
    }

    /// The state of the object, in the form that conditions on evidence check.
    pub fn found(&self) -> Found<'_> {
        match (&self.object, &self.user, &self.revision) {
            (Some(object), ..) => Found::Object(object),
            (None, Some(user), Revision::Kubernetes(version)) => Found::User(&version.uid, user),
            _ => Found::Unknown,
        }
    }

    /// True if the object is marked as deleted, which is the first of the two steps of a deletion on Kubernetes.
    pub fn is_deleted(&self) -> bool {
        self.object.as_ref().is_some_and(Object::is_deleted)
    }
}

#[derive(Clone, Debug)]
pub struct Change {
    key: Key,
    expect: Precondition,
    value: Option<Bytes>,
    /// The whole object, if it was read from Kubernetes.
    whole: Option<Bytes>,
    /// True if only the version changes.
    is_again: bool,
}

impl Change {
    /// Creates a missing object from its value in etcd's form.
    pub fn create(key: Key, value: impl Into<Bytes>) -> Self {
        Self {
            key,
            expect: Precondition::Absent,
            value: Some(value.into()),
            whole: None,
            is_again: false,
        }
    }

    /// Replaces one version of an object with a value in etcd's form.
    pub fn update(key: Key, version: Revision, value: impl Into<Bytes>) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::delete(key, version)
        }
    }

    /// Deletes one version of an object.
    pub fn delete(key: Key, version: Revision) -> Self {
        Self {
            key,
            expect: Precondition::At(version),
            value: None,
            whole: None,
            is_again: false,
        }
    }

    /// Writes an object again as it was read. Writes that expect the version that was read fail afterwards.
    pub fn again(key: Key, read: &Stored) -> Self {
        Self {
            is_again: true,
            ..Self::update(key, read.revision.clone(), read.raw.clone()).of(read)
        }
    }

    /// Adds the object that was read just before. On Kubernetes, its other fields then need not be read again.
    #[must_use]
    pub fn of(self, read: &Stored) -> Self {
        Self {
            whole: read.whole.clone(),
            ..self
        }
    }

    /// The same change with another value.
    pub(crate) fn with_value(self, value: impl Into<Bytes>) -> Self {
        Self {
            value: Some(value.into()),
            ..self
        }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn whole(&self) -> Option<&Bytes> {
        self.whole.as_ref()
    }

    /// True if the change only gives the object another version.
    pub fn is_again(&self) -> bool {
        self.is_again
    }

    pub fn precondition(&self) -> &Precondition {
        &self.expect
    }

    /// The new value; `None` for a deletion.
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }
}

/// Changes that are committed together, with further preconditions.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The changes, in the order in which a datastore without transactions makes them.
    pub changes: Vec<Change>,
    /// Objects that do not change, but justify the changes.
    pub evidence: Vec<(Key, Precondition)>,
}

impl Batch {
    /// The only change, for a datastore that makes one change at a time.
    pub(crate) fn only(&self) -> Result<&Change, Failure> {
        match self.changes.as_slice() {
            [only] => Ok(only),
            several => Err(unsendable(format!(
                "{} changes cannot be made in one write",
                several.len()
            ))),
        }
    }
}

/// True if the objects that were read as evidence are in the expected state. Ignores [`Precondition::NoBlockSince`],
/// which only etcd v3 compares.
pub(crate) fn are_expected(found: &[Option<Stored>], evidence: &[(Key, Precondition)]) -> bool {
    for (object, (_, expected)) in found.iter().zip(evidence) {
        let is_expected = match (object, expected) {
            (None, Precondition::Absent) | (_, Precondition::NoBlockSince(_)) => true,
            (Some(object), Precondition::At(version)) => is_version(&object.revision, version),
            _ => false,
        };
        if !is_expected {
            return false;
        }
    }
    true
}

/// True if both are the same version of the same object, regardless of labels.
pub(crate) fn is_version(found: &Revision, expected: &Revision) -> bool {
    match (found, expected) {
        (Revision::Kubernetes(a), Revision::Kubernetes(b)) => {
            a.resource_version == b.resource_version && a.uid == b.uid
        }
        _ => found == expected,
    }
}

/// The outcome of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The batch was committed, with a revision for each change. On Kubernetes, a deletion has no revision.
    Done(Vec<Option<Revision>>),
    /// An object was not in the expected state. Nothing was written, except perhaps the first of the two steps of a
    /// deletion on Kubernetes.
    Conflict,
}

/// The name of a batch that cannot be sent, in errors.
pub(crate) const BATCH: &str = "a batch of changes";

/// The failure of a batch that cannot be sent.
pub(crate) fn unsendable(reason: impl Into<String>) -> Failure {
    Failure::Other(reason.into())
}

/// The error for a datastore that is a file.
pub(crate) fn not_writable(location: &str) -> Error {
    let hint = Hint::new(
        "on a file, repairs are only planned and simulated, {}; to carry them out, connect to the datastore",
        [Call::DryRun],
    );
    Error::other(format!("{location}: files are read, but never changed"), hint)
}

/// The error for Calico 2.x data, for which `what` is not possible or not supported.
pub(crate) fn not_for_calico_2(location: &str, what: &str) -> Error {
    let message =
        format!("{location}: Calico 2.x data (etcd v2) can be read and repaired, but not used to {what}");
    Error::other(
        message,
        "`release`, `rebuild` and `undo` repair it; for everything else use calicoctl 1.x",
    )
}

/// The limits of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub changes: usize,
    /// Maximum number of changes and pieces of evidence combined.
    pub conditions: usize,
    pub bytes: usize,
    /// True if affinities must be created before their blocks, as when Calico 2.x claims a block. The order matters
    /// only if objects are written one by one.
    pub affinity_first: bool,
}

/// Maximum number of parallel requests of one read.
pub(crate) const IN_FLIGHT: usize = 8;

/// Reads and writes of single objects.
#[async_trait]
pub(crate) trait Objects: Debug + Send + Sync {
    fn kind(&self) -> DatastoreKind;

    /// The limits of one batch.
    fn limits(&self) -> Limits;

    /// Checks that the user may create, update and delete objects of these kinds, and take the lock if `lock` is true.
    async fn may_write(&self, _sources: &[Source], _lock: bool) -> Result<()> {
        Ok(())
    }

    /// Reads the current state of objects, in the order of the keys; `None` for a missing one. Retries temporary
    /// failures.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>>;

    /// Converts a batch to the values that will be stored.
    fn converted(&self, batch: Batch) -> Batch {
        batch
    }

    /// Commits a batch if all objects are in the expected state. Sends it only once. After an error, the changes may
    /// have been made.
    async fn commit(&self, batch: &Batch) -> Result<Swap>;
}

/// Writes to a datastore.
#[derive(Clone, Debug)]
pub struct Writer {
    objects: Arc<dyn Objects>,
    consent: Arc<Consent>,
}

impl Writer {
    pub(crate) fn new(objects: Arc<dyn Objects>, consent: Consent) -> Self {
        Self {
            objects,
            consent: Arc::new(consent),
        }
    }

    pub fn consent(&self) -> &Consent {
        &self.consent
    }

    /// The kind of datastore.
    pub fn kind(&self) -> DatastoreKind {
        self.objects.kind()
    }

    /// The limits of one batch.
    pub fn limits(&self) -> Limits {
        self.objects.limits()
    }

    /// Reads the current state of objects, in the order of the keys; `None` for a missing one.
    pub async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        if keys.is_empty() {
            Ok(Vec::new())
        } else {
            self.objects.read(keys).await
        }
    }

    /// Converts a batch to the values that will be stored, if they differ from those of etcd v3. A journal records the
    /// converted values.
    pub fn converted(&self, batch: Batch) -> Batch {
        self.objects.converted(batch)
    }

    /// Commits a batch if all objects are in the expected state.
    ///
    /// # Errors
    /// If the datastore cannot be written. The changes may have taken place, since the connection can break after the
    /// write; a read of the objects shows whether they did. A batch above [`Self::limits`] is rejected before it is
    /// sent.
    pub async fn commit(&self, batch: &Batch) -> Result<Swap> {
        if batch.changes.is_empty() {
            Ok(Swap::Done(Vec::new()))
        } else {
            self.objects.commit(batch).await
        }
    }
}
