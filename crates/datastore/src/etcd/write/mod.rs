//! Writes to etcd. A batch is a compare-and-swap in one transaction (facts 1.15), which several batches can share
//! ([`shared_transactions`]).

mod shared_transactions;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};

use self::shared_transactions::SharedTransactions;
use super::client::{EtcdClient, Range};
use super::connection::Connection;
use crate::error::{Failure, Result};
use crate::retries::{READS, Retries};
use crate::tasks;
use crate::write::{BATCH, Batch, IN_FLIGHT, Limits, Objects, Precondition, Stored, Swap, unsendable};

/// etcd's default limits: `--max-txn-ops` 128, which applies to comparisons and changes separately, and
/// `--max-request-bytes` 1.5 MiB, minus some bytes for the envelope.
pub(super) const LIMITS: Limits = Limits {
    changes: 128,
    conditions: 128,
    bytes: 1_500_000,
    affinity_first: false,
};

/// Single objects in etcd, read and written in shared requests.
#[derive(Debug)]
pub(super) struct EtcdObjects {
    connection: Arc<Connection>,
    transactions: Arc<SharedTransactions>,
}

impl EtcdObjects {
    /// Opens etcd for reads and writes of single objects. `alone` is true if no two batches may share a transaction.
    pub(super) fn new(client: &Arc<EtcdClient>, alone: bool) -> Self {
        Self {
            connection: Connection::new(client),
            transactions: SharedTransactions::new(alone),
        }
    }
}

#[async_trait]
impl Objects for EtcdObjects {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::Etcd
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    /// Retries at any endpoint that answers.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        let mut retries = Retries::new(&READS);
        loop {
            let client = self.connection.current();
            match self.transactions.read(&client, keys).await {
                Err(error) => retries.wait(error).await?,
                found => return found,
            }
            self.connection.replace(&client).await.ok();
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Swap> {
        let commit = move |client| async move { self.transactions.commit(&client, batch).await };
        self.connection.ask(commit).await
    }
}

/// Reads keys, 128 in each request. The requests may be answered at different revisions, since the result is only used
/// in comparisons.
async fn read(client: &Arc<EtcdClient>, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    if (1..=LIMITS.conditions).contains(&keys.len()) {
        return read_part(client, keys).await;
    }
    let mut reads = Vec::new();
    for part in keys.chunks(LIMITS.conditions) {
        let client = Arc::clone(client);
        let part = part.to_vec();
        reads.push(async move { read_part(&client, &part).await });
    }
    let parts = tasks::all(IN_FLIGHT, reads).await?;
    Ok(parts.into_iter().flatten().collect())
}

/// Reads keys in one request.
async fn read_part(client: &EtcdClient, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    let ranges: Vec<Range> = keys.iter().map(|key| Range::key(key.to_string())).collect();
    let answers = client.get(&ranges, "the objects to change").await?;
    let mut objects = Vec::with_capacity(keys.len());
    for (key, mut answer) in keys.iter().zip(answers.ranges) {
        let object = answer.take_kvs().pop().map(|kv| {
            let revision = Revision::Etcd(kv.mod_revision());
            let (_, value) = kv.into_key_value();
            Stored::new(key, revision, value.into())
        });
        objects.push(object);
    }
    Ok(objects)
}

/// Commits a batch in one transaction.
async fn commit(client: &EtcdClient, batch: &Batch) -> Result<Swap> {
    let parts = Parts::new(batch).map_err(|failure| client.write_error(BATCH, failure))?;
    let response = client.write(parts.transaction(), &name_of(batch)).await?;
    if !response.succeeded() {
        return Ok(Swap::Conflict);
    }
    let revision = response.header().map_or(0, |header| header.revision());
    Ok(committed(batch, revision))
}

/// The result of a batch that was committed at a revision.
fn committed(batch: &Batch, revision: i64) -> Swap {
    Swap::Done(vec![Some(Revision::Etcd(revision)); batch.changes.len()])
}

/// The name of a batch in errors: the key of its first change.
fn name_of(batch: &Batch) -> String {
    match batch.changes.first() {
        Some(change) => change.key().to_string(),
        None => String::new(),
    }
}

/// The parts of a transaction for one or more batches. The transaction checks all preconditions before it changes
/// anything.
#[derive(Debug)]
struct Parts {
    comparisons: Vec<Compare>,
    operations: Vec<TxnOp>,
    /// Bytes of keys and values, roughly as etcd counts them.
    bytes: usize,
    /// The compared keys, each with a flag that is true if the key is also changed.
    keys: HashMap<String, bool>,
}

impl Parts {
    fn new(batch: &Batch) -> Result<Self, Failure> {
        let mut parts = Self {
            comparisons: Vec::new(),
            operations: Vec::with_capacity(batch.changes.len()),
            bytes: 0,
            keys: HashMap::new(),
        };

        let mut compared: HashMap<&Key, &Precondition> = HashMap::new();
        let changed = batch
            .changes
            .iter()
            .map(|change| (change.key(), change.precondition()));
        let evidence = batch
            .evidence
            .iter()
            .map(|(key, precondition)| (key, precondition));
        for (key, precondition) in changed.chain(evidence) {
            match compared.insert(key, precondition) {
                // Several changes can share one piece of evidence.
                Some(earlier) if earlier == precondition => continue,
                Some(_) => return Err(unsendable(format!("two different states of {key} are expected"))),
                None => {}
            }
            let path = path(key)?;
            parts.bytes += path.len() + OVERHEAD;
            parts.comparisons.push(match (precondition, key) {
                (Precondition::NoBlockSince(revision), Key::Block(network)) => {
                    let keys = key_prefix(*network);
                    Compare::create_revision(keys, CompareOp::Less, revision + 1).with_prefix()
                }
                _ => Compare::mod_revision(&*path, CompareOp::Equal, revision(precondition)?),
            });
            let is_changed = false;
            parts.keys.insert(path, is_changed);
        }

        for change in &batch.changes {
            let path = path(change.key())?;
            parts.bytes += path.len() + change.value().map_or(0, |value| value.len()) + OVERHEAD;
            parts.operations.push(match change.value() {
                // The key is written without a lease.
                Some(value) => TxnOp::put(&*path, value.as_ref(), None),
                None => TxnOp::delete(&*path, None),
            });
            let is_changed = true;
            parts.keys.insert(path, is_changed);
        }

        // etcd limits comparisons and changes separately.
        let operations = parts.comparisons.len().max(parts.operations.len());
        if operations > LIMITS.conditions || parts.bytes > LIMITS.bytes {
            let bytes = parts.bytes;
            return Err(unsendable(format!(
                "{operations} operations and {bytes} bytes are more than etcd takes in one transaction"
            )));
        }
        Ok(parts)
    }

    /// True if the batches in `other` fit into the same transaction, and neither `self` nor `other` changes a key that
    /// the other one compares. The order of the batches then does not matter.
    fn can_share_transaction_with(&self, other: &Self) -> bool {
        let fits = self.comparisons.len() + other.comparisons.len() <= LIMITS.conditions
            && self.operations.len() + other.operations.len() <= LIMITS.changes
            && self.bytes + other.bytes <= LIMITS.bytes;
        if !fits {
            return false;
        }
        for (key, is_changed_by_other) in &other.keys {
            if let Some(is_changed) = self.keys.get(key)
                && (*is_changed || *is_changed_by_other)
            {
                return false;
            }
        }
        true
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

/// Maximum bytes of one operation in addition to its key and value.
const OVERHEAD: usize = 24;

fn path(key: &Key) -> Result<String, Failure> {
    match key {
        Key::Pod { .. } | Key::Service { .. } => Err(unsendable(format!("{key} is not stored in etcd"))),
        key => Ok(key.to_string()),
    }
}

/// The longest common prefix of the keys of all blocks in a network. Keys of other blocks can have the same prefix.
fn key_prefix(network: IpNet) -> String {
    let first = Key::Block(network.network().into()).to_string();
    let last = Key::Block(network.broadcast().into()).to_string();
    // In the texts of the first and the last address, `::` may stand for zeros at the end of the network's prefix. In
    // that of an address in the middle, it may not.
    let half_len = (network.prefix_len() + 1).min(network.max_prefix_len());
    let upper_half = network.subnets(half_len).ok().and_then(Iterator::last);
    let middle_address = upper_half.unwrap_or(network).network();
    let middle = Key::Block(middle_address.into()).to_string();

    let length = common_length(&first, &middle).min(common_length(&first, &last));
    first[..length].to_owned()
}

/// The number of bytes at the beginning that two texts have in common.
fn common_length(text: &str, other: &str) -> usize {
    let pairs = text.bytes().zip(other.bytes());
    pairs.take_while(|(byte, other)| byte == other).count()
}

/// The revision to compare with, which is 0 for a missing key.
fn revision(precondition: &Precondition) -> Result<i64, Failure> {
    match precondition {
        Precondition::Absent => Ok(0),
        // Revision 0 would match a missing key. No stored key has this revision.
        Precondition::At(Revision::Etcd(revision)) if *revision > 0 => Ok(*revision),
        Precondition::At(other) => Err(unsendable(format!("{other} is not an etcd revision"))),
        _ => Err(unsendable("a write compares versions")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_blocks_in_a_network_begin_alike() {
        let networks = [
            ("10.244.0.0/16", "ipv4/block/10.244."),
            ("10.0.8.0/21", "ipv4/block/10.0."),
            ("10.64.0.0/10", "ipv4/block/10."),
            ("192.168.128.0/18", "ipv4/block/192.168.1"),
            ("10.0.0.192/26", "ipv4/block/10.0.0."),
            ("fd00:1:2::/48", "ipv6/block/fd00:1:2:"),
            ("2001:db8::/64", "ipv6/block/2001:db8:"),
            ("fd00::/48", "ipv6/block/fd00:"),
            ("::/0", "ipv6/block/"),
            ("fd00:0:0:1::/64", "ipv6/block/fd00:"),
            ("fd00::1:0:0/96", "ipv6/block/fd00::1:"),
            ("2001:db8:10::/46", "ipv6/block/2001:db8:1"),
        ];
        for (network, expected) in networks {
            let network: IpNet = network.parse().unwrap();
            let prefix = key_prefix(network);
            assert_eq!(prefix.rsplit_once("assignment/").unwrap().1, expected);
            let length = (network.prefix_len() + 10).min(network.max_prefix_len());
            for block in network.subnets(length).unwrap() {
                assert!(Key::Block(block).to_string().starts_with(&prefix), "{block}");
            }
        }
    }
}
