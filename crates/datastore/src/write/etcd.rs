//! Writing to etcd: one transaction for each batch (facts 1.15).

use std::collections::HashMap;
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};

use super::object::Stored;
use super::{Batch, Expect, Limits, Swap};
use crate::client::etcd::{EtcdClient, Range};
use crate::client::kubernetes::KubeClient;
use crate::error::{Error, Failure, Result};
use crate::read::with_kubernetes::is_in_kubernetes;

/// What etcd takes by default: `--max-txn-ops` 128, counted for comparisons and for changes each, and
/// `--max-request-bytes` 1.5 MiB, of which a little is left for its own wrapping.
pub(crate) const LIMITS: Limits =
    Limits { changes: 128, conditions: 128, bytes: 1_500_000, affinity_first: false };

/// Reads keys, 128 in each request. Each request is at one revision of its own: what is read is only
/// ever used in comparisons.
pub(crate) async fn read(
    client: &Arc<EtcdClient>,
    kubernetes: Option<&Arc<KubeClient>>,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>> {
    if let Some(kubernetes) = kubernetes.filter(|_| keys.iter().any(is_in_kubernetes)) {
        return read_both(client, kubernetes, keys).await;
    }
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

/// Reads keys of which some are in Kubernetes.
async fn read_both(
    client: &Arc<EtcdClient>,
    kubernetes: &Arc<KubeClient>,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>> {
    let (others, own): (Vec<Key>, Vec<Key>) = keys.iter().cloned().partition(is_in_kubernetes);
    let own = Box::pin(read(client, None, &own)).await?;
    let (mut own, mut others) =
        (own.into_iter(), super::kubernetes::read(kubernetes, &others).await?.into_iter());
    let next = |key: &Key| if is_in_kubernetes(key) { others.next() } else { own.next() };
    Ok(keys.iter().map(next).map(Option::flatten).collect())
}

/// Makes the changes of a batch in one transaction. Evidence in Kubernetes is read just before.
pub(crate) async fn commit(
    client: &Arc<EtcdClient>,
    kubernetes: Option<&Arc<KubeClient>>,
    batch: &Batch,
) -> Result<Swap> {
    if batch.changes.is_empty() {
        return Ok(Swap::Done(Vec::new()));
    }
    if let Some(kubernetes) = kubernetes
        && !super::kubernetes::holds(
            kubernetes,
            batch.evidence.iter().filter(|(key, _)| is_in_kubernetes(key)),
        )
        .await?
    {
        return Ok(Swap::Lost);
    }
    let transaction =
        transaction(batch, kubernetes.is_some()).map_err(|reason| refused(client, Failure::Other(reason)))?;
    let what = batch.changes[0].key().to_string();

    let response = client.write(transaction, &what).await?;
    if !response.succeeded() {
        return Ok(Swap::Lost);
    }
    let revision = response.header().map_or(0, |header| header.revision());
    Ok(Swap::Done(vec![Some(Revision::Etcd(revision)); batch.changes.len()]))
}

fn refused(client: &EtcdClient, failure: Failure) -> Error {
    client.write_error("a batch of changes", failure)
}

/// The transaction that compares everything that the batch expects before it changes anything.
fn transaction(batch: &Batch, kubernetes_compared: bool) -> std::result::Result<Txn, String> {
    let mut expected: HashMap<&Key, &Expect> = HashMap::new();
    let mut comparisons = Vec::new();
    let mut bytes = 0;

    let changed = batch.changes.iter().map(|change| (change.key(), change.expect()));
    let own = batch.evidence.iter().filter(|(key, _)| !(kubernetes_compared && is_in_kubernetes(key)));
    for (key, expect) in changed.chain(own.map(|(key, expect)| (key, expect))) {
        match expected.insert(key, expect) {
            // Several changes can rest on one piece of evidence.
            Some(before) if before == expect => continue,
            Some(_) => return Err(format!("two different states of {key} are expected")),
            None => {}
        }
        let path = path(key)?;
        bytes += path.len() + OVERHEAD;
        comparisons.push(Compare::mod_revision(path, CompareOp::Equal, revision(expect)?));
    }

    let mut operations = Vec::with_capacity(batch.changes.len());
    for change in &batch.changes {
        let path = path(change.key())?;
        bytes += path.len() + change.value().map_or(0, |value| value.len()) + OVERHEAD;
        operations.push(match change.value() {
            // Without a lease.
            Some(value) => TxnOp::put(path, value.as_ref(), None),
            None => TxnOp::delete(path, None),
        });
    }

    // etcd counts comparisons and changes each for itself.
    let number = comparisons.len().max(operations.len());
    if number > LIMITS.conditions || bytes > LIMITS.bytes {
        let taken = "more than etcd takes in one transaction";
        return Err(format!("{number} operations and {bytes} bytes are {taken}"));
    }
    Ok(Txn::new().when(comparisons).and_then(operations))
}

/// Bytes around the key and value of one operation, at most.
const OVERHEAD: usize = 24;

/// The path of a key that is stored in etcd.
fn path(key: &Key) -> std::result::Result<String, String> {
    match key {
        Key::Pod { .. } | Key::Service { .. } => Err(format!("{key} is not stored in etcd")),
        key => Ok(key.to_string()),
    }
}

/// The revision to compare with. A key that does not exist compares as 0.
fn revision(expect: &Expect) -> std::result::Result<i64, String> {
    match expect {
        Expect::Absent => Ok(0),
        // 0 would be true of an absent key; no stored key has it.
        Expect::At(Revision::Etcd(revision)) if *revision > 0 => Ok(*revision),
        Expect::Records(..) | Expect::Says(_) => Err("a write compares versions".into()),
        Expect::At(other) => Err(format!("{other} is not a revision of etcd")),
    }
}
