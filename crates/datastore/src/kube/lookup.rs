//! Reading some objects by name, never from a cache of the server: around an address or a handle, and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::client::KubeClient;
use super::items::{Encoding, protobuf};
use super::kinds::{self, Kind};
use super::list::{Counter, Listed, list};
use super::object::names::{affinity_name, block_name, handle_name};
use super::observe::{NO_ENDPOINTS, NO_MACHINES, skip};
use crate::error::{Error, Failure, Result};
use crate::observe::{Lookup, ProgressFn};

/// Requests that are under way at the same time.
const IN_FLIGHT: usize = 16;
/// Objects of one kind above which the whole kind is listed instead.
const MOST_ONE_BY_ONE: usize = 1_000;

/// Reads some objects again. An object that is gone is not in the result.
///
/// # Errors
/// Where the server fails, refuses, or does not answer in time.
pub(crate) async fn reread(client: &Arc<KubeClient>, keys: &BTreeSet<Key>) -> Result<Snapshot> {
    let mut snapshot = start(client);
    fetch(client, &mut snapshot, keys.iter().cloned()).await?;
    snapshot.taken_at = Timestamp::now();
    Ok(snapshot)
}

/// Reads around an address or a handle.
///
/// # Errors
/// As [`reread`].
pub(crate) async fn lookup(client: &Arc<KubeClient>, lookup: &Lookup) -> Result<Snapshot> {
    if client.api().is_empty() {
        return Err(Error::NoCalicoKinds { endpoint: client.server().to_owned() });
    }

    let mut snapshot = start(client);
    let first = lookup.first_keys();
    let mut known: BTreeSet<Key> = first.iter().cloned().collect();
    let (read, fetched) =
        tokio::join!(configuration(client), fetch(client, &mut snapshot, first.into_iter()));
    fetched?;
    let mut read = read?;
    snapshot.coverage.append(&mut read.coverage);
    // The server's clock; a server that does not tell it is taken to have ours.
    let known_clock = read.taken_at != Timestamp::default();
    snapshot.taken_at = if known_clock { read.taken_at } else { Timestamp::now() };
    snapshot.absorb(read);

    let mut blocks = lookup.blocks(&snapshot);
    blocks.retain(|key| known.insert(key.clone()));
    fetch(client, &mut snapshot, blocks.into_iter()).await?;
    let mut named = lookup.named(&snapshot).keys;
    named.retain(|key| !known.contains(key));
    fetch(client, &mut snapshot, named.into_iter()).await?;

    skip(&mut snapshot, Source::Endpoints, NO_ENDPOINTS);
    skip(&mut snapshot, Source::Machines, NO_MACHINES);
    Ok(snapshot)
}

fn start(client: &KubeClient) -> Snapshot {
    Snapshot {
        datastore: DatastoreKind::Kubernetes,
        location: client.server().to_owned(),
        ..Snapshot::default()
    }
}

/// Pools, reservations and configuration: few and small.
async fn configuration(client: &Arc<KubeClient>) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let quiet: ProgressFn = Arc::new(|_| {});
    let counter = Counter::new(&quiet);
    let mut running = JoinSet::new();
    for found in kinds::configuration(client.api()) {
        match found {
            Ok(kind) => {
                let (client, counter) = (Arc::clone(client), Arc::clone(&counter));
                running.spawn(async move { (kind.known.source, list(&client, &kind, &counter).await) });
            }
            Err((source, reason)) => skip(&mut snapshot, source, &reason),
        }
    }

    while let Some(ended) = running.join_next().await {
        let (source, listed) = ended.map_err(|lost| lost_task(client, &lost))?;
        let Listed { taken, date, .. } = listed?;
        snapshot.absorb(taken);
        snapshot.mark_read([source]);
        snapshot.taken_at = date.map_or(snapshot.taken_at, |date| date.max(snapshot.taken_at));
    }
    Ok(snapshot)
}

/// Adds the objects with those keys to the snapshot.
async fn fetch(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    keys: impl Iterator<Item = Key>,
) -> Result<()> {
    let mut wanted: BTreeMap<String, (Kind, Vec<String>)> = BTreeMap::new();
    for key in keys {
        if let Some((kind, path)) = locate(client, &key) {
            wanted.entry(kind.path.clone()).or_insert_with(|| (kind, Vec::new())).1.push(path);
        }
    }
    let quiet: ProgressFn = Arc::new(|_| {});
    let counter = Counter::new(&quiet);
    let mut single = Vec::new();
    for (kind, paths) in wanted.into_values() {
        snapshot.coverage.entry(kind.known.source).or_insert(Coverage::Partial);
        if paths.len() > MOST_ONE_BY_ONE {
            snapshot.absorb(list(client, &kind, &counter).await?.taken);
        } else {
            single.extend(paths.into_iter().map(|path| (kind.clone(), path)));
        }
    }
    let mut waiting = single.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < IN_FLIGHT
            && let Some((kind, path)) = waiting.next()
        {
            let client = Arc::clone(client);
            running.spawn(async move { one(&client, &kind, &path).await });
        }
        match running.join_next().await {
            None => return Ok(()),
            Some(Ok(read)) => snapshot.absorb(read?),
            Some(Err(lost)) => return Err(lost_task(client, &lost)),
        }
    }
}

fn lost_task(client: &KubeClient, lost: &tokio::task::JoinError) -> Error {
    client.error("some objects", Failure::Other(lost.to_string()))
}

/// Reads one object; nothing where it is gone.
async fn one(client: &KubeClient, kind: &Kind, path: &str) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    if let Some((body, encoding)) = client.get_whole(path, kind.known.accept, kind.known.plural).await? {
        let object = match encoding {
            Encoding::Json => Some(&*body),
            Encoding::Protobuf => protobuf::object(&body),
        };
        let malformed =
            || client.error(kind.known.plural, Failure::Incomplete("the object is not complete".into()));
        (kind.known.add)(&mut snapshot, object.ok_or_else(malformed)?, encoding);
    }
    Ok(snapshot)
}

/// Where the object with that key lies; `None` for keys of what Kubernetes does not have.
pub(super) fn locate(client: &KubeClient, key: &Key) -> Option<(Kind, String)> {
    let (source, namespace, name) = match key {
        Key::Block(cidr) => (Source::Blocks, "", block_name(*cidr)),
        Key::Affinity(key) => (Source::Affinities, "", affinity_name(key)),
        // No name has a carriage return; the handle that is cut at it is another key.
        Key::Handle(id) if id.contains('\r') => return None,
        Key::Handle(id) => (Source::Handles, "", handle_name(id)),
        Key::Node(name) => (Source::Nodes, "", name.clone()),
        Key::Pod { namespace, name } => (Source::Pods, namespace.as_str(), name.clone()),
        Key::Service { namespace, name } => (Source::Services, namespace.as_str(), name.clone()),
        Key::IpamConfig => (Source::IpamConfig, "", "default".to_owned()),
        Key::Pool(name) => (Source::Pools, "", name.clone()),
        Key::Reservation(name) => (Source::Reservations, "", name.clone()),
        Key::ClusterInformation(name) => (Source::ClusterInformation, "", name.clone()),
        Key::KubeControllersConfiguration(name) => (Source::KubeControllersConfiguration, "", name.clone()),
        Key::Endpoint { .. } | Key::IpamConfiguration(_) | Key::IpamHost(_) => return None,
    };
    if name.is_empty() {
        return None;
    }
    let kind = kinds::find(client.api(), source).ok()?;
    let path = kind.object_path(namespace, &name);
    Some((kind, path))
}
