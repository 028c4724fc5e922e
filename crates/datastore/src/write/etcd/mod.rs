//! Writing to etcd: the compare-and-swap of a batch, in one transaction (facts 1.15), which batches that are ready at the same
//! time share ([`shared_transactions`]).

pub(super) mod shared_transactions;

use std::collections::HashMap;

use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};

use super::object::Stored;
use super::{Batch, BatchError, Limits, Precondition, Swap};
use crate::client::etcd::{EtcdClient, Range};
use crate::error::{Error, Failure, Result};

/// What etcd takes by default: `--max-txn-ops` 128, counted for comparisons and for changes each, and
/// `--max-request-bytes` 1.5 MiB, of which a little is left for its own wrapping.
pub(crate) const LIMITS: Limits =
    Limits { changes: 128, conditions: 128, bytes: 1_500_000, affinity_first: false };

/// Reads keys, 128 in each request. Each request is at one revision of its own: what is read is only
/// ever used in comparisons.
pub(crate) async fn read(client: &EtcdClient, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    let mut found = Vec::with_capacity(keys.len());
    for part in keys.chunks(LIMITS.conditions) {
        let ranges: Vec<Range> = part.iter().map(|key| Range::key(key.to_string())).collect();
        let read = client.get(&ranges, "what is to be changed").await?;
        for (key, mut answer) in part.iter().zip(read.ranges) {
            let stored = answer.take_kvs().pop().map(|kv| {
                let revision = Revision::Etcd(kv.mod_revision());
                Stored::new(key, revision, kv.into_key_value().1.into())
            });
            found.push(stored);
        }
    }
    Ok(found)
}

/// Makes the changes of a batch in one transaction.
pub(crate) async fn commit(client: &EtcdClient, batch: &Batch) -> Result<Swap> {
    let parts = Parts::new(batch).map_err(|error| refused(client, &error))?;
    let response = client.write(parts.transaction(), &what(batch)).await?;
    if !response.succeeded() {
        return Ok(Swap::Conflict);
    }
    let revision = response.header().map_or(0, |header| header.revision());
    Ok(done(batch, revision))
}

/// The batch took place at a revision.
fn done(batch: &Batch, revision: i64) -> Swap {
    Swap::Done(vec![Some(Revision::Etcd(revision)); batch.changes.len()])
}

/// What errors call a batch.
fn what(batch: &Batch) -> String {
    batch.changes.first().map(|change| change.key().to_string()).unwrap_or_default()
}

fn refused(client: &EtcdClient, error: &BatchError) -> Error {
    client.write_error("a batch of changes", Failure::Other(error.to_string()))
}

/// Batches as parts of one transaction, which compares everything that they expect before it changes anything.
#[derive(Debug)]
struct Parts {
    comparisons: Vec<Compare>,
    operations: Vec<TxnOp>,
    /// Of keys and values, about as etcd counts them.
    bytes: usize,
    /// The keys that are compared; true for those that are changed.
    keys: HashMap<String, bool>,
}

impl Parts {
    fn new(batch: &Batch) -> Result<Self, BatchError> {
        let mut expected: HashMap<&Key, &Precondition> = HashMap::new();
        let mut parts = Self {
            comparisons: Vec::new(),
            operations: Vec::with_capacity(batch.changes.len()),
            bytes: 0,
            keys: HashMap::new(),
        };
        let changed = batch.changes.iter().map(|change| (change.key(), change.precondition()));
        let evidence = batch.evidence.iter().map(|(key, expect)| (key, expect));
        for (key, expect) in changed.chain(evidence) {
            match expected.insert(key, expect) {
                // Several changes can rest on one piece of evidence.
                Some(before) if before == expect => continue,
                Some(_) => return Err(BatchError::TwoStates(key.clone())),
                None => {}
            }
            let path = path(key)?;
            parts.bytes += path.len() + OVERHEAD;
            parts.comparisons.push(Compare::mod_revision(&*path, CompareOp::Equal, revision(expect)?));
            parts.keys.insert(path, false);
        }

        for change in &batch.changes {
            let path = path(change.key())?;
            parts.bytes += path.len() + change.value().map_or(0, |value| value.len()) + OVERHEAD;
            parts.operations.push(match change.value() {
                // Without a lease.
                Some(value) => TxnOp::put(&*path, value.as_ref(), None),
                None => TxnOp::delete(&*path, None),
            });
            parts.keys.insert(path, true);
        }

        // etcd counts comparisons and changes each for itself.
        let operations = parts.comparisons.len().max(parts.operations.len());
        if operations > LIMITS.conditions || parts.bytes > LIMITS.bytes {
            return Err(BatchError::TooLarge { operations, bytes: parts.bytes });
        }
        Ok(parts)
    }

    /// True if one transaction can hold the other batches, too, and none of either changes what the other expects: both
    /// orders come to the same.
    fn goes_with(&self, other: &Self) -> bool {
        let is_apart = |(key, changed): (&String, &bool)| {
            self.keys.get(key).is_none_or(|own_changed| !*own_changed && !*changed)
        };
        self.comparisons.len() + other.comparisons.len() <= LIMITS.conditions
            && self.operations.len() + other.operations.len() <= LIMITS.changes
            && self.bytes + other.bytes <= LIMITS.bytes
            && other.keys.iter().all(is_apart)
    }

    fn join(&mut self, other: Self) {
        self.comparisons.extend(other.comparisons);
        self.operations.extend(other.operations);
        self.bytes += other.bytes;
        self.keys.extend(other.keys);
    }

    fn transaction(self) -> Txn {
        Txn::new().when(self.comparisons).and_then(self.operations)
    }
}

/// Bytes around the key and value of one operation, at most.
const OVERHEAD: usize = 24;

/// The path of a key that is stored in etcd.
fn path(key: &Key) -> Result<String, BatchError> {
    match key {
        Key::Pod { .. } | Key::Service { .. } => Err(BatchError::NotInEtcd(key.clone())),
        key => Ok(key.to_string()),
    }
}

/// The revision to compare with. A key that does not exist compares as 0.
fn revision(expect: &Precondition) -> Result<i64, BatchError> {
    match expect {
        Precondition::Absent => Ok(0),
        // 0 would be true of an absent key; no stored key has it.
        Precondition::At(Revision::Etcd(revision)) if *revision > 0 => Ok(*revision),
        Precondition::Records(..) | Precondition::Matches(_) => Err(BatchError::NoVersion),
        Precondition::At(other) => Err(BatchError::NotARevision(other.clone())),
    }
}
