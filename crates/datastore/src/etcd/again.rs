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

/// Maximum number of parallel requests.
const IN_FLIGHT: usize = 4;

/// Reads keys again at one new revision, a hundred keys in each request. The result omits missing keys.
pub(crate) async fn reread(client: &Arc<EtcdClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    match reread_once(client, keys).await {
        Err(error) if error.is_transient() => reread_once(&client.again().await?, keys).await,
        result => result,
    }
}

/// Reads the objects with these keys, all at one revision.
async fn reread_once(client: &Arc<EtcdClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    let ranges: Vec<Range> = keys.iter().map(|key| Range::key(key.to_string())).collect();
    let mut requests = ranges.chunks(MAX_OPERATIONS).map(<[Range]>::to_vec);
    let (revision, mut snapshot) = match requests.next() {
        Some(first) => read(client, first).await?,
        None => (0, Snapshot::default()),
    };
    let taken_at = crate::clock::now();

    // The first request fixes the revision. The other requests read at that revision in parallel.
    let further = requests.map(|ranges| {
        let client = Arc::clone(client);
        let pinned = ranges.into_iter().map(|range| range.at(revision)).collect();
        async move { read(&client, pinned).await }
    });
    for (_, part) in tasks::all(IN_FLIGHT, further).await? {
        snapshot.absorb(part);
    }

    snapshot.set_origin(redact_url(client.endpoint()), revision, taken_at);
    snapshot.mark_partial(ETCD_SOURCES);
    Ok(snapshot)
}

/// Reads ranges in one request, and returns their objects with the revision.
async fn read(client: &EtcdClient, ranges: Vec<Range>) -> Result<(i64, Snapshot)> {
    let mut snapshot = Snapshot::default();
    let answers = client.get(&ranges, "objects that might have changed").await?;
    for entry in answers.entries() {
        snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    }
    Ok((answers.revision, snapshot))
}
