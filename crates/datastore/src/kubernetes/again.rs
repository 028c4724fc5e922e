//! Reads single objects by name, never from the server's cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use calipam_files::objects::names::affinity_name;
use calipam_files::objects::{Encoding, protobuf};
use calipam_model::key::{DEFAULT, Key};
use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use calipam_model::{cidr, handle};

use crate::error::{Error, Failure, Result};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::{self, Kind};
use crate::kubernetes::whole::list::list;
use crate::tasks;

/// Maximum number of parallel requests.
const IN_FLIGHT: usize = 16;
/// Maximum number of objects of one kind to read one by one. If more are needed, all objects of the kind are listed.
const MAX_ONE_BY_ONE: usize = 1_000;

/// Reads some objects again. The result omits missing objects.
pub(crate) async fn reread(client: &Arc<KubeClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    let mut snapshot = empty_snapshot(client);
    fetch(client, &mut snapshot, keys.iter().cloned()).await?;
    snapshot.taken_at = crate::clock::now();
    Ok(snapshot)
}

/// A snapshot of this cluster without objects.
pub(crate) fn empty_snapshot(client: &KubeClient) -> Snapshot {
    Snapshot {
        datastore: DatastoreKind::Kubernetes,
        location: client.server().to_owned(),
        ..Snapshot::default()
    }
}

/// Adds the objects with these keys to the snapshot; if there are many keys of one kind, adds all objects of the kind.
pub(crate) async fn fetch(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    keys: impl Iterator<Item = Key>,
) -> Result<()> {
    let mut reads = Vec::new();
    for (kind, paths) in paths_by_kind(client, keys) {
        snapshot
            .coverage
            .entry(kind.known.source)
            .or_insert(Coverage::Partial);
        if paths.len() > MAX_ONE_BY_ONE {
            snapshot.absorb(list(client, &kind).await?.taken);
            continue;
        }
        for path in paths {
            let client = Arc::clone(client);
            let kind = kind.clone();
            reads.push(async move { read_decoded(&client, &kind, &path).await });
        }
    }

    // Missing objects are left out.
    for object in tasks::all(IN_FLIGHT, reads).await?.into_iter().flatten() {
        snapshot.absorb(object);
    }
    Ok(())
}

/// Like [`read_one`], but without the object as the API server sent it.
async fn read_decoded(client: &KubeClient, kind: &Kind, path: &str) -> Result<Option<Snapshot>> {
    let read = read_one(client, kind, path).await?;
    Ok(read.map(|(snapshot, _)| snapshot))
}

/// The paths of the objects with these keys, for each kind.
fn paths_by_kind(client: &KubeClient, keys: impl Iterator<Item = Key>) -> Vec<(Kind, Vec<String>)> {
    let mut by_path_of_kind: BTreeMap<String, (Kind, Vec<String>)> = BTreeMap::new();
    for key in keys {
        if let Some((kind, path)) = locate(client, &key) {
            let (_, paths) = by_path_of_kind
                .entry(kind.path.clone())
                .or_insert_with(|| (kind, Vec::new()));
            paths.push(path);
        }
    }
    by_path_of_kind.into_values().collect()
}

/// Reads the current state of one object, never from a cache; `None` if it does not exist. Returns a snapshot that
/// contains only this object, and the object as the API server sent it.
///
/// # Errors
/// If the server fails, rejects the request, or does not answer in time, or if the answer is cut off.
pub(crate) async fn read_one(
    client: &KubeClient,
    kind: &Kind,
    path: &str,
) -> Result<Option<(Snapshot, Bytes)>> {
    let read = client
        .get_whole(path, kind.known.accept, kind.known.plural)
        .await?;
    let Some((body, encoding)) = read else {
        return Ok(None);
    };
    let object = match encoding {
        Encoding::Json => &*body,
        Encoding::Protobuf => protobuf::object(&body).ok_or_else(|| incomplete(client, kind))?,
    };
    let mut snapshot = Snapshot::default();
    kind.known.add(&mut snapshot, object, encoding);
    Ok(Some((snapshot, body)))
}

/// The error for an answer that was cut off.
pub(crate) fn incomplete(client: &KubeClient, kind: &Kind) -> Error {
    client.error(
        kind.known.plural,
        Failure::Incomplete("the object is not complete".into()),
    )
}

/// The kind and path of the object with this key; `None` for keys without an object in Kubernetes.
pub(crate) fn locate(client: &KubeClient, key: &Key) -> Option<(Kind, String)> {
    let (source, namespace, name) = match key {
        Key::Block(cidr) => (Source::Blocks, "", cidr::resource_name(*cidr)),
        Key::Affinity(key) => (Source::Affinities, "", affinity_name(key)),
        Key::Handle(id) => (Source::Handles, "", handle::resource_name(id)),
        Key::Node(name) => (Source::Nodes, "", name.clone()),
        Key::Pod { namespace, name } => (Source::Pods, namespace.as_str(), name.clone()),
        Key::Service { namespace, name } => (Source::Services, namespace.as_str(), name.clone()),
        Key::IpamConfig => (Source::IpamConfig, "", DEFAULT.to_owned()),
        Key::Pool(name) => (Source::Pools, "", name.clone()),
        Key::Reservation(name) => (Source::Reservations, "", name.clone()),
        Key::ClusterInformation(name) => (Source::ClusterInformation, "", name.clone()),
        Key::KubeControllersConfiguration(name) => (Source::KubeControllersConfiguration, "", name.clone()),
        Key::Endpoint { .. } | Key::IpamConfiguration(_) | Key::IpamHost(_) => return None,
    };
    if name.is_empty() {
        // The path would be that of all objects of the kind.
        return None;
    }
    let kind = kinds::find(client.api(), source).ok()?;
    let path = kind.object_path(namespace, &name);
    Some((kind, path))
}
