//! Writes to Kubernetes, one object at a time, since Kubernetes has no transactions. Evidence is read again just before
//! each write.

pub(super) mod change;
mod form;

use std::sync::Arc;

use async_trait::async_trait;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Source};
use tokio::sync::OnceCell;

use self::change::{change, needs_affinity_labels, require, stored};
use super::client::KubeClient;
use crate::error::Result;
use crate::retries::retried;
use crate::tasks;
use crate::write::{BATCH, Batch, IN_FLIGHT, Limits, Objects, Precondition, Stored, Swap, are_expected};

/// Single objects on Kubernetes.
#[derive(Debug)]
pub(super) struct KubeObjects {
    client: Arc<KubeClient>,
    /// True if affinities are written with labels; unset until an affinity is written.
    labels: OnceCell<bool>,
}

impl KubeObjects {
    pub(super) fn new(client: &Arc<KubeClient>) -> Self {
        Self {
            client: Arc::clone(client),
            labels: OnceCell::new(),
        }
    }

    /// True if the object with this key needs labels. Finds out before the first affinity is written if affinities do.
    async fn needs_labels(&self, key: &Key) -> Result<bool> {
        let Key::Affinity(_) = key else {
            return Ok(false);
        };
        let labels = self
            .labels
            .get_or_try_init(|| needs_affinity_labels(&self.client))
            .await?;
        Ok(*labels)
    }
}

#[async_trait]
impl Objects for KubeObjects {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::Kubernetes
    }

    /// Allows one changed object per batch. The limit in bytes is a little below the default limit of the API server's
    /// etcd.
    fn limits(&self) -> Limits {
        Limits {
            changes: 1,
            conditions: 128,
            bytes: 1_500_000,
            affinity_first: false,
        }
    }

    async fn may_write(&self, sources: &[Source], lock: bool) -> Result<()> {
        require(&self.client, sources, lock).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        retried(|| read(&self.client, keys)).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Swap> {
        let client = &self.client;
        let only = batch
            .only()
            .map_err(|failure| client.write_error(BATCH, failure))?;
        if !holds(client, &batch.evidence).await? {
            return Ok(Swap::Conflict);
        }
        let labels = self.needs_labels(only.key()).await?;
        change(client, only, labels).await
    }
}

/// Reads objects, each with its own request.
pub(crate) async fn read(client: &Arc<KubeClient>, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    let mut reads = Vec::new();
    for key in keys {
        let client = Arc::clone(client);
        let key = key.clone();
        reads.push(async move { stored(&client, &key).await });
    }
    tasks::all(IN_FLIGHT, reads).await
}

/// True if the evidence is currently as expected.
pub(crate) async fn holds(client: &Arc<KubeClient>, evidence: &[(Key, Precondition)]) -> Result<bool> {
    let keys: Vec<Key> = evidence.iter().map(|(key, _)| key.clone()).collect();
    Ok(are_expected(&read(client, &keys).await?, evidence))
}
