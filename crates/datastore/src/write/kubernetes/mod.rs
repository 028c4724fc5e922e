//! Writes to Kubernetes: one object at a time, since there are no transactions. Evidence is read again just before.

pub(crate) mod change;
mod form;

use std::sync::Arc;

use calipam_model::key::Key;
use tokio::sync::OnceCell;

use self::change::{change, labels_affinities, stored};
use super::{BATCH, Batch, IN_FLIGHT, Limits, Precondition, Stored, Swap, are_expected};
use crate::client::kubernetes::KubeClient;
use crate::error::Result;
use crate::tasks;

/// Limits of a batch, which has one object. The bytes are a little below the default limit of the API server's etcd.
pub(crate) const LIMITS: Limits =
    Limits { changes: 1, conditions: 128, bytes: 1_500_000, affinity_first: false };

/// Reads objects, each by its own request.
pub(crate) async fn read(client: &Arc<KubeClient>, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    let one = |key: &Key| {
        let (client, key) = (Arc::clone(client), key.clone());
        async move { stored(&client, &key).await }
    };
    tasks::all(IN_FLIGHT, keys.iter().map(one)).await
}

/// Makes the only change in a batch. Before the first affinity, finds out if affinities get labels.
pub(crate) async fn commit(client: &Arc<KubeClient>, labels: &OnceCell<bool>, batch: &Batch) -> Result<Swap> {
    let only = batch.only().map_err(|failure| client.write_error(BATCH, failure))?;
    if !holds(client, &batch.evidence).await? {
        return Ok(Swap::Conflict);
    }
    let labels = match only.key() {
        Key::Affinity(_) => *labels.get_or_try_init(|| labels_affinities(client)).await?,
        _ => false,
    };
    change(client, only, labels).await
}

/// True if the evidence is currently as expected.
pub(crate) async fn holds(client: &Arc<KubeClient>, evidence: &[(Key, Precondition)]) -> Result<bool> {
    let keys: Vec<Key> = evidence.iter().map(|(key, _)| key.clone()).collect();
    Ok(are_expected(&read(client, &keys).await?, evidence))
}
