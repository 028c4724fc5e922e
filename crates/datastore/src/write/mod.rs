//! Writing, by compare-and-swap only.
//!
//! A [`Change`] always says what it expects to replace, and a [`Batch`] of changes takes place as a whole
//! or not at all. There is no unconditional write. There is no [`Writer`] without [`Consent`].

mod backend;
mod consent;
mod etcd;
mod etcdv2;
mod gathered;
mod kubernetes;
mod object;

use std::sync::Arc;

use bytes::Bytes;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Source};

use tokio::task::JoinSet;

pub use calipam_model::edit::Precondition;

use self::backend::Backend;
pub(crate) use self::backend::Connection;
pub use self::consent::{Consent, Question};
pub(crate) use self::etcd::LIMITS as ETCD_LIMITS;
pub(crate) use self::kubernetes::change as objects;
pub use self::object::Stored;
pub use crate::client::kubernetes::kinds::RECORDS;
use crate::error::{Error, Result};
use crate::store::{Datastore, Pending};

#[derive(Clone, Debug)]
pub struct Change {
    key: Key,
    expect: Precondition,
    value: Option<Bytes>,
    /// The object whole, where it was read as Kubernetes sends it.
    whole: Option<Bytes>,
}

impl Change {
    /// Creates an object where there is none, from its value in the form of etcd.
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

    /// The value that it writes; `None` where it deletes.
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

/// What became of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It took place. The revisions belong to the changes; a deletion has none on Kubernetes.
    Done(Vec<Option<Revision>>),
    /// Something was not as expected; nothing was written.
    Lost,
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

/// Reads objects, each by a request of its own, in the order of the keys. `lost` makes the error of a task that ended
/// without a result.
async fn read_each<F>(
    keys: &[Key],
    read: impl Fn(Key) -> F,
    lost: impl Fn(String) -> Error,
) -> Result<Vec<Option<Stored>>>
where
    F: Future<Output = Result<Option<Stored>>> + Send + 'static,
{
    let mut found: Vec<Option<Stored>> = vec![None; keys.len()];
    let mut waiting = keys.iter().cloned().enumerate();
    let mut running = JoinSet::new();
    loop {
        while running.len() < IN_FLIGHT
            && let Some((index, key)) = waiting.next()
        {
            let reading = read(key);
            running.spawn(async move { (index, reading.await) });
        }
        match running.join_next().await {
            None => return Ok(found),
            Some(Ok((index, read))) => found[index] = read?,
            Some(Err(error)) => return Err(lost(error.to_string())),
        }
    }
}

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
            match Backend::new(self)? {
                Backend::Etcd(..) | Backend::EtcdV2(..) => Ok(()),
                Backend::Kubernetes(client, _) => kubernetes::change::require(&client, sources, lock).await,
            }
        })
    }

    /// Reads objects as they are now, in the order of the keys; `None` where there is none.
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
        match &self.backend {
            Backend::Etcd(..) => DatastoreKind::Etcd,
            Backend::EtcdV2(..) => DatastoreKind::EtcdV2,
            Backend::Kubernetes(..) => DatastoreKind::Kubernetes,
        }
    }

    /// What one batch can hold.
    pub fn limits(&self) -> Limits {
        match &self.backend {
            Backend::Etcd(..) => etcd::LIMITS,
            Backend::EtcdV2(..) => etcdv2::LIMITS,
            Backend::Kubernetes(..) => kubernetes::LIMITS,
        }
    }

    /// Reads objects as they are now, in the order of the keys; `None` where there is none.
    pub fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Result<Vec<Option<Stored>>>> {
        Box::pin(self.backend.read(keys))
    }

    /// The batch with the values that will be stored, where the datastore has other ones than etcd v3. A journal notes
    /// those.
    pub fn converted(&self, batch: Batch) -> Batch {
        match &self.backend {
            Backend::EtcdV2(..) => etcdv2::converted(batch),
            Backend::Etcd(..) | Backend::Kubernetes(..) => batch,
        }
    }

    /// Makes the changes of a batch, if everything is as it expects.
    ///
    /// # Errors
    /// Where the datastore cannot be written. It is open then whether the changes took place: the
    /// connection may have broken after them. Reading the objects tells. A batch above
    /// [`Self::limits`] is refused before it is sent.
    pub fn commit<'a>(&'a self, batch: &'a Batch) -> Pending<'a, Result<Swap>> {
        Box::pin(self.backend.commit(batch))
    }
}
