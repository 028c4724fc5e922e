//! Narrow reads: some objects by name, never from a cache of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr::{BLOCK_PREFIXES_V4, BLOCK_PREFIXES_V6, block_around};
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
use crate::observe::{Lookup, Narrow, ProgressFn, records_of};

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
pub(crate) async fn lookup(client: &Arc<KubeClient>, lookup: &Lookup) -> Result<Narrow> {
    let before = client.request_count();
    if client.api().is_empty() {
        return Err(Error::NoCalicoKinds { endpoint: client.server().to_owned() });
    }
    let mut snapshot = start(client);
    let first = match lookup {
        Lookup::Address(address) => blocks_around(*address),
        Lookup::Handle(id) => vec![Key::Handle(id.clone())],
    };
    let mut known: BTreeSet<Key> = first.iter().cloned().collect();
    let configuration = async {
        let mut read = Snapshot::default();
        configuration(client, &mut read).await.map(|()| read)
    };
    let (read, fetched) = tokio::join!(configuration, fetch(client, &mut snapshot, first.into_iter()));
    fetched?;
    let mut read = read?;
    snapshot.coverage.append(&mut read.coverage);
    // The server's clock; a server that does not tell it is taken to have ours.
    let known_clock = read.taken_at != Timestamp::default();
    snapshot.taken_at = if known_clock { read.taken_at } else { Timestamp::now() };
    snapshot.absorb(read);
    if let Lookup::Handle(_) = lookup {
        let blocks = snapshot.handles.iter().flat_map(|h| h.value.blocks()).map(|(cidr, _)| Key::Block(cidr));
        let blocks: Vec<Key> = blocks.filter(|key| known.insert(key.clone())).collect();
        fetch(client, &mut snapshot, blocks.into_iter()).await?;
    }
    let owners: Vec<Key> = owners(&snapshot, lookup).into_iter().filter(|key| !known.contains(key)).collect();
    fetch(client, &mut snapshot, owners.into_iter()).await?;
    skip(&mut snapshot, Source::Endpoints, NO_ENDPOINTS);
    skip(&mut snapshot, Source::Machines, NO_MACHINES);
    Ok(Narrow { snapshot, requests: client.request_count() - before })
}

fn start(client: &KubeClient) -> Snapshot {
    Snapshot {
        datastore: DatastoreKind::Kubernetes,
        location: client.server().to_owned(),
        ..Snapshot::default()
    }
}

/// Pools, reservations and configuration: few and small.
async fn configuration(client: &Arc<KubeClient>, snapshot: &mut Snapshot) -> Result<()> {
    let quiet: ProgressFn = Arc::new(|_| {});
    let counter = Counter::new(&quiet);
    let mut running = JoinSet::new();
    for found in kinds::configuration(client.api()) {
        match found {
            Ok(kind) => {
                let (client, counter) = (Arc::clone(client), Arc::clone(&counter));
                running.spawn(async move { (kind.source, list(&client, &kind, &counter).await) });
            }
            Err((source, reason)) => skip(snapshot, source, &reason),
        }
    }
    while let Some(ended) = running.join_next().await {
        let (source, listed) = ended.map_err(|lost| lost_task(client, &lost))?;
        let Listed { taken, date, .. } = listed?;
        snapshot.absorb(taken);
        snapshot.mark_read([source]);
        snapshot.taken_at = date.map_or(snapshot.taken_at, |date| date.max(snapshot.taken_at));
    }
    Ok(())
}

fn blocks_around(address: IpAddr) -> Vec<Key> {
    let sizes = if address.is_ipv4() { BLOCK_PREFIXES_V4 } else { BLOCK_PREFIXES_V6 };
    sizes.filter_map(|size| block_around(address, size)).map(Key::Block).collect()
}

/// What the records name: handles, nodes, pods, services, and the affinities of the blocks.
pub(super) fn owners(snapshot: &Snapshot, lookup: &Lookup) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for block in snapshot.blocks.iter().filter_map(|b| b.value.content.sound()) {
        match block.owner() {
            Some(BlockOwner::Host(node)) => {
                keys.insert(Key::Node(node.clone()));
                keys.insert(affinity(block, AffinityType::Host, node));
            }
            Some(BlockOwner::Virtual(name)) => keys.extend([affinity(block, AffinityType::Virtual, name)]),
            Some(BlockOwner::Other(_)) | None => {}
        }
        for allocation in records_of(block, lookup) {
            record_keys(allocation.attribute, &mut keys);
        }
    }
    keys
}

fn affinity(block: &Block, kind: AffinityType, node: &str) -> Key {
    Key::Affinity(AffinityKey { kind, node: node.to_owned(), cidr: block.cidr() })
}

fn record_keys(record: AttributeRef<'_>, keys: &mut BTreeSet<Key>) {
    let handle = record.clean_handle().map(|handle| handle.to_string()).filter(|handle| !handle.is_empty());
    owner_keys(record.owner(), keys);
    if let Some(other) = record.alternate() {
        owner_keys(other, keys);
    }
    // `<namespace>.<pod>`, as Calico 2 wrote it.
    if record.owner().is_empty()
        && let Some((namespace, name)) = handle.as_deref().and_then(|handle| handle.split_once('.'))
    {
        keys.insert(Key::Pod { namespace: namespace.to_owned(), name: name.to_owned() });
    }
    keys.extend(handle.map(Key::Handle));
}

fn owner_keys(owner: OwnerMap<'_>, keys: &mut BTreeSet<Key>) {
    let text = |key| owner.get(key).map(|text| text.to_string()).filter(|text| !text.is_empty());
    keys.extend(text("node").map(Key::Node));
    let Some(namespace) = text("namespace") else { return };
    keys.extend(text("pod").map(|name| Key::Pod { namespace: namespace.clone(), name }));
    keys.extend(text("service").map(|name| Key::Service { namespace: namespace.clone(), name }));
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
        snapshot.coverage.entry(kind.source).or_insert(Coverage::Partial);
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
    if let Some((body, encoding)) = client.get_whole(path, kind.accept, kind.plural).await? {
        let object = match encoding {
            Encoding::Json => Some(&*body),
            Encoding::Protobuf => protobuf::object(&body),
        };
        let malformed =
            || client.error(kind.plural, Failure::Incomplete("the object is not complete".into()));
        (kind.add)(&mut snapshot, object.ok_or_else(malformed)?, encoding);
    }
    Ok(snapshot)
}

/// Where the object with that key lies; `None` for keys of what Kubernetes does not have.
pub(super) fn locate(client: &KubeClient, key: &Key) -> Option<(Kind, String)> {
    let api = client.api();
    let (kind, namespace, name) = match key {
        Key::Block(cidr) => (kinds::blocks(api).ok()?, "", block_name(*cidr)),
        Key::Affinity(key) => (kinds::affinities(api).ok()?, "", affinity_name(key)),
        Key::Handle(id) => (kinds::handles(api).ok()?, "", handle_name(id)),
        Key::Node(name) => (kinds::nodes(), "", name.clone()),
        Key::Pod { namespace, name } => (kinds::pods(), namespace.as_str(), name.clone()),
        Key::Service { namespace, name } => (kinds::services(), namespace.as_str(), name.clone()),
        Key::IpamConfig => (kinds::ipam_config(api).ok()?, "", "default".to_owned()),
        Key::Pool(name)
        | Key::Reservation(name)
        | Key::ClusterInformation(name)
        | Key::KubeControllersConfiguration(name) => {
            let source = match key {
                Key::Pool(_) => Source::Pools,
                Key::Reservation(_) => Source::Reservations,
                Key::ClusterInformation(_) => Source::ClusterInformation,
                _ => Source::KubeControllersConfiguration,
            };
            let of_source = |kind: &Kind| kind.source == source;
            (kinds::configuration(api).into_iter().flatten().find(of_source)?, "", name.clone())
        }
        Key::Endpoint { .. } | Key::IpamConfiguration(_) | Key::IpamHost(_) => return None,
    };
    if name.is_empty() {
        return None;
    }
    let path = kind.object_path(namespace, &name);
    Some((kind, path))
}
