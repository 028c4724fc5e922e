//! Reads pods, services and machines from the API server of a cluster with the etcd datastore, to compare them with
//! Calico's records.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::{ProgressFn, skip};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::feed::{Broken, Followed, WholeReadReason};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::{
    self, Clock, Counter, KubeFeed, Listed, Lists, add_users, lists, no_kubevirt, positions, require,
};
use crate::read::Lookup;
use crate::read::around::is_in_kubernetes;
use crate::retries::retried;
use crate::write::{Batch, Limits, Objects, Stored, Swap};

/// Adds pods, services and machines to a snapshot of etcd. They are read after the snapshot, so that an address
/// assigned in between does not look like a leak.
///
/// # Errors
/// If permissions are missing, if a list cannot be read completely, or if Calico nodes refer to fewer than half of the
/// cluster's nodes, which means that the cluster does not use this etcd.
pub(crate) async fn add(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    progress: &ProgressFn,
) -> Result<()> {
    let kinds = readable_kinds(client).await?;
    let reader = Lists {
        client: Arc::clone(client),
        counter: counter(snapshot, progress),
    };
    let lists = lists::<Snapshot>(&reader, &kinds).await?;
    add_lists(client, snapshot, lists)
}

/// Returns the kinds that are read from Kubernetes if the datastore is etcd, or an error if the user may not read them.
async fn readable_kinds(client: &Arc<KubeClient>) -> Result<Vec<Kind>> {
    let kinds = kinds::users_with_node_names(client.api());
    require(client, &kinds).await?;
    Ok(kinds)
}

/// Reads everything from etcd and Kubernetes and starts to follow both.
///
/// # Errors
/// If one of them cannot be read or followed.
pub(crate) async fn follow(
    etcd: &dyn Backend,
    client: &Arc<KubeClient>,
    progress: &ProgressFn,
) -> Result<(Snapshot, Followed), Broken> {
    if etcd.revisions().is_none() {
        return Err(WholeReadReason::NotForThisDatastore.into());
    }
    let kinds = readable_kinds(client).await?;
    kubernetes::require_proof(client, &kinds).await?;

    // etcd is read first, so that an address assigned in between does not look like a leak.
    let (mut snapshot, etcd_feed) = etcd.follow(progress).await?;

    let clock = Clock::starting_at(crate::clock::now());
    let reader = Lists {
        client: Arc::clone(client),
        counter: counter(&snapshot, progress),
    };
    let lists = lists::<Snapshot>(&reader, &kinds).await?;
    let positions = positions(&kinds, &lists);
    add_lists(client, &mut snapshot, lists)?;
    let kubernetes_feed = KubeFeed::begin(client, kinds, &positions, clock, &mut snapshot);

    let feeds = vec![etcd_feed, Box::new(kubernetes_feed)];
    Ok((snapshot, Followed::new(feeds)))
}

/// Creates a counter for the lists that are read from Kubernetes after a snapshot of etcd.
fn counter(snapshot: &Snapshot, progress: &ProgressFn) -> Arc<Counter> {
    let Snapshot {
        blocks,
        affinities,
        handles,
        endpoints,
        nodes,
        ..
    } = snapshot;
    let read_from_etcd = blocks.len() + affinities.len() + handles.len() + endpoints.len() + nodes.len();
    Counter::after(read_from_etcd as u64, progress)
}

/// Adds the lists of Kubernetes to the snapshot of etcd, after a check that both belong to the same cluster.
fn add_lists(client: &KubeClient, snapshot: &mut Snapshot, lists: Vec<Listed<Snapshot>>) -> Result<()> {
    let mut kubernetes = Snapshot::default();
    for listed in lists {
        kubernetes.absorb(listed.taken);
    }

    snapshot.kubernetes_is_younger = require_same_cluster(client, snapshot, &kubernetes)?;
    snapshot.absorb(kubernetes);
    snapshot.mark_read([Source::Pods, Source::Services]);
    let kinds = kinds::users_with_node_names(client.api());
    if kinds.iter().any(|kind| kind.known.source == Source::Machines) {
        snapshot.mark_read([Source::Machines]);
    }
    skip(snapshot, Source::Machines, no_kubevirt());
    Ok(())
}

/// Reads the objects with these keys again from Kubernetes, and adds them to the snapshot.
pub(crate) async fn reread(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    keys: &BTreeSet<Key>,
) -> Result<()> {
    snapshot.absorb(kubernetes::reread(client, keys).await?);
    snapshot.mark_partial([Source::Pods, Source::Services]);
    Ok(())
}

/// Adds pods and services to the data of an address or handle in etcd: those that the records name, and pods that may
/// use the address.
pub(crate) async fn add_around(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    lookup: &Lookup,
) -> Result<()> {
    let mut keys = lookup.named(snapshot).keys;
    keys.retain(is_in_kubernetes);
    reread(client, snapshot, &keys).await?;
    add_users(client, snapshot, lookup).await
}

/// Checks that etcd and Kubernetes belong to the same cluster, by the Calico nodes' orchestrator references `k8s`.
/// Returns true if most of the Kubernetes nodes found are younger than the Calico nodes that refer to them, so this may
/// still be a different cluster.
fn require_same_cluster(client: &KubeClient, etcd: &Snapshot, kubernetes: &Snapshot) -> Result<bool> {
    // The creation times of the Calico nodes, by the names of the Kubernetes nodes to which they refer.
    let mut calico_created: HashMap<&str, Option<Timestamp>> = HashMap::new();
    for node in etcd.nodes.iter().map(|stored| &stored.value) {
        if let Some(kubernetes_name) = node.kubernetes_name.as_deref() {
            calico_created.insert(kubernetes_name, node.created);
        }
    }

    let all = kubernetes.kubernetes_nodes.len();
    let mut found = 0;
    let mut younger = 0;
    for node in kubernetes.kubernetes_nodes.iter().map(|stored| &stored.value) {
        let Some(calico_created) = calico_created.get(node.name.as_str()) else {
            continue;
        };
        found += 1;
        if let Some(created) = node.created
            && let Some(calico_created) = calico_created
            && created.duration_since(*calico_created) > CLOCK_SKEW
        {
            younger += 1;
        }
    }

    if 2 * found < all {
        let message = format!(
            "{}: is not the cluster that uses this etcd: only {found} of its {all} nodes are among Calico's",
            client.server()
        );
        let hint = "name the kubeconfig or context of the cluster that uses this etcd, or none to read etcd alone, or `--datastore kubernetes` if Calico keeps its data there";
        return Err(Error::other(message, hint));
    }
    Ok(2 * younger > found)
}

/// Accesses single objects in etcd, and reads pods and services from the cluster's API server, which can be evidence.
#[derive(Debug)]
pub(crate) struct Both {
    pub etcd: Arc<dyn Objects>,
    pub kubernetes: Arc<KubeClient>,
}

#[async_trait]
impl Objects for Both {
    fn kind(&self) -> DatastoreKind {
        self.etcd.kind()
    }

    fn limits(&self) -> Limits {
        self.etcd.limits()
    }

    /// Reads objects from etcd and from Kubernetes, and returns them in the order of their keys.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        let (kubernetes_keys, etcd_keys): (Vec<Key>, Vec<Key>) =
            keys.iter().cloned().partition(is_in_kubernetes);
        let mut etcd_objects = Vec::new();
        if !etcd_keys.is_empty() {
            etcd_objects = self.etcd.read(&etcd_keys).await?;
        }
        let kubernetes_objects = retried(|| kubernetes::read(&self.kubernetes, &kubernetes_keys)).await?;

        // Both lists are in the order of their keys.
        let mut etcd_objects = etcd_objects.into_iter();
        let mut kubernetes_objects = kubernetes_objects.into_iter();
        let mut objects = Vec::with_capacity(keys.len());
        for key in keys {
            let object = if is_in_kubernetes(key) {
                kubernetes_objects.next()
            } else {
                etcd_objects.next()
            };
            objects.push(object.flatten());
        }
        Ok(objects)
    }

    fn converted(&self, batch: Batch) -> Batch {
        self.etcd.converted(batch)
    }

    /// Checks evidence in Kubernetes just before it commits the batch to etcd.
    async fn commit(&self, batch: &Batch) -> Result<Swap> {
        let (kubernetes_evidence, etcd_evidence): (Vec<_>, Vec<_>) = batch
            .evidence
            .iter()
            .cloned()
            .partition(|(key, _)| is_in_kubernetes(key));
        if kubernetes_evidence.is_empty() {
            return self.etcd.commit(batch).await;
        }
        if !kubernetes::holds(&self.kubernetes, &kubernetes_evidence).await? {
            return Ok(Swap::Conflict);
        }
        let etcd_batch = Batch {
            changes: batch.changes.clone(),
            evidence: etcd_evidence,
        };
        self.etcd.commit(&etcd_batch).await
    }
}
