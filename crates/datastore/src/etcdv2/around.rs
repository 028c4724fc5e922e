//! Reads the data of an address or a handle from etcd v2: a few keys, each with its own request, all at one index.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_files::quiet;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::both::is_in_kubernetes;
use crate::error::Result;
use crate::etcdv2::client::{Depth, EtcdV2Client, Found};
use crate::etcdv2::whole::{Tree, observe};
use crate::etcdv2::{CONFIG, Leaf, POOLS, READY, convert, flatten, host_paths, path, pod_path};
use crate::read::around::{Lookup, PARTLY_READ_SOURCES, PodOnNode};
use crate::tasks;

/// Maximum attempts to read the keys before the tree is read in one piece.
const ATTEMPTS: usize = 3;
/// Maximum number of parallel requests.
const IN_FLIGHT: usize = 16;

/// Reads the data of an address or a handle, along with all pools and the configuration, at one index. If something is
/// written during every attempt, reads everything.
pub(crate) async fn lookup(client: &Arc<EtcdV2Client>, lookup: &Lookup) -> Result<Snapshot> {
    for _ in 0..ATTEMPTS {
        if let Some(found) = lookup_once(client, lookup).await? {
            return Ok(found);
        }
    }
    observe(client, &quiet()).await
}

/// Attempts to read the keys once; `None` if something was written in between.
async fn lookup_once(client: &Arc<EtcdV2Client>, lookup: &Lookup) -> Result<Option<Snapshot>> {
    let taken_at = crate::clock::now();
    let mut reader = Reader { client, taken_at, leaves: Vec::new(), index: None, known: BTreeSet::new() };
    let configuration = [POOLS, CONFIG, READY].map(|part| (part.to_owned(), Depth::All));
    let mut first = lookup.first_keys();
    first.push(Key::IpamConfig);
    if !reader.read(configuration.into_iter().chain(places(&first))).await? {
        return Ok(None);
    }
    let blocks = lookup.blocks(&reader.snapshot());
    if !reader.read(places(&blocks)).await? {
        return Ok(None);
    }
    let named = lookup.named(&reader.snapshot());
    let keys: Vec<Key> = named.keys.into_iter().collect();
    let endpoints_of = |pod: &PodOnNode| (pod_path(&pod.node, &pod.namespace, &pod.pod), Depth::All);
    let endpoints = named.endpoints.iter().map(endpoints_of);
    if !reader.read(places(&keys).chain(endpoints)).await? {
        return Ok(None);
    }
    let mut snapshot = reader.snapshot();
    snapshot.mark_partial(PARTLY_READ_SOURCES);
    Ok(Some(snapshot))
}

/// The paths of those objects that are in etcd. Below a host, only the tunnel address is read, since a host may have
/// hundreds of endpoints.
fn places(keys: &[Key]) -> impl Iterator<Item = (String, Depth)> {
    keys.iter().filter(|key| !is_in_kubernetes(key)).flat_map(|key| match key {
        Key::Node(name) => {
            let [host, tunnel] = host_paths(name);
            vec![(host, Depth::Own), (tunnel, Depth::All)]
        }
        key => path(key).map(|path| (path, Depth::All)).into_iter().collect(),
    })
}

/// Reads paths, each once, and keeps the existing ones.
struct Reader<'c> {
    client: &'c Arc<EtcdV2Client>,
    taken_at: Timestamp,
    leaves: Vec<Leaf>,
    /// The index of the whole store at the first answer.
    index: Option<i64>,
    known: BTreeSet<String>,
}

impl Reader<'_> {
    /// Returns false if something was written since the first answer.
    async fn read(&mut self, places: impl Iterator<Item = (String, Depth)>) -> Result<bool> {
        let reads = places.filter(|(path, _)| self.known.insert(path.clone())).map(|(path, depth)| {
            let client = Arc::clone(self.client);
            async move { client.read_to(&path, depth).await }
        });
        for Found { node, index } in tasks::all(IN_FLIGHT, reads).await? {
            if *self.index.get_or_insert(index) != index {
                return Ok(false);
            }
            flatten(node, &mut self.leaves);
        }
        Ok(true)
    }

    fn snapshot(&self) -> Snapshot {
        let tree = Tree {
            endpoint: self.client.endpoint(),
            index: self.index.unwrap_or_default(),
            taken_at: self.taken_at,
            entries: convert(&self.leaves),
        };
        tree.snapshot(|_| true)
    }
}
