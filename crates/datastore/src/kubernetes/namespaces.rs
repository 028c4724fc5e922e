//! Reads namespaces. Pools with a `namespaceSelector` select namespaces by labels, and the annotations of a namespace
//! can name pools for its pods.

use std::sync::Arc;

use calipam_files::skip;
use calipam_model::snapshot::{Snapshot, Source, WhySkipped};

use super::whole::list::{self, Listed, Take};
use crate::error::Result;
use crate::kubernetes::client::{KubeClient, kinds};

/// Adds the namespaces if a pool selects namespaces or a pod waits for an address, and the user may list them.
pub(crate) async fn add_if_needed(client: &Arc<KubeClient>, snapshot: &mut Snapshot) {
    let pod_waits = snapshot.pods.iter().any(|pod| pod.value.waits());
    if pod_waits || pool_selects_namespaces(snapshot) {
        add(client, snapshot).await;
    }
}

/// Adds the namespaces if the user may list them.
pub(crate) async fn add(client: &Arc<KubeClient>, snapshot: &mut Snapshot) {
    match list::<Snapshot>(client).await {
        Ok(listed) => {
            snapshot.absorb(listed.taken);
            snapshot.mark_read([Source::Namespaces]);
        }
        // Namespaces help to explain a waiting pod; missing ones are a gap only if a pool selects namespaces.
        Err(error) if pool_selects_namespaces(snapshot) => {
            skip(snapshot, Source::Namespaces, WhySkipped::Other(error.to_string()));
        }
        Err(_) => {}
    }
}

fn pool_selects_namespaces(snapshot: &Snapshot) -> bool {
    snapshot.pools.iter().any(|pool| pool.value.selects_namespaces())
}

pub(crate) async fn list<T: Take>(client: &Arc<KubeClient>) -> Result<Listed<T>> {
    let Ok(kind) = kinds::find(client.api(), Source::Namespaces) else {
        return Ok(Listed::default());
    };
    list::list(client, &kind).await
}
