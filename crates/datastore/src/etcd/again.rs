//! Reads some keys again to see if they have changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};

use crate::error::Result;
use crate::etcd::around::MAX_OPERATIONS;
use crate::etcd::client::{EtcdClient, Range};
use crate::secret::redact_url;
use crate::tasks;

/// Maximum number of parallel requests, so that other clients of etcd are not slowed down.
const IN_FLIGHT: usize = 4;

/// Reads keys again at one new revision, a hundred keys in each request. The result omits missing keys.
pub(crate) async fn reread(client: &Arc<EtcdClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    match read_at_one_revision(client, keys).await {
        Err(error) if error.is_transient() => read_at_one_revision(&client.reconnect().await?, keys).await,
        result => result,
    }
}

/// Reads the objects with these keys, all at one revision: the first request tells the current revision, and the
/// others read at that revision.
async fn read_at_one_revision(client: &Arc<EtcdClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    let ranges: Vec<Range> = keys.iter().map(|key| Range::key(key.to_string())).collect();
    let mut parts = ranges.chunks(MAX_OPERATIONS);
    let mut revision = 0;
    let mut snapshot = Snapshot::default();
    if let Some(first) = parts.next() {
        (revision, snapshot) = read(Arc::clone(client), first.to_vec()).await?;
    }
    let taken_at = crate::clock::now();

    let mut requests = Vec::new();
    for part in parts {
        let ranges_then = part.iter().map(|range| range.clone().at(revision)).collect();
        requests.push(read(Arc::clone(client), ranges_then));
    }
    for (_, part) in tasks::all(IN_FLIGHT, requests).await? {
        snapshot.absorb(part);
    }

    snapshot.set_origin(redact_url(client.endpoint()), revision, taken_at);
    // The snapshot has only the requested objects of these sources.
    snapshot.mark_partial(ETCD_SOURCES);
    Ok(snapshot)
}

/// Reads ranges in one request, and returns their objects with the revision.
async fn read(client: Arc<EtcdClient>, ranges: Vec<Range>) -> Result<(i64, Snapshot)> {
    let mut snapshot = Snapshot::default();
    let answers = client.get(&ranges, "objects that might have changed").await?;
    for entry in answers.entries() {
        snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    }
    Ok((answers.revision, snapshot))
}
