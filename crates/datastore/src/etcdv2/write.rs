//! Writes to etcd v2, one key at a time, on condition that the key has not changed since it was read (docs/etcdv2.md).
//! Evidence is read again just before each write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use calipam_model::block::BlockContent;
use calipam_model::calico2;
use calipam_model::config::ClusterInformation;
use calipam_model::key::{HANDLE_PREFIX, Key};
use calipam_model::parallel::lock;
use calipam_model::snapshot::{DatastoreKind, Revision};
use calipam_model::writable::Object;

use super::client::EtcdV2Client;
use super::whole::{handle_indices, number};
use super::{READY, convert, sources};
use crate::error::{Failure, Result};
use crate::retries::retried;
use crate::tasks;
use crate::write::{
    BATCH, Batch, Change, IN_FLIGHT, Limits, Objects, Precondition, Stored, Swap, are_expected, unsendable,
};

/// Access to single objects in etcd v2. Remembers the handles that it has written.
#[derive(Debug)]
pub(super) struct EtcdV2Objects {
    client: Arc<EtcdV2Client>,
    own_handles: OwnHandles,
}

impl EtcdV2Objects {
    pub(super) fn new(client: &Arc<EtcdV2Client>) -> Self {
        Self {
            client: Arc::clone(client),
            own_handles: OwnHandles::default(),
        }
    }
}

#[async_trait]
impl Objects for EtcdV2Objects {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::EtcdV2
    }

    /// Allows one changed key per batch.
    fn limits(&self) -> Limits {
        Limits {
            changes: 1,
            conditions: 128,
            bytes: 1_500_000,
            affinity_first: true,
        }
    }

    /// Retries temporary failures. The client itself chooses the member to ask.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        retried(|| read(&self.client, &self.own_handles, keys)).await
    }

    /// Converts the values to Calico 2.x's form.
    fn converted(&self, batch: Batch) -> Batch {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for change in batch.changes {
            let converted_value = change
                .value()
                .and_then(|value| calico2::value(change.key(), value));
            changes.push(match converted_value {
                Some(value) => change.with_value(value),
                None => change,
            });
        }
        Batch {
            changes,
            evidence: batch.evidence,
        }
    }

    /// Writes the only change of a batch, if the objects in its evidence are as expected.
    async fn commit(&self, batch: &Batch) -> Result<Swap> {
        let refused = |failure| self.client.write_error(BATCH, failure);
        let change = batch.only().map_err(refused)?;
        let (path, text) = path_and_text(change).map_err(refused)?;
        let replaced_index = match change.precondition() {
            Precondition::Absent => None,
            // etcd treats index 0 as no condition.
            Precondition::At(Revision::Etcd(index)) if *index > 0 => Some(*index),
            other => return Err(refused(unsendable(format!("{other:?} is not an etcd index")))),
        };
        if change.value().is_none() && replaced_index.is_none() {
            let key = change.key();
            return Err(refused(unsendable(format!(
                "{key} cannot be deleted: it does not exist"
            ))));
        }

        let keys: Vec<Key> = batch.evidence.iter().map(|(key, _)| key.clone()).collect();
        let evidence = read(&self.client, &self.own_handles, &keys).await?;
        if !are_expected(&evidence, &batch.evidence) {
            return Ok(Swap::Conflict);
        }

        let written = self.client.write(&path, text.as_deref(), replaced_index).await?;
        let Some(index) = written else {
            return Ok(Swap::Conflict);
        };
        self.own_handles.note(change, index);
        Ok(Swap::Done(vec![Some(Revision::Etcd(index))]))
    }
}

/// The handles that a writer has written itself.
///
/// Allocations are numbered by the index of their handle, and a handle can own addresses in several blocks. After this
/// writer has changed the handle's count for one block, the handle's addresses in other blocks must not look
/// reassigned.
#[derive(Debug, Default)]
struct OwnHandles(Mutex<HashMap<String, OwnWrites>>);

/// This writer's writes of a handle, between which no other client has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnWrites {
    /// The index that the first of them replaced.
    first_replaced: i64,
    /// The index that the last of them wrote; `None` if it deleted the handle.
    last_written: Option<i64>,
}

impl OwnHandles {
    /// Notes a write, if it is of a handle. `written` is the index that it got.
    fn note(&self, change: &Change, written: i64) {
        let Key::Handle(id) = change.key() else { return };
        let mut writes_by_id = lock(&self.0);
        let Precondition::At(Revision::Etcd(replaced)) = change.precondition() else {
            // A handle that is created has no earlier index.
            writes_by_id.remove(id);
            return;
        };
        let mut first_replaced = *replaced;
        if let Some(earlier) = writes_by_id.get(id)
            && earlier.last_written == Some(*replaced)
        {
            first_replaced = earlier.first_replaced;
        }
        let writes = OwnWrites {
            first_replaced,
            last_written: change.value().map(|_| written),
        };
        writes_by_id.insert(id.clone(), writes);
    }

    /// The index that serves as the sequence number of a handle's addresses: `current_index`, that of the handle now or,
    /// if this writer was the last to write the handle, the index before its own writes.
    fn number(&self, id: &str, current_index: Option<u64>) -> Option<u64> {
        let writes_by_id = lock(&self.0);
        let unsigned = |index: i64| u64::try_from(index).ok();
        if let Some(writes) = writes_by_id.get(id)
            && writes.last_written.and_then(unsigned) == current_index
        {
            return unsigned(writes.first_replaced);
        }
        current_index
    }
}

/// Reads objects, each with its own request.
async fn read(
    client: &Arc<EtcdV2Client>,
    own_handles: &OwnHandles,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>> {
    let mut reads = Vec::new();
    for key in keys {
        let client = Arc::clone(client);
        let key = key.clone();
        reads.push(async move { stored(&client, &key).await });
    }
    let mut objects = tasks::all(IN_FLIGHT, reads).await?;
    number_blocks(client, own_handles, &mut objects).await?;
    Ok(objects)
}

/// Numbers the blocks' allocations by their handles. Handles are read after blocks. If an address was reassigned before
/// its block was read, its handle therefore already has another index.
async fn number_blocks(
    client: &EtcdV2Client,
    own_handles: &OwnHandles,
    objects: &mut [Option<Stored>],
) -> Result<()> {
    let mut blocks = Vec::new();
    for stored in objects.iter_mut().flatten() {
        if let Some(Object::Block(block @ BlockContent::Sound(_))) = &mut stored.object {
            blocks.push(block);
        }
    }
    if blocks.is_empty() {
        return Ok(());
    }

    let entries = convert(&client.read(HANDLE_PREFIX.trim_end_matches('/')).await?.node);
    let handles = handle_indices(&entries);
    for block in blocks {
        number(block, |id| own_handles.number(id, handles.get(id).copied()));
    }
    Ok(())
}

/// Reads an object of Calico 3 from the keys of Calico 2.x that hold its parts.
async fn stored(client: &EtcdV2Client, key: &Key) -> Result<Option<Stored>> {
    let mut nodes = Vec::new();
    for path in sources(key) {
        nodes.extend(client.read(&path).await?.node);
    }
    let wanted = key.to_string();
    let entry = convert(&nodes)
        .into_iter()
        .find(|entry| entry.key == wanted.as_bytes());
    Ok(entry.map(|entry| Stored::new(key, Revision::Etcd(entry.mod_revision), entry.value.into())))
}

/// The path in Calico 2.x that a change writes, and its new text; without a text, the path is deleted.
///
/// # Errors
/// If Calico 2.x has the object not at a single path, or the value is not text.
fn path_and_text(change: &Change) -> Result<(String, Option<String>), Failure> {
    let key = change.key();
    let value = change.value();
    // Calico 2.x has a path for each field of the cluster information. Only the flag `Ready` is ever written.
    if let Key::ClusterInformation(_) = key
        && let Some(value) = value
    {
        return Ok((READY.to_owned(), Some(text_of_ready(value)?)));
    }

    let Some(path) = super::path(key) else {
        return Err(unsendable(format!("{key} is not a single key in Calico 2.x")));
    };
    let Some(value) = value else {
        return Ok((path, None));
    };
    match String::from_utf8(value.to_vec()) {
        Ok(text) => Ok((path, Some(text))),
        Err(_) => Err(unsendable("the value is not text")),
    }
}

/// The text of the flag `Ready` for a new value of the cluster information.
fn text_of_ready(information: &[u8]) -> Result<String, Failure> {
    let information =
        ClusterInformation::parse(information).map_err(|error| unsendable(error.to_string()))?;
    match information.datastore_ready {
        Some(is_ready) => Ok(is_ready.to_string()),
        None => Err(unsendable(format!("{READY} is never deleted"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_counts_as_before_until_another_writes_it() {
        let own = OwnHandles::default();
        let key = || Key::Handle("default.web-0".to_owned());
        assert_eq!(own.number("default.web-0", Some(5)), Some(5));
        own.note(&Change::update(key(), Revision::Etcd(5), "{}"), 7);
        assert_eq!(own.number("default.web-0", Some(7)), Some(5));
        assert_eq!(
            own.number("default.web-0", Some(5)),
            Some(5),
            "a read that is older"
        );
        assert_eq!(own.number("default.web-0", Some(8)), Some(8), "another wrote it");
        assert_eq!(own.number("default.web-1", Some(7)), Some(7));

        own.note(&Change::update(key(), Revision::Etcd(7), "{}"), 9);
        assert_eq!(
            own.number("default.web-0", Some(9)),
            Some(5),
            "both writes are its own"
        );
        own.note(&Change::update(key(), Revision::Etcd(11), "{}"), 12);
        assert_eq!(
            own.number("default.web-0", Some(12)),
            Some(11),
            "another wrote it between"
        );
        own.note(&Change::delete(key(), Revision::Etcd(12)), 13);
        assert_eq!(own.number("default.web-0", None), Some(11));
        own.note(&Change::create(key(), "{}"), 14);
        assert_eq!(own.number("default.web-0", Some(14)), Some(14));
    }
}
