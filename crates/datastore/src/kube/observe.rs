//! The whole read of a Kubernetes datastore.

use std::sync::Arc;

use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::client::KubeClient;
use super::error::{KubeError, KubeFailure, Permission};
use super::kinds::{self, Kind};
use super::list::{Counter, Listed, list};
use super::permission;
use crate::error::Result;
use crate::observe::ProgressFn;

/// Why there are no workload endpoints.
pub(super) const NO_ENDPOINTS: &str = "Kubernetes has none: pods are read instead";
/// Why there are no machines.
pub(super) const NO_MACHINES: &str = "KubeVirt is not installed";

/// Reads everything that a check needs.
///
/// Blocks and handles are read before what uses addresses, so that an address that is given out meanwhile is not
/// taken for a leak. Each list is at one revision; the lists are not at the same one.
///
/// # Errors
/// Where permissions are missing, Calico is not installed, or a list cannot be read whole.
pub(crate) async fn observe(client: &Arc<KubeClient>, progress: &ProgressFn) -> Result<Snapshot> {
    let api = client.api();
    if api.is_empty() {
        return Err(KubeError::NoCalico { server: client.server().to_owned() }.into());
    }
    let mut snapshot = Snapshot { datastore: DatastoreKind::Kubernetes, ..Snapshot::default() };
    let mut first = Vec::new();
    let mut second = vec![kinds::nodes(), kinds::services(), kinds::pods()];
    for found in [kinds::blocks(api), kinds::handles(api), kinds::affinities(api)] {
        keep(&mut snapshot, &mut first, found);
    }
    for found in kinds::configuration(api) {
        keep(&mut snapshot, &mut first, found);
    }
    second.extend(kinds::machines(api));
    require(client, first.iter().chain(&second)).await?;

    let counter = Counter::new(progress);
    let blocks = absorb(client, &mut snapshot, first, &counter).await?;
    let pods = absorb(client, &mut snapshot, second, &counter).await?;
    snapshot.location = client.server().to_owned();
    snapshot.taken_at = blocks.date.or(pods.date).unwrap_or_else(Timestamp::now);
    snapshot.revision = blocks.resource_version;
    skip(&mut snapshot, Source::Endpoints, NO_ENDPOINTS);
    skip(&mut snapshot, Source::Machines, NO_MACHINES);
    Ok(snapshot)
}

/// Takes a kind that is installed; of another, the coverage says why it is not read.
fn keep(snapshot: &mut Snapshot, kinds: &mut Vec<Kind>, found: std::result::Result<Kind, (Source, String)>) {
    match found {
        Ok(kind) => kinds.push(kind),
        Err((source, reason)) => skip(snapshot, source, &reason),
    }
}

/// Says why a source is not read, where it is not.
pub(super) fn skip(snapshot: &mut Snapshot, source: Source, reason: &str) {
    snapshot.coverage.entry(source).or_insert_with(|| Coverage::Skipped(reason.to_owned()));
}

/// Fails where the user may not list or get one of the kinds. Asked once for each connection.
///
/// # Errors
/// See above.
pub(super) async fn require(client: &Arc<KubeClient>, kinds: impl Iterator<Item = &Kind>) -> Result<()> {
    let permissions: Vec<Permission> = kinds
        .flat_map(|kind| {
            // Objects are read again one by one; of machines only lists are needed.
            let get = (kind.source != Source::Machines).then(|| kind.permission("get"));
            get.into_iter().chain([kind.permission("list")])
        })
        .collect();
    client.permitted.get_or_try_init(|| permission::require(client, permissions)).await.map(drop)
}

/// Reads kinds at the same time. Gives the first of them without its objects, which are in the snapshot.
///
/// # Errors
/// Where one of them cannot be read whole.
pub(super) async fn absorb(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    kinds: Vec<Kind>,
    counter: &Arc<Counter>,
) -> Result<Listed> {
    let mut running = JoinSet::new();
    let mut lists: Vec<Listed> = kinds.iter().map(|_| Listed::default()).collect();
    for (place, kind) in kinds.iter().cloned().enumerate() {
        let (client, counter) = (Arc::clone(client), Arc::clone(counter));
        running.spawn(async move { list(&client, &kind, &counter).await.map(|listed| (place, listed)) });
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(result) => {
                let (place, listed) = result?;
                lists[place] = listed;
            }
            Err(lost) => return Err(client.error("everything", KubeFailure::Other(lost.to_string()))),
        }
    }
    snapshot.mark_read(kinds.iter().map(|kind| kind.source));
    let mut first = None;
    for mut listed in lists {
        snapshot.absorb(std::mem::take(&mut listed.snapshot));
        first.get_or_insert(listed);
    }
    Ok(first.unwrap_or_default())
}
