//! Assignments in a pool with many blocks: the reads that they need, and the blocks that they choose.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use calipam_assign::{Allocator, Entry, MemoryNotes, Notes, Query, Release, Store, StoreError, Swap};
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_testkit::memory::MemoryStore;
use calipam_testkit::values;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cluster::{Cluster, pool_path, wants_as};
use crate::run;

const NOTHING: [IpAddr; 0] = [];
/// 256 blocks of four addresses.
const POOL: &str = "10.0.0.0/22";

/// A callback that runs after each read, and makes the changes of other clients.
type Meanwhile = Box<dyn FnMut(&MemoryStore, &[Query])>;

/// An in-memory datastore that records queries.
struct Recorder {
    memory: MemoryStore,
    queries: Mutex<Vec<Query>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Store for Recorder {
    fn now(&self) -> Timestamp {
        self.memory.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.queries.lock().unwrap().extend_from_slice(queries);
        let answers = self.memory.read(queries).await;
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().as_mut() {
            meanwhile(&self.memory, queries);
        }
        answers
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        self.memory.swap(swap).await
    }
}

impl Recorder {
    /// A datastore whose pool is full of blocks. Each block belongs to the node `other` and has `taken` allocated
    /// addresses.
    fn taken(taken: usize) -> Self {
        let store = Self::empty();
        for cidr in places() {
            store.put(cidr, "other", taken);
        }
        store
    }

    /// A datastore like [`Self::taken`], but with strict affinity and one empty block, whose CIDR is also returned.
    fn with_one_empty(taken: usize) -> (Self, IpNet) {
        let store = Self::taken(taken);
        let config = json!({"strict_affinity": true, "auto_allocate_blocks": true});
        store.memory.put("/calico/ipam/v2/config", config.to_string());
        let empty = places().nth(200).unwrap();
        store.put(empty, "other", 0);
        (store, empty)
    }

    fn empty() -> Self {
        let cluster = Cluster::with_blocks(&[(POOL, 30)]);
        ["a", "b", "other"]
            .iter()
            .for_each(|node| cluster.node(node, &[]));
        let memory = cluster.store;
        Self {
            memory,
            queries: Mutex::default(),
            meanwhile: Mutex::default(),
        }
    }

    /// Adds a block and its affinity.
    fn put(&self, cidr: IpNet, node: &str, taken: usize) {
        self.memory.put(
            &Key::Block(cidr).to_string(),
            block(cidr, node, taken).to_string(),
        );
        let path = affinity_path(cidr, node);
        self.memory
            .put(&path, json!({"state": "confirmed", "deleted": false}).to_string());
    }

    /// The addresses that a request by a host gets.
    fn assign(&self, host: &str) -> Vec<IpAddr> {
        given(&Allocator::new(self), host)
    }

    /// The queries since the last call.
    fn take(&self) -> Vec<Query> {
        std::mem::take(&mut self.queries.lock().unwrap())
    }

    /// The blocks that were read since the last call.
    fn blocks_read(&self) -> Vec<IpNet> {
        let block = |query| {
            if let Query::Get(Key::Block(cidr)) = query {
                Some(cidr)
            } else {
                None
            }
        };
        self.take().into_iter().filter_map(block).collect()
    }
}

/// The addresses that a request by a host gets.
fn given<S: Store>(allocator: &Allocator<S>, host: &str) -> Vec<IpAddr> {
    run(allocator.auto_assign(&wants_as(host, 1, "h1")))
        .unwrap()
        .addresses()
        .collect()
}

/// A block as etcd stores it.
fn block(cidr: IpNet, node: &str, taken: usize) -> serde_json::Value {
    let records = vec![json!({"handle_id": "h", "secondary": {}}); taken];
    values::block(&cidr.to_string(), format!("host:{node}"), records)
}

fn affinity_path(cidr: IpNet, node: &str) -> String {
    values::affinity_key(&format!("host/{node}"), &cidr.to_string())
}

fn places() -> impl Iterator<Item = IpNet> {
    POOL.parse::<IpNet>().unwrap().subnets(30).unwrap()
}

#[test]
fn a_claim_reads_no_block() {
    let store = Recorder::empty();
    for cidr in places().skip(1).step_by(2) {
        store.put(cidr, "other", 1);
    }
    assert_eq!(store.assign("a").len(), 1);
    let queries = store.take();
    let is_content = |query: &Query| matches!(query, Query::Blocks(_) | Query::Get(Key::Block(_)));
    assert!(!queries.iter().any(is_content), "{queries:?}");
    assert!(
        queries.iter().filter(|query| query.asks_for_block_keys()).count() <= 10,
        "{queries:?}"
    );
}

#[test]
fn the_last_vacant_place_is_found_by_the_keys_of_all() {
    for (host, last) in [("a", 3), ("a", 250), ("b", 77)] {
        let store = Recorder::empty();
        for (index, cidr) in places().enumerate().filter(|(index, _)| *index != last) {
            store.put(cidr, "other", index % 4);
        }
        let (vacant, assigned) = (places().nth(last).unwrap(), store.assign(host));
        assert!(
            assigned.iter().all(|address| vacant.contains(address)),
            "{assigned:?}"
        );
        assert_eq!(store.blocks_read(), []);
    }
}

#[test]
fn early_inputs_are_not_read_again_if_no_one_claimed_since() {
    let store = Recorder::empty();
    let own = places().next().unwrap();
    store.put(own, "a", 4);
    let allocator = Allocator::new(&store);
    let inputs = run(allocator.read_inputs(&wants_as("a", 1, "late"))).unwrap();
    store.take();
    run(allocator.auto_assign_after(inputs, &wants_as("a", 1, "late"))).unwrap();
    let queries = store.take();
    let again = |query: &Query| {
        matches!(
            query,
            Query::Pools | Query::Reservations | Query::Get(Key::Node(_))
        )
    };
    assert!(!queries.iter().any(again), "{queries:?}");
    let own_block = Query::Get(Key::Block(own));
    assert_eq!(
        queries.iter().filter(|query| **query == own_block).count(),
        1,
        "{queries:?}"
    );
}

#[test]
fn addresses_are_borrowed_after_reading_few_blocks_that_differ_by_host() {
    let mut read = Vec::new();
    for host in ["a", "b"] {
        let store = Recorder::taken(2);
        store.assign(host);
        let blocks: BTreeSet<IpNet> = store.blocks_read().into_iter().collect();
        assert!((1..=32).contains(&blocks.len()), "{host}: {blocks:?}");
        read.push(blocks);
    }
    assert!(read[0].intersection(&read[1]).count() < 16, "{read:?}");
}

#[test]
fn the_only_free_address_is_found_wherever_it_is() {
    for free in [0, 100, 255] {
        let store = Recorder::taken(4);
        let cidr = places().nth(free).unwrap();
        store.put(cidr, "other", 3);
        assert_eq!(store.assign("a"), [cidr.broadcast()]);
    }
}

#[test]
fn the_only_empty_block_is_taken_over_under_strict_affinity() {
    let (store, empty) = Recorder::with_one_empty(3);
    let assigned = store.assign("a");
    assert!(
        assigned.len() == 1 && empty.contains(&assigned[0]),
        "{assigned:?}"
    );
}

#[test]
fn a_block_of_the_host_without_affinity_is_found_before_others_are_borrowed_from() {
    let store = Recorder::empty();
    // There are so few blocks that all are read before one is chosen.
    let value = json!({"spec": {"cidr": "10.0.0.0/27", "blockSize": 30}}).to_string();
    store.memory.put(&pool_path(POOL), value);
    for (index, cidr) in places().take(8).enumerate() {
        store.put(cidr, if index == 5 { "a" } else { "other" }, 2);
    }
    let own = places().nth(5).unwrap();
    store.memory.remove(&affinity_path(own, "a"));
    let assigned = store.assign("a");
    assert!(
        assigned.iter().all(|address| own.contains(address)),
        "{assigned:?}"
    );
}

#[test]
fn a_full_block_is_read_again_once_it_was_written() {
    let store = Recorder::taken(4);
    let own = places().next().unwrap();
    store.put(own, "a", 4);
    let notes = Arc::new(MemoryNotes::default());
    let allocator = Allocator::new(&store).with_notes(Arc::clone(&notes) as Arc<dyn Notes>);
    let refused = || assert_eq!(given(&allocator, "a"), NOTHING);
    refused();
    assert_eq!(store.blocks_read().iter().collect::<BTreeSet<_>>().len(), 256);

    // For a few seconds, only the keys of the node's own blocks are read again.
    refused();
    let queries = store.take();
    let keys: Vec<&Query> = queries
        .iter()
        .filter(|query| query.asks_for_block_keys())
        .collect();
    assert_eq!(keys, [&Query::BlockKey(own)], "{queries:?}");
    assert!(!queries.contains(&Query::Get(Key::Block(own))), "{queries:?}");

    store.memory.advance(SignedDuration::from_secs(6));
    refused();
    assert_eq!(store.blocks_read(), []);

    // A release by another node is noticed only after these few seconds.
    let freed = places().nth(99).unwrap();
    store.put(freed, "other", 3);
    refused();
    store.memory.advance(SignedDuration::from_secs(6));
    store.take();
    assert_eq!(given(&allocator, "a"), [freed.broadcast()]);
    assert!(store.blocks_read().iter().all(|block| *block == freed));

    // A release on the same node is noticed at once.
    refused();
    let released = Release {
        address: freed.broadcast(),
        handle: Some("h1".into()),
        sequence: None,
    };
    run(allocator.release_ips(&[released])).unwrap();
    assert_eq!(given(&allocator, "a"), [freed.broadcast()]);

    // Blocks that were noted as full no longer count once the pools have changed.
    refused();
    let value = json!({"spec": {"cidr": "10.1.0.0/28", "blockSize": 30}}).to_string();
    store.memory.put(&pool_path("10.1.0.0/28"), value);
    assert_eq!(given(&allocator, "a").len(), 1);
}

/// Another client writes the only empty block just before it is taken over.
#[test]
fn a_block_that_changed_meanwhile_is_found_by_the_next_search() {
    let (store, empty) = Recorder::with_one_empty(4);
    let allocator = Allocator::new(&store).with_notes(Arc::new(MemoryNotes::default()));
    let mut is_written = false;
    *store.meanwhile.lock().unwrap() = Some(Box::new(move |store, queries| {
        if queries.contains(&Query::Get(Key::Block(empty))) && !std::mem::replace(&mut is_written, true) {
            let mut written = block(empty, "other", 0);
            written["sequenceNumber"] = 1.into();
            store.put(&Key::Block(empty).to_string(), written.to_string());
        }
    }));
    assert_eq!([0, 1].map(|_| given(&allocator, "a").len()), [0, 1]);
}

#[test]
fn an_address_that_has_cooled_down_is_found_in_a_block_that_was_full() {
    let store = Recorder::taken(4);
    let config = json!({"auto_allocate_blocks": true, "ipCooldownSeconds": 30});
    store.memory.put("/calico/ipam/v2/config", config.to_string());
    let notes = Arc::new(MemoryNotes::default());
    let allocator = Allocator::new(&store).with_notes(Arc::clone(&notes) as Arc<dyn Notes>);
    let freed = places().nth(99).unwrap();
    run(allocator.release_ips(&[Release::any(freed.broadcast())])).unwrap();
    assert_eq!(given(&allocator, "a"), NOTHING);
    store.memory.advance(SignedDuration::from_secs(31));
    assert_eq!(given(&allocator, "a"), [freed.broadcast()]);
}

#[test]
fn an_address_that_is_released_while_all_blocks_are_read_is_found() {
    let store = Recorder::taken(4);
    let allocator = Allocator::new(&store).with_notes(Arc::new(MemoryNotes::default()));
    // An address in the first block is released while the other blocks are read, half a minute later.
    let (freed, mut readings) = (Arc::new(Mutex::new(None)), 0);
    let first = Arc::clone(&freed);
    *store.meanwhile.lock().unwrap() = Some(Box::new(move |store, queries| {
        let Some(Query::Get(Key::Block(cidr))) = queries.first() else {
            return;
        };
        let cidr = *first.lock().unwrap().get_or_insert(*cidr);
        readings += 1;
        store.advance(SignedDuration::from_secs(4));
        if readings == 8 {
            store.put(&Key::Block(cidr).to_string(), block(cidr, "other", 3).to_string());
        }
    }));
    let assigned = given(&allocator, "a");
    let freed = freed.lock().unwrap().unwrap();
    assert_eq!(assigned, [freed.broadcast()]);
}
