//! Where the many objects lie that are looked up by a name, so that a step does not read all of them.

use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::snapshot::{Snapshot, StoredBlock};

use super::near::{Near, Place, place_of_block, place_of_endpoint, place_of_handle};
use crate::FastMap;
use crate::owner::{each_identity, is_nameless};
use crate::parallel::{in_parts, in_parts_of_few};
use crate::rules::{hash_of_bytes, hash_of_name};

/// Places of blocks, handles and endpoints by their names. Others may seem to have a name, too.
#[derive(Debug)]
pub(super) struct Places {
    /// Blocks by the IDs of handles that they record.
    recording: Lookup,
    handles: Lookup,
    /// Endpoints by the identities of their workloads.
    named: Lookup,
    /// Endpoints by the nodes, packed, that they name: how many there are at a place.
    nodes: Nodes,
}

type Nodes = FastMap<Box<[u8]>, FastMap<Place, u32>>;

/// What [`Places`] know of some objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    recording: Vec<Entry>,
    handles: Vec<Entry>,
    named: Vec<Entry>,
    nodes: Vec<(Box<[u8]>, Place)>,
}

impl Places {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let blocks = in_parts_of_few(snapshot.blocks.len(), |range| {
            let mut entries = Entries::default();
            snapshot.blocks[range].iter().for_each(|block| entries.add_block(&block.value));
            entries.recording
        });
        let handles = in_parts(snapshot.handles.len(), |range| {
            let mut entries = Entries::default();
            snapshot.handles[range].iter().for_each(|handle| entries.add_handle(&handle.value));
            entries.handles
        });
        let recording = Lookup::new(&blocks);
        let handles = Lookup::new(&handles);

        let endpoints = in_parts(snapshot.endpoints.len(), |range| {
            let (mut entries, mut nodes) = (Entries::default(), Nodes::default());
            for endpoint in snapshot.endpoints[range].iter().map(|endpoint| &endpoint.value) {
                entries.add_names(endpoint);
                add_node(&mut nodes, endpoint.node().packed(), place_of_endpoint(endpoint), 1);
            }
            (entries.named, nodes)
        });
        let (named, parts): (Vec<Vec<Entry>>, Vec<Nodes>) = endpoints.into_iter().unzip();
        let mut nodes = Nodes::default();
        for (node, counts) in parts.into_iter().flatten() {
            counts.into_iter().for_each(|(place, count)| add_node(&mut nodes, &node, place, count));
        }
        Self { recording, handles, named: Lookup::new(&named), nodes }
    }

    /// Takes over that some objects have become others.
    pub(super) fn change(&mut self, gone: Entries, come: Entries) {
        self.recording.change(gone.recording, come.recording);
        self.handles.change(gone.handles, come.handles);
        self.named.change(gone.named, come.named);
        come.nodes.iter().for_each(|(node, place)| add_node(&mut self.nodes, node, *place, 1));
        for (node, place) in gone.nodes {
            let Some(counts) = self.nodes.get_mut(&node) else { continue };
            if let Some(count) = counts.get_mut(&place) {
                *count -= 1;
                counts.retain(|_, count| *count > 0);
            }
            if counts.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }

    /// Adds the blocks that record the handle.
    pub(super) fn add_recording(&self, handle: u64, near: &mut Near) {
        self.recording.places(handle).for_each(|place| near.add(place));
    }

    /// Adds the handle.
    pub(super) fn add_handle(&self, handle: u64, near: &mut Near) {
        self.handles.places(handle).for_each(|place| near.add(place));
    }

    /// Adds the endpoints of an identity.
    pub(super) fn add_named(&self, identity: &[u8], near: &mut Near) {
        if is_nameless(identity) {
            return near.add_everything();
        }
        self.named.places(hash_of_bytes(identity)).for_each(|place| near.add(place));
    }

    /// The nodes, packed, that endpoints name, each with a place where one does.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&[u8], Place)> {
        self.nodes.iter().filter_map(|(node, counts)| Some((&**node, *counts.keys().next()?)))
    }
}

fn add_node(nodes: &mut Nodes, node: &[u8], place: Place, count: u32) {
    if !nodes.contains_key(node) {
        nodes.insert(node.into(), FastMap::default());
    }
    if let Some(counts) = nodes.get_mut(node) {
        *counts.entry(place).or_default() += count;
    }
}

impl Entries {
    pub(super) fn of(objects: &Snapshot) -> Self {
        let mut entries = Self::default();
        objects.blocks.iter().for_each(|block| entries.add_block(&block.value));
        objects.handles.iter().for_each(|handle| entries.add_handle(&handle.value));
        objects.endpoints.iter().for_each(|endpoint| entries.add_endpoint(&endpoint.value));
        entries
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.recording.extend(other.recording);
        self.handles.extend(other.handles);
        self.named.extend(other.named);
        self.nodes.extend(other.nodes);
    }

    fn add_block(&mut self, block: &StoredBlock) {
        let place = place_of_block(block.key);
        let ids = block.content.usable().into_iter().flat_map(|block| block.handles());
        let hashes = ids.map(|(_, id)| hash_of_name(id.cut_at_carriage_return()));
        self.recording.extend(hashes.map(|hash| entry(hash, place)));
    }

    fn add_handle(&mut self, handle: &Handle) {
        let hash = hash_of_name(handle.id().cut_at_carriage_return());
        self.handles.push(entry(hash, place_of_handle(handle)));
    }

    fn add_endpoint(&mut self, endpoint: &Endpoint) {
        self.add_names(endpoint);
        self.nodes.push((endpoint.node().packed().into(), place_of_endpoint(endpoint)));
    }

    fn add_names(&mut self, endpoint: &Endpoint) {
        each_identity(&mut Vec::new(), &endpoint.texts(), |identity| {
            if !is_nameless(identity) {
                self.named.push(entry(hash_of_bytes(identity), place_of_endpoint(endpoint)));
            }
        });
    }
}

/// The first half of a hash, and a place.
type Entry = u64;

fn entry(hash: u64, place: Place) -> Entry {
    hash >> u32::BITS << u32::BITS | u64::from(place)
}

/// Places by hashes: sorted, in parts that are short enough for an entry to be put in its place. As often as it was added, an
/// entry is there.
#[derive(Debug)]
struct Lookup(Vec<Vec<Entry>>);

/// How many parts there are, by the first bits of the hash.
const SHARDS: usize = 1 << 10;

fn shard_of(entry: Entry) -> usize {
    (entry >> (u64::BITS - SHARDS.ilog2())) as usize
}

impl Default for Lookup {
    fn default() -> Self {
        Self(vec![Vec::new(); SHARDS])
    }
}

impl Lookup {
    fn new(parts: &[Vec<Entry>]) -> Self {
        let mut lookup = Self::default();
        let expected = parts.iter().map(Vec::len).sum::<usize>() / SHARDS;
        // Hashes are spread evenly, but not quite.
        lookup.0.iter_mut().for_each(|shard| shard.reserve_exact(expected + expected / 16));
        parts.iter().flatten().for_each(|entry| lookup.0[shard_of(*entry)].push(*entry));
        lookup.0.iter_mut().for_each(|shard| shard.sort_unstable());
        lookup
    }

    fn change(&mut self, gone: Vec<Entry>, come: Vec<Entry>) {
        for entry in come {
            let shard = &mut self.0[shard_of(entry)];
            if shard.len() == shard.capacity() {
                shard.reserve_exact(shard.len() / 16 + 4);
            }
            shard.insert(shard.partition_point(|other| *other < entry), entry);
        }
        for entry in gone {
            let shard = &mut self.0[shard_of(entry)];
            if let Ok(position) = shard.binary_search(&entry) {
                shard.remove(position);
            }
        }
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = Place> {
        let first = entry(hash, 0);
        let shard = &self.0[shard_of(first)];
        let from = shard.partition_point(|entry| *entry < first);
        let same = shard[from..].iter().take_while(move |entry| **entry >> u32::BITS == first >> u32::BITS);
        same.map(|entry| *entry as Place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_there_as_often_as_it_was_added() {
        let hash = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let all: Vec<Entry> =
            (0..9_000).map(|number| entry(hash(number % 3_000), number as u32 % 2)).collect();
        let mut lookup = Lookup::new(&[all[..6_000].to_vec(), Vec::new()]);
        lookup.change(all[..3_000].to_vec(), all[6_000..].to_vec());
        for number in 0..3_000 {
            let mut places: Vec<Place> = lookup.places(hash(number)).collect();
            places.sort_unstable();
            assert_eq!(places, [number as u32 % 2; 2], "{number}");
        }
        lookup.change(all[3_000..].to_vec(), Vec::new());
        assert!(lookup.0.iter().all(Vec::is_empty));
    }

    #[test]
    fn a_node_is_known_as_long_as_an_endpoint_names_it() {
        let at = |places: &[Place]| {
            let nodes = places.iter().map(|place| (b"node-1".as_slice().into(), *place)).collect();
            Entries { nodes, ..Entries::default() }
        };
        let mut places = Places::new(&Snapshot::default());
        let mut come = at(&[1]);
        come.extend(at(&[1, 2]));
        places.change(Entries::default(), come);
        places.change(at(&[2, 1]), Entries::default());
        assert_eq!(places.nodes().collect::<Vec<_>>(), [(b"node-1".as_slice(), 1)]);
        places.change(at(&[1]), Entries::default());
        assert_eq!(places.nodes().next(), None);
    }
}
