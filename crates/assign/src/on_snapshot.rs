//! A snapshot as an allocator's datastore. Writes are only kept in memory, so that they can be shown before they are
//! made in the real datastore.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::cidr_set::around;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::parallel::lock;
use calipam_model::pool::Reservation;
use calipam_model::snapshot::{DatastoreKind, DefectKind, Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::words::joined;
use foldhash::fast::FixedState;
use jiff::Timestamp;

use crate::record::Record;
use crate::store::{Entry, Query, Store, StoreError, Swap};

/// A snapshot with indexes for the allocator, built once for many requests.
pub(crate) struct IndexedSnapshot<'s> {
    pub(crate) snapshot: &'s Snapshot,
    /// The stored blocks, ascending by CIDR; `None` for those that cannot be decoded.
    pub(crate) blocks: Vec<(IpNet, Option<&'s Versioned<StoredBlock>>)>,
    nodes: HashMap<&'s str, usize>,
    /// The positions of the affinities in the snapshot, by holder.
    affinities: HashMap<(&'s AffinityType, &'s str), Vec<usize>>,
    /// The position of each affinity.
    by_key: HashMap<&'s AffinityKey, usize>,
    /// Objects that cannot be decoded, each with the reason.
    undecodable: BTreeMap<&'s Key, &'s str>,
    /// The CIDRs of the blocks that have owners, by owner, ascending.
    owned: OnceLock<HashMap<BlockOwner, Vec<IpNet>>>,
}

impl<'s> IndexedSnapshot<'s> {
    /// Indexes a snapshot: its blocks by CIDR, its nodes by name, and its affinities by holder and key.
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let mut blocks = Vec::new();
        for block in &snapshot.blocks {
            blocks.push((block.value.key, Some(block)));
        }
        for cidr in snapshot.hidden_blocks() {
            blocks.push((cidr, None));
        }
        blocks.sort_by_key(|(cidr, _)| *cidr);
        blocks.dedup_by_key(|(cidr, _)| *cidr);

        let mut nodes = HashMap::new();
        for (position, node) in snapshot.nodes.iter().enumerate() {
            nodes.insert(node.value.name.as_str(), position);
        }

        let mut affinities: HashMap<_, Vec<usize>> = HashMap::new();
        let mut by_key = HashMap::new();
        for (position, affinity) in snapshot.affinities.iter().enumerate() {
            let key = &affinity.value.key;
            let holder = (&key.kind, key.node.as_str());
            affinities.entry(holder).or_default().push(position);
            by_key.entry(key).or_insert(position);
        }

        let mut undecodable = BTreeMap::new();
        for defect in &snapshot.defects {
            if let (Some(key), DefectKind::Value(reason)) = (&defect.key, &defect.kind) {
                undecodable.insert(key, reason.as_str());
            }
        }
        Self {
            snapshot,
            blocks,
            nodes,
            affinities,
            by_key,
            undecodable,
            owned: OnceLock::new(),
        }
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'s Versioned<Node>> {
        let position = self.nodes.get(name)?;
        Some(&self.snapshot.nodes[*position])
    }

    pub(crate) fn block(&self, cidr: IpNet) -> Option<&'s Versioned<StoredBlock>> {
        self.stored(cidr).flatten()
    }

    /// True for a block that cannot be decoded.
    pub(crate) fn is_undecodable_block(&self, cidr: IpNet) -> bool {
        self.stored(cidr).is_some_and(|block| block.is_none())
    }

    /// Returns a stored block; `Some(None)` if it cannot be decoded.
    fn stored(&self, cidr: IpNet) -> Option<Option<&'s Versioned<StoredBlock>>> {
        let position = self.blocks.binary_search_by_key(&cidr, |(cidr, _)| *cidr).ok()?;
        let (_, block) = self.blocks[position];
        Some(block)
    }

    /// The CIDRs of the blocks that belong to an owner.
    fn owned(&self, owner: &BlockOwner) -> &[IpNet] {
        let owned = self.owned.get_or_init(|| blocks_by_owner(self.snapshot));
        owned.get(owner).map_or(&[], Vec::as_slice)
    }

    /// True if the cluster's Calico lists affinities by their labels.
    pub(crate) fn lists_by_label(&self) -> bool {
        match &self.snapshot.cluster {
            Some(cluster) if self.snapshot.datastore == DatastoreKind::Kubernetes => {
                cluster.finds_affinities_by_labels()
            }
            _ => false,
        }
    }

    /// Returns the CIDR of the smallest block that contains an address, even one that cannot be decoded; `None` if no
    /// block contains it.
    pub(crate) fn block_around(&self, address: IpAddr) -> Option<IpNet> {
        let single = IpNet::from(address);
        if self.stored(single).is_some() {
            return Some(single);
        }
        let mut larger_blocks = around(&self.blocks, single, |(cidr, _)| *cidr);
        let smallest = larger_blocks.find(|range| !range.is_empty())?;
        let (cidr, _) = self.blocks[smallest.start];
        Some(cidr)
    }

    /// The affinities of a holder, including those that are marked deleted.
    pub(crate) fn affinities_of<'a>(
        &'a self,
        kind: &'a AffinityType,
        holder: &'a str,
    ) -> impl Iterator<Item = &'s Versioned<Affinity>> {
        let snapshot = self.snapshot;
        let positions = self.affinities.get(&(kind, holder));
        positions
            .into_iter()
            .flatten()
            .map(move |position| &snapshot.affinities[*position])
    }
}

/// Returns the CIDRs of the blocks that have owners, by owner, ascending.
fn blocks_by_owner(snapshot: &Snapshot) -> HashMap<BlockOwner, Vec<IpNet>> {
    let mut owned: HashMap<BlockOwner, Vec<IpNet>> = HashMap::new();
    for stored in &snapshot.blocks {
        let StoredBlock { key, content } = &stored.value;
        let Some(owner) = content.owner() else { continue };
        // The owner is cloned only once.
        if let Some(blocks) = owned.get_mut(owner) {
            blocks.push(*key);
        } else {
            owned.insert(owner.clone(), vec![*key]);
        }
    }
    for blocks in owned.values_mut() {
        blocks.sort_unstable();
    }
    owned
}

/// A datastore on top of a snapshot, which itself does not change. Reads see earlier writes. The clock always shows the
/// time of the snapshot.
pub struct SnapshotStore<'s> {
    indexed: Arc<IndexedSnapshot<'s>>,
    /// Addresses that are excluded from automatic assignment, as by a reservation.
    pub avoided: Vec<IpAddr>,
    /// True if affinities without labels are not listed, as in Calico versions that list them by label (facts 2.5).
    lists_by_label: bool,
    /// True if an object that is marked deleted is gone once it is read. On etcd, Calico ignores the mark.
    finishes_deletions: bool,
    /// True if blocks whose free list contradicts their records are used as Calico uses them.
    trusts_free_lists: bool,
    /// The blocks that were read, as entries.
    read: Mutex<HashMap<IpNet, Entry, FixedState>>,
    writes: Mutex<Writes>,
}

#[derive(Default)]
struct Writes {
    /// The objects after their last write; `None` for deleted ones.
    current: BTreeMap<Key, Option<Entry>>,
    /// The keys of written objects, in the order of their first writes.
    order: Vec<Key>,
    count: i64,
}

impl Writes {
    /// True if a query asks for an object, and the object is still as in the snapshot.
    fn is_unwritten(&self, query: &Query, key: &Key) -> bool {
        query.asks_for(key) && !self.current.contains_key(key)
    }

    /// The written objects that a query asks for, without deleted ones.
    fn written(&self, query: &Query) -> impl Iterator<Item = Entry> {
        let asked_for = self.current.iter().filter(|(key, _)| query.asks_for(key));
        asked_for.filter_map(|(_, entry)| entry.clone())
    }
}

/// A change to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub key: Key,
    /// The object in the snapshot; `None` if it does not exist there.
    pub before: Option<Entry>,
    /// The object after the change; `None` if it was deleted.
    pub after: Option<Record>,
}

impl<'s> SnapshotStore<'s> {
    pub fn new(snapshot: &'s Snapshot) -> Self {
        Self::with_index(Arc::new(IndexedSnapshot::new(snapshot)))
    }

    /// Creates a store without writes on an indexed snapshot.
    pub(crate) fn with_index(indexed: Arc<IndexedSnapshot<'s>>) -> Self {
        Self {
            avoided: Vec::new(),
            lists_by_label: false,
            finishes_deletions: indexed.snapshot.datastore == DatastoreKind::Kubernetes,
            indexed,
            trusts_free_lists: false,
            read: Mutex::default(),
            writes: Mutex::default(),
        }
    }

    /// Answers reads as the cluster's Calico sees the datastore.
    pub(crate) fn like_calico(mut self) -> Self {
        self.lists_by_label = self.indexed.lists_by_label();
        self.trusts_free_lists = true;
        self
    }

    /// The changes, in the order of each object's first write. Leaves out objects that in the end are the same as in
    /// the snapshot.
    pub fn into_writes(self) -> Vec<Write> {
        let written = std::mem::take(&mut *lock(&self.writes));
        let mut changes = Vec::new();
        for key in &written.order {
            let Some(entry) = written.current.get(key) else {
                continue;
            };
            let before = self.stored(key);
            let after = entry.clone().map(|entry| entry.record);
            if before.as_ref().map(|entry| &entry.record) != after.as_ref() {
                changes.push(Write {
                    key: key.clone(),
                    before,
                    after,
                });
            }
        }
        changes
    }

    pub(crate) fn has_writes(&self) -> bool {
        !lock(&self.writes).current.is_empty()
    }

    /// Returns the entry under a key in the snapshot, whatever was written since; `None` if there is no such object.
    fn stored(&self, key: &Key) -> Option<Entry> {
        let snapshot = self.indexed.snapshot;
        let found = match key {
            Key::Block(cidr) => self.indexed.block(*cidr).map(|stored| self.block(stored)),
            Key::Affinity(key) => {
                let index = self.indexed.by_key.get(key);
                let affinity = index.map(|index| &snapshot.affinities[*index]);
                affinity.map(entry(Record::Affinity))
            }
            Key::Handle(id) => {
                let mut handles = snapshot.handles.iter();
                let handle = handles.find(|handle| handle.value.id() == **id);
                handle.map(entry(Record::Handle))
            }
            Key::Node(name) => self.indexed.node(name).map(entry(Record::Node)),
            Key::IpamConfig => snapshot.ipam_config.map(|config| Entry {
                record: Record::Config(config),
                // The revision does not matter, since nothing that runs on a snapshot writes the configuration.
                revision: Revision::Etcd(0),
            }),
            _ => None,
        };
        found.or_else(|| self.undecodable(key))
    }

    /// Returns the entry of an object that cannot be decoded; `None` for any other key.
    fn undecodable(&self, key: &Key) -> Option<Entry> {
        let reason = self.indexed.undecodable.get(key)?;
        Some(undecodable(key.clone(), (*reason).to_owned()))
    }

    /// Returns the entry under a key after all writes, even if it is marked deleted; `None` if there is none.
    fn current(&self, key: &Key) -> Option<Entry> {
        match lock(&self.writes).current.get(key) {
            Some(written) => written.clone(),
            None => self.stored(key),
        }
    }

    /// Writes a record, or deletes the object if `record` is `None`, and returns the new revision.
    fn put(&self, key: Key, record: Option<Record>) -> Revision {
        let mut writes = lock(&self.writes);
        writes.count += 1;
        // No revision in a snapshot has this value.
        let revision = Revision::Etcd(i64::MIN + writes.count);
        let entry = record.map(|record| Entry {
            record,
            revision: revision.clone(),
        });
        if writes.current.insert(key.clone(), entry).is_none() {
            writes.order.push(key);
        }
        revision
    }

    /// Reads the current entry under a key; `None` if there is none. Like each of Calico's reads, removes an object
    /// that is marked deleted, in place of the client that marked it: it may never come to remove it.
    fn read_finishing_deletion(&self, key: &Key) -> Option<Entry> {
        let found = self.current(key)?;
        if self.finishes_deletions && is_marked_deleted(&found.record) {
            self.put(key.clone(), None);
            return None;
        }
        Some(found)
    }

    /// Answers a query from the snapshot and the writes. [`Query::Get`] and [`Query::BlockKey`] get at most one entry.
    fn answer_to(&self, query: &Query) -> Vec<Entry> {
        let snapshot = self.indexed.snapshot;
        match query {
            Query::Get(key) => self.read_finishing_deletion(key).into_iter().collect(),
            Query::Pools => snapshot.pools.iter().map(entry(Record::Pool)).collect(),
            Query::Reservations => self.reservations(),
            Query::Affinities { kind, holder, .. } => {
                self.affinities(query, self.indexed.affinities_of(kind, holder))
            }
            Query::HostAffinities => self.affinities(query, snapshot.affinities.iter()),
            Query::Blocks(_) => self.blocks(query),
            Query::BlockKey(cidr) => self.current(&Key::Block(*cidr)).iter().map(block_key).collect(),
            Query::Overlapping(_) | Query::BlockKeys(_) | Query::BlockRevisions(_) => self.block_keys(query),
        }
    }

    /// Returns the reservations of the snapshot. If there are addresses to avoid, one more reserves them, so that the
    /// allocator passes them over like any reserved address.
    fn reservations(&self) -> Vec<Entry> {
        let stored = self.indexed.snapshot.reservations.iter();
        let mut entries: Vec<Entry> = stored.map(entry(Record::Reservation)).collect();
        if self.avoided.is_empty() {
            return entries;
        }

        let avoided = Reservation {
            name: String::new(),
            cidrs: self.avoided.iter().map(|address| IpNet::from(*address)).collect(),
        };
        entries.push(Entry {
            record: Record::Reservation(avoided),
            revision: Revision::Etcd(0),
        });
        entries
    }

    /// Returns the affinities that a query asks for: those in `stored`, or as they were written since. Leaves out those
    /// that Calico's list would not contain.
    fn affinities(&self, query: &Query, stored: impl Iterator<Item = &'s Versioned<Affinity>>) -> Vec<Entry> {
        let writes = lock(&self.writes);
        let is_wanted = |affinity: &&Versioned<Affinity>| {
            let is_unlabeled = self.lists_by_label && !affinity.wrong_labels().is_empty();
            let is_deleted = self.finishes_deletions && affinity.value.deleted;
            if is_unlabeled || is_deleted {
                return false;
            }
            let key = Key::Affinity(affinity.value.key.clone());
            writes.is_unwritten(query, &key)
        };
        stored
            .filter(is_wanted)
            .map(entry(Record::Affinity))
            .chain(writes.written(query))
            .collect()
    }

    /// The blocks that a query asks for: those of the snapshot, then those that were written.
    fn blocks(&self, query: &Query) -> Vec<Entry> {
        let writes = lock(&self.writes);
        let mut entries = Vec::new();
        for stored in &self.indexed.snapshot.blocks {
            if writes.is_unwritten(query, &Key::Block(stored.value.key)) {
                entries.push(self.block(stored));
            }
        }
        for cidr in self.indexed.snapshot.hidden_blocks() {
            let key = Key::Block(cidr);
            if writes.is_unwritten(query, &key) {
                entries.push(undecodable(key, "it cannot be decoded".into()));
            }
        }
        entries.extend(writes.written(query));
        entries
    }

    /// The entry of a block. A block is copied once, however often it is read.
    fn block(&self, stored: &Versioned<StoredBlock>) -> Entry {
        let mut read = lock(&self.read);
        read.entry(stored.value.key)
            .or_insert_with(|| self.copied(stored))
            .clone()
    }

    /// Copies a block of the snapshot as Calico reads it. A block that Calico cannot decode becomes an undecodable
    /// record.
    fn copied(&self, stored: &Versioned<StoredBlock>) -> Entry {
        let content = &stored.value.content;
        let usable = if self.trusts_free_lists {
            content.as_calico_takes()
        } else {
            content.usable().map(Cow::Borrowed)
        };
        let problems = match content {
            BlockContent::Sound(_) => &[][..],
            BlockContent::Corrupt(block) => &block.problems,
        };
        let record = match usable {
            Some(block) => Record::Block(Arc::new(block.into_owned())),
            None => Record::Undecodable {
                key: Key::Block(stored.value.key),
                reason: joined(problems, "; "),
            },
        };
        Entry {
            record,
            revision: stored.revision.clone(),
        }
    }

    /// The keys of the blocks that a query asks for: those of the snapshot, then those that were written.
    fn block_keys(&self, query: &Query) -> Vec<Entry> {
        let writes = lock(&self.writes);
        let snapshot = self.indexed.snapshot;
        let mut entries = Vec::new();
        for stored in &snapshot.blocks {
            let cidr = stored.value.key;
            if writes.is_unwritten(query, &Key::Block(cidr)) {
                entries.push(Entry {
                    record: Record::BlockKey(cidr),
                    revision: stored.revision.clone(),
                });
            }
        }
        for cidr in snapshot.hidden_blocks() {
            if writes.is_unwritten(query, &Key::Block(cidr)) {
                entries.push(Entry {
                    record: Record::BlockKey(cidr),
                    revision: Revision::Etcd(0),
                });
            }
        }
        for written in writes.written(query) {
            entries.push(block_key(&written));
        }
        entries
    }
}

/// Runs an operation on a snapshot, and returns its result. Such an operation never waits for anything, so that it
/// needs no runtime.
pub fn without_waiting<T>(operation: impl Future<Output = T>) -> T {
    let mut operation = pin!(operation);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Returns a block's entry without its content. An entry of another kind stays as it is.
fn block_key(found: &Entry) -> Entry {
    let record = match found.record.key() {
        Key::Block(cidr) => Record::BlockKey(cidr),
        _ => found.record.clone(),
    };
    Entry {
        record,
        revision: found.revision.clone(),
    }
}

/// Returns a function that turns an object of the snapshot into a store entry.
fn entry<T: Clone>(record: fn(T) -> Record) -> impl Fn(&Versioned<T>) -> Entry {
    move |stored| Entry {
        record: record(stored.value.clone()),
        revision: stored.revision.clone(),
    }
}

fn undecodable(key: Key, reason: String) -> Entry {
    Entry {
        record: Record::Undecodable { key, reason },
        revision: Revision::Etcd(0),
    }
}

/// True if Calico has marked the object as deleted, but has not removed it yet.
fn is_marked_deleted(record: &Record) -> bool {
    match record {
        Record::Block(block) => block.is_deleted(),
        Record::Affinity(affinity) => affinity.deleted,
        Record::Handle(handle) => handle.is_deleted(),
        _ => false,
    }
}

impl Store for SnapshotStore<'_> {
    fn now(&self) -> Timestamp {
        self.indexed.snapshot.taken_at
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        Ok(queries.iter().map(|query| self.answer_to(query)).collect())
    }

    fn owned_blocks(&self, owner: &BlockOwner) -> Vec<IpNet> {
        self.indexed.owned(owner).to_vec()
    }

    fn half_deleted_block(&self, cidr: IpNet) -> Option<Arc<Block>> {
        match self.current(&Key::Block(cidr))?.record {
            Record::Block(block) if self.finishes_deletions && block.is_deleted() => Some(block),
            _ => None,
        }
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let key = swap.record.key();
        swap.expect(self.current(&key).as_ref().map(|found| &found.revision))?;
        Ok(self.put(key, swap.after().cloned()))
    }
}
