//! The datastore's content, decoded and shared with its readers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use calipam_assign::{Entry, Family, Query, Record, StoreError, Swap};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::snapshot::{Revision, Versioned};
use calipam_model::text::Text;
use ipnet::{Ipv4Net, Ipv6Net};

use super::blocks::Blocks;

/// The size of an object other than a block, as servers send it, in bytes.
const SMALL_OBJECT: u64 = 400;
/// The size of a block's key in a list of keys, in bytes.
const KEY: u64 = 70;

/// The size of the answer to a list request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub objects: u64,
    pub bytes: u64,
}

impl Listing {
    /// Returns the size of two answers together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The datastore's content. Even on Kubernetes, revisions are like etcd's, since the allocator only compares them.
#[derive(Clone, Default)]
pub(crate) struct Data {
    /// The blocks of each family.
    blocks: [Blocks; 2],
    affinities: BTreeMap<AffinityKey, (Affinity, i64)>,
    /// Handles by packed ID, since a large cluster has a million of them. Nothing depends on their order.
    handles: HashMap<Text, (Handle, i64), foldhash::fast::FixedState>,
    config: Option<(IpamConfig, i64)>,
    pub pools: Vec<Pool>,
    pub reservations: Vec<Reservation>,
    pub nodes: BTreeMap<String, Node>,
    revision: i64,
}

impl Data {
    /// Creates the data of a cluster without blocks.
    pub(crate) fn new(pools: Vec<Pool>, reservations: Vec<Reservation>, config: Option<IpamConfig>) -> Self {
        let config = config.map(|config| (config, 1));
        Self {
            pools,
            reservations,
            config,
            revision: 1,
            ..Self::default()
        }
    }

    /// Stores a record from before the simulation.
    pub(crate) fn preload(&mut self, record: Record) {
        self.revision += 1;
        self.put(record);
    }

    /// All blocks of both families, by CIDR.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.blocks
            .iter()
            .flat_map(|blocks| blocks.by_cidr())
            .map(|block| &block.value)
    }

    pub(crate) fn block(&self, cidr: IpNet) -> Option<&Arc<Block>> {
        self.stored_block(cidr).map(|block| &block.value)
    }

    pub(crate) fn affinities(&self) -> impl Iterator<Item = &Affinity> {
        self.affinities.values().map(|(affinity, _)| affinity)
    }

    /// All handles, in any order.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.handles.values().map(|(handle, _)| handle)
    }

    pub(crate) fn config(&self) -> Option<IpamConfig> {
        self.config.map(|(config, _)| config)
    }

    /// Returns the objects that a query asks for; none if it asks for an object that does not exist.
    pub(crate) fn read(&self, query: &Query) -> Vec<Entry> {
        match query {
            Query::Get(key) => self.get(key).into_iter().collect(),
            Query::Pools => {
                let pools = self.pools.iter().cloned();
                pools.map(|pool| entry(Record::Pool(pool), 1)).collect()
            }
            Query::Reservations => {
                let reservations = self.reservations.iter().cloned();
                reservations
                    .map(|reservation| entry(Record::Reservation(reservation), 1))
                    .collect()
            }
            Query::Affinities { kind, holder, family } => self.affinities_of(kind, holder, *family),
            Query::HostAffinities => {
                let affinities = self.affinities.values();
                affinities
                    .filter(|(affinity, _)| affinity.key.kind == AffinityType::Host)
                    .map(affinity_entry)
                    .collect()
            }
            Query::Blocks(family) => self.blocks_of(*family).by_cidr().map(block_entry).collect(),
            Query::BlockKey(cidr) => self.stored_block(*cidr).map(block_key).into_iter().collect(),
            Query::Overlapping(cidr) => {
                let overlapping = self.blocks_of(Family::of(*cidr)).overlapping(*cidr);
                overlapping.into_iter().map(block_key).collect()
            }
            Query::BlockKeys(_) | Query::BlockRevisions(_) => {
                let blocks = self.blocks.iter().flat_map(|blocks| blocks.by_cidr());
                blocks
                    .filter(|block| query.asks_for(&Key::Block(block.value.cidr())))
                    .map(block_key)
                    .collect()
            }
        }
    }

    /// The size of the list that a server reads for a query. Single objects and short lists count as size 0.
    pub(crate) fn measure(&self, query: &Query) -> Listing {
        match query {
            Query::HostAffinities => self.all_affinities(),
            Query::Blocks(family) => {
                let blocks = self.blocks_of(*family);
                Listing {
                    objects: blocks.count(),
                    bytes: blocks.bytes,
                }
            }
            Query::BlockKeys(pools) | Query::BlockRevisions(pools) => {
                // An API server reads all blocks of the family for this.
                let family = pools.first().map_or(Family::V4, |pool| Family::of(*pool));
                let objects = self.blocks_of(family).count();
                Listing {
                    objects,
                    bytes: objects * KEY,
                }
            }
            _ => Listing::default(),
        }
    }

    /// The size of a list of the affinities of all nodes.
    pub(crate) fn all_affinities(&self) -> Listing {
        let objects = self.affinities.len() as u64;
        Listing {
            objects,
            bytes: objects * SMALL_OBJECT,
        }
    }

    /// Returns the object under a key; `None` if there is none, or for objects that simulations do not have.
    fn get(&self, key: &Key) -> Option<Entry> {
        match key {
            Key::Block(cidr) => self.stored_block(*cidr).map(block_entry),
            Key::Affinity(key) => self.affinities.get(key).map(affinity_entry),
            Key::Handle(id) => {
                let (handle, revision) = self.handles.get(&Text::new(id))?;
                Some(entry(Record::Handle(handle.clone()), *revision))
            }
            Key::IpamConfig => self
                .config
                .map(|(config, revision)| entry(Record::Config(config), revision)),
            Key::Node(name) => self
                .nodes
                .get(name)
                .map(|node| entry(Record::Node(node.clone()), 1)),
            _ => None,
        }
    }

    /// Returns the affinities of a holder for blocks of a family. They are next to each other, because the keys are
    /// sorted by kind, holder and CIDR.
    fn affinities_of(&self, kind: &AffinityType, holder: &str, family: Family) -> Vec<Entry> {
        // The first CIDR of the family: all bits are zero.
        let first_cidr = match family {
            Family::V4 => IpNet::V4(Ipv4Net::default()),
            Family::V6 => IpNet::V6(Ipv6Net::default()),
        };
        let first = AffinityKey {
            kind: kind.clone(),
            node: holder.to_owned(),
            cidr: first_cidr,
        };
        let mut entries = Vec::new();
        for (key, affinity) in self.affinities.range(&first..) {
            if key.kind != *kind || key.node != holder || Family::of(key.cidr) != family {
                break;
            }
            entries.push(affinity_entry(affinity));
        }
        entries
    }

    /// Writes or deletes an object, and returns the datastore's new revision.
    ///
    /// # Errors
    /// If the object is not at the revision that was read, or exists although none was.
    pub(crate) fn swap(&mut self, swap: Swap) -> Result<Revision, StoreError> {
        let key = swap.record.key();
        let current = self.get(&key).map(|entry| entry.revision);
        swap.expect(current.as_ref())?;

        self.revision += 1;
        if swap.deletes {
            self.remove(&key);
        } else {
            self.put(swap.record);
        }
        Ok(Revision::Etcd(self.revision))
    }

    /// Deletes the object under a key. Objects that no client deletes stay.
    fn remove(&mut self, key: &Key) {
        match key {
            Key::Block(cidr) => self.blocks_mut(Family::of(*cidr)).remove(*cidr),
            Key::Affinity(key) => {
                self.affinities.remove(key);
            }
            Key::Handle(id) => {
                self.handles.remove(&Text::new(id));
            }
            Key::IpamConfig => self.config = None,
            // No client deletes other objects.
            _ => {}
        }
    }

    /// Stores a record at the current revision, in place of an earlier one. Ignores records that no client writes.
    fn put(&mut self, record: Record) {
        let revision = self.revision;
        match record {
            Record::Block(block) => self.blocks_mut(Family::of(block.cidr())).insert(block, revision),
            Record::Affinity(affinity) => {
                self.affinities.insert(affinity.key.clone(), (affinity, revision));
            }
            Record::Handle(handle) => {
                self.handles
                    .insert(Text::new(&handle.id().to_string()), (handle, revision));
            }
            Record::Config(config) => self.config = Some((config, revision)),
            Record::BlockKey(_)
            | Record::Pool(_)
            | Record::Reservation(_)
            | Record::Node(_)
            | Record::Host(_)
            | Record::Undecodable { .. } => {}
        }
    }

    fn stored_block(&self, cidr: IpNet) -> Option<&Versioned<Arc<Block>>> {
        self.blocks_of(Family::of(cidr)).get(cidr)
    }

    fn blocks_of(&self, family: Family) -> &Blocks {
        &self.blocks[family as usize]
    }

    fn blocks_mut(&mut self, family: Family) -> &mut Blocks {
        &mut self.blocks[family as usize]
    }
}

fn block_entry(block: &Versioned<Arc<Block>>) -> Entry {
    Entry {
        record: Record::Block(Arc::clone(&block.value)),
        revision: block.revision.clone(),
    }
}

fn block_key(block: &Versioned<Arc<Block>>) -> Entry {
    Entry {
        record: Record::BlockKey(block.value.cidr()),
        revision: block.revision.clone(),
    }
}

fn affinity_entry((affinity, revision): &(Affinity, i64)) -> Entry {
    entry(Record::Affinity(affinity.clone()), *revision)
}

fn entry(record: Record, revision: i64) -> Entry {
    Entry {
        record,
        revision: Revision::Etcd(revision),
    }
}
