//! Writing to etcd: one transaction for each batch (facts 1.15).

use std::collections::HashMap;
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::Revision;

use super::object::Stored;
use super::{Batch, Expect, Limits, Swap};
use crate::error::{Error, Failure, Result};
use crate::etcd::EtcdClient;
use crate::etcd::message::Range;
use crate::etcd::transaction::{Swapped, Transaction};
use crate::kube::KubeClient;

/// What etcd takes by default: `--max-txn-ops` 128, counted for comparisons and for changes each, and
/// `--max-request-bytes` 1.5 MiB, of which a little is left for its own wrapping.
pub(super) const LIMITS: Limits = Limits { changes: 128, conditions: 128, bytes: 1_500_000 };

/// Reads keys, 128 in each request. Each request is at one revision of its own: what is read is only
/// ever used in comparisons.
pub(super) async fn read(
    client: &Arc<EtcdClient>,
    beside: Option<&Arc<KubeClient>>,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>> {
    if let Some(beside) = beside.filter(|_| keys.iter().any(is_beside)) {
        return read_both(client, beside, keys).await;
    }
    let mut found = Vec::with_capacity(keys.len());
    for part in keys.chunks(LIMITS.conditions) {
        let ranges: Vec<Range> = part.iter().map(|key| Range::key(key.to_string())).collect();
        let replies = client.ranges(&ranges, "what is to be changed").await?;
        for (key, reply) in part.iter().zip(replies) {
            let mut stored = None;
            reply
                .for_each(|entry| {
                    let revision = Revision::Etcd(entry.mod_revision);
                    stored = Some(Stored::new(key, revision, reply.part(entry.value)));
                })
                .ok_or_else(|| refused(client, Failure::NotEtcd("its answer cannot be read".into())))?;
            found.push(stored);
        }
    }
    Ok(found)
}

/// True for what lies in Kubernetes only.
fn is_beside(key: &Key) -> bool {
    matches!(key, Key::Pod { .. } | Key::Service { .. })
}

/// Reads keys of which some lie in Kubernetes.
async fn read_both(
    client: &Arc<EtcdClient>,
    beside: &Arc<KubeClient>,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>> {
    let (others, own): (Vec<Key>, Vec<Key>) = keys.iter().cloned().partition(is_beside);
    let own = Box::pin(read(client, None, &own)).await?;
    let (mut own, mut others) = (own.into_iter(), super::kube::read(beside, &others).await?.into_iter());
    let next = |key: &Key| if is_beside(key) { others.next() } else { own.next() };
    Ok(keys.iter().map(next).map(Option::flatten).collect())
}

/// Makes the changes of a batch in one transaction. Evidence that lies in Kubernetes is read just before.
pub(super) async fn commit(
    client: &Arc<EtcdClient>,
    beside: Option<&Arc<KubeClient>>,
    batch: &Batch,
) -> Result<Swap> {
    if batch.changes.is_empty() {
        return Ok(Swap::Done(Vec::new()));
    }
    if let Some(beside) = beside
        && !super::kube::holds(beside, batch.evidence.iter().filter(|(key, _)| is_beside(key))).await?
    {
        return Ok(Swap::Lost);
    }
    let transaction =
        transaction(batch, beside.is_some()).map_err(|reason| refused(client, Failure::Other(reason)))?;
    let what = batch.changes[0].key().to_string();
    Ok(match client.swap(transaction, &what).await? {
        Swapped::At(revision) => Swap::Done(vec![Some(Revision::Etcd(revision)); batch.changes.len()]),
        Swapped::Lost => Swap::Lost,
    })
}

fn refused(client: &EtcdClient, failure: Failure) -> Error {
    client.write_error("a batch of changes", failure)
}

fn transaction(batch: &Batch, without_beside: bool) -> std::result::Result<Transaction, String> {
    let mut transaction = Transaction::default();
    let mut expected: HashMap<&Key, &Expect> = HashMap::new();
    let changed = batch.changes.iter().map(|change| (change.key(), change.expect()));
    let own = batch.evidence.iter().filter(|(key, _)| !(without_beside && is_beside(key)));
    for (key, expect) in changed.chain(own.map(|(key, expect)| (key, expect))) {
        match expected.insert(key, expect) {
            // Several changes can rest on one piece of evidence.
            Some(before) if before == expect => continue,
            Some(_) => return Err(format!("two different states of {key} are expected")),
            None => transaction.compare(&path(key)?, revision(expect)?),
        }
    }
    for change in &batch.changes {
        match change.value() {
            Some(value) => transaction.put(&path(change.key())?, value),
            None => transaction.delete(&path(change.key())?),
        }
    }
    if transaction.operations() > LIMITS.conditions || transaction.size() > LIMITS.bytes {
        return Err(format!(
            "{} operations and {} bytes are more than etcd takes in one transaction",
            transaction.operations(),
            transaction.size()
        ));
    }
    Ok(transaction)
}

/// The path of a key that lies in etcd.
fn path(key: &Key) -> std::result::Result<String, String> {
    match key {
        Key::Pod { .. } | Key::Service { .. } => Err(format!("{key} does not lie in etcd")),
        key => Ok(key.to_string()),
    }
}

/// The revision to compare with. A key that does not exist compares as 0.
fn revision(expect: &Expect) -> std::result::Result<i64, String> {
    match expect {
        Expect::Absent => Ok(0),
        // 0 would be true of an absent key; no stored key has it.
        Expect::At(Revision::Etcd(revision)) if *revision > 0 => Ok(*revision),
        Expect::At(other) => Err(format!("{other} is no revision of etcd")),
    }
}
