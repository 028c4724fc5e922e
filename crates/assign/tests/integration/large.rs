//! What assignments read where there are many blocks, and what they choose then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use calipam_assign::{
    Allocator, AutoAssign, Entry, MemoryNotes, MemoryStore, Notes, Query, Record, Release, Store, StoreError,
};
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// 256 blocks of four addresses.
const POOL: &str = "10.0.0.0/22";

/// What others do after a reading.
type Meanwhile = Box<dyn FnMut(&MemoryStore, &[Query])>;

/// A datastore in memory that remembers what was asked.
struct Asked {
    store: MemoryStore,
    queries: Mutex<Vec<Query>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Store for Asked {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.queries.lock().unwrap().extend_from_slice(queries);
        let answers = self.store.read(queries).await;
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().as_mut() {
            meanwhile(&self.store, queries);
        }
        answers
    }

    async fn create(&self, record: &Record) -> Result<Revision, StoreError> {
        self.store.create(record).await
    }

    async fn update(&self, record: &Record, revision: &Revision) -> Result<Revision, StoreError> {
        self.store.update(record, revision).await
    }

    async fn delete(&self, entry: &Entry) -> Result<(), StoreError> {
        self.store.delete(entry).await
    }
}

impl Asked {
    /// A pool in which every place has a block of the node `other`, with so many addresses taken.
    fn taken(taken: usize) -> Self {
        let asked = Self::empty();
        for cidr in places() {
            asked.put(cidr, "other", taken);
        }
        asked
    }

    fn empty() -> Self {
        let store = MemoryStore::new("2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap());
        store.put(
            &format!("{RESOURCES}/ippools/p"),
            json!({"spec": {"cidr": POOL, "blockSize": 30}}).to_string(),
        );
        for node in ["a", "b", "other"] {
            store.put(&format!("{RESOURCES}/nodes/{node}"), "{}");
        }
        Self { store, queries: Mutex::default(), meanwhile: Mutex::default() }
    }

    /// A block with its affinity.
    fn put(&self, cidr: IpNet, node: &str, taken: usize) {
        self.store.put(&Key::Block(cidr).to_string(), block(cidr, node, taken).to_string());
        let dashed = calipam_model::cidr::dashed(cidr);
        let path = format!("/calico/ipam/v2/host/{node}/ipv4/block/{dashed}");
        self.store.put(&path, json!({"state": "confirmed", "deleted": false}).to_string());
    }

    /// What was asked since the last call.
    fn take(&self) -> Vec<Query> {
        std::mem::take(&mut self.queries.lock().unwrap())
    }

    /// The blocks that were looked into since the last call.
    fn looked_into(&self) -> Vec<IpNet> {
        let block = |query| if let Query::Get(Key::Block(cidr)) = query { Some(cidr) } else { None };
        self.take().into_iter().filter_map(block).collect()
    }
}

/// A block as etcd has it.
fn block(cidr: IpNet, node: &str, taken: usize) -> serde_json::Value {
    let allocations: Vec<Option<usize>> = (0..4).map(|ordinal| (ordinal < taken).then_some(0)).collect();
    let attributes = if taken > 0 { json!([{"handle_id": "h", "secondary": {}}]) } else { json!([]) };
    json!({"cidr": cidr, "affinity": format!("host:{node}"), "allocations": allocations,
        "unallocated": Vec::from_iter(taken..4), "attributes": attributes, "deleted": false})
}

fn places() -> impl Iterator<Item = IpNet> {
    POOL.parse::<IpNet>().unwrap().subnets(30).unwrap()
}

fn request(host: &str, handle: &str) -> AutoAssign {
    AutoAssign {
        host: host.into(),
        v4: 1,
        handle: Some(handle.into()),
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    }
}

/// Runs an operation that never waits.
fn run<T>(operation: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(operation)
}

#[test]
fn a_claim_looks_into_no_block() {
    let asked = Asked::empty();
    for cidr in places().skip(1).step_by(2) {
        asked.put(cidr, "other", 1);
    }
    let assigned = run(Allocator::new(&asked).auto_assign(&request("a", "h1"))).unwrap();
    assert_eq!(assigned.addresses().count(), 1);
    let queries = asked.take();
    let is_content = |query: &Query| matches!(query, Query::Blocks(_) | Query::Get(Key::Block(_)));
    assert!(!queries.iter().any(is_content), "{queries:?}");
    assert!(queries.iter().filter(|query| query.asks_for_block_keys()).count() <= 10, "{queries:?}");
}

#[test]
fn the_last_vacant_place_is_found_by_the_keys_of_all() {
    for (host, last) in [("a", 3), ("a", 250), ("b", 77)] {
        let asked = Asked::empty();
        for (index, cidr) in places().enumerate().filter(|(index, _)| *index != last) {
            asked.put(cidr, "other", index % 4);
        }
        let assigned = run(Allocator::new(&asked).auto_assign(&request(host, "h1"))).unwrap();
        let vacant = places().nth(last).unwrap();
        assert!(assigned.addresses().all(|address| vacant.contains(&address)), "{assigned:?}");
        assert_eq!(asked.looked_into(), []);
    }
}

#[test]
fn an_early_look_is_not_repeated_where_no_one_claimed_since() {
    let asked = Asked::empty();
    let own = places().next().unwrap();
    asked.put(own, "a", 4);
    let allocator = Allocator::new(&asked);
    let inputs = run(allocator.read_inputs(&request("a", "late"))).unwrap();
    asked.take();
    run(allocator.auto_assign_after(inputs, &request("a", "late"))).unwrap();
    let queries = asked.take();
    let again =
        |query: &Query| matches!(query, Query::Pools | Query::Reservations | Query::Get(Key::Node(_)));
    assert!(!queries.iter().any(again), "{queries:?}");
    let own_block = Query::Get(Key::Block(own));
    assert_eq!(queries.iter().filter(|query| **query == own_block).count(), 1, "{queries:?}");
}

#[test]
fn addresses_are_borrowed_after_a_look_into_few_blocks_that_differ_by_host() {
    let mut looked_into = Vec::new();
    for host in ["a", "b"] {
        let asked = Asked::taken(2);
        run(Allocator::new(&asked).auto_assign(&request(host, "h1"))).unwrap();
        let blocks: BTreeSet<IpNet> = asked.looked_into().into_iter().collect();
        assert!((1..=32).contains(&blocks.len()), "{host}: {blocks:?}");
        looked_into.push(blocks);
    }
    assert!(looked_into[0].intersection(&looked_into[1]).count() < 16, "{looked_into:?}");
}

#[test]
fn the_only_free_address_is_found_wherever_it_is() {
    for free in [0, 100, 255] {
        let asked = Asked::taken(4);
        let cidr = places().nth(free).unwrap();
        asked.put(cidr, "other", 3);
        let assigned = run(Allocator::new(&asked).auto_assign(&request("a", "h1"))).unwrap();
        assert_eq!(assigned.addresses().collect::<Vec<_>>(), [cidr.broadcast()]);
    }
}

#[test]
fn with_strict_affinity_the_only_empty_block_is_taken_over() {
    let asked = Asked::taken(3);
    let config = json!({"strict_affinity": true, "auto_allocate_blocks": true});
    asked.store.put("/calico/ipam/v2/config", config.to_string());
    let empty = places().nth(200).unwrap();
    asked.put(empty, "other", 0);
    let assigned = run(Allocator::new(&asked).auto_assign(&request("a", "h1"))).unwrap();
    assert_eq!(assigned.addresses().count(), 1);
    assert!(assigned.addresses().all(|address| empty.contains(&address)), "{assigned:?}");
}

#[test]
fn a_block_of_the_host_without_affinity_is_found_before_others_are_borrowed_from() {
    let asked = Asked::empty();
    // So few that all are looked into before anything is chosen.
    asked.store.put(
        &format!("{RESOURCES}/ippools/p"),
        json!({"spec": {"cidr": "10.0.0.0/27", "blockSize": 30}}).to_string(),
    );
    for (index, cidr) in places().take(8).enumerate() {
        asked.put(cidr, if index == 5 { "a" } else { "other" }, 2);
    }
    let own = places().nth(5).unwrap();
    let dashed = calipam_model::cidr::dashed(own);
    asked.store.remove(&format!("/calico/ipam/v2/host/a/ipv4/block/{dashed}"));
    let assigned = run(Allocator::new(&asked).auto_assign(&request("a", "h1"))).unwrap();
    assert!(assigned.addresses().all(|address| own.contains(&address)), "{assigned:?}");
}

#[test]
fn what_was_full_is_looked_into_again_once_it_was_written() {
    let asked = Asked::taken(4);
    let own = places().next().unwrap();
    asked.put(own, "a", 4);
    let notes = Arc::new(MemoryNotes::default());
    let allocator = Allocator::new(&asked).with_notes(Arc::clone(&notes) as Arc<dyn Notes>);
    let refused = || {
        let assigned = run(allocator.auto_assign(&request("a", "h1"))).unwrap();
        assert_eq!(assigned.addresses().count(), 0);
    };
    refused();
    assert_eq!(asked.looked_into().iter().collect::<BTreeSet<_>>().len(), 256);

    // Seconds later nothing but the keys of the own blocks is asked for.
    refused();
    let queries = asked.take();
    let keys: Vec<&Query> = queries.iter().filter(|query| query.asks_for_block_keys()).collect();
    assert_eq!(keys, [&Query::BlockKey(own)], "{queries:?}");
    assert!(!queries.contains(&Query::Get(Key::Block(own))), "{queries:?}");

    asked.store.advance(SignedDuration::from_secs(6));
    refused();
    assert_eq!(asked.looked_into(), []);

    // Another node's release is found when these seconds are over.
    let freed = places().nth(99).unwrap();
    asked.put(freed, "other", 3);
    refused();
    asked.store.advance(SignedDuration::from_secs(6));
    asked.take();
    let assigned = run(allocator.auto_assign(&request("a", "h1"))).unwrap();
    assert_eq!(assigned.addresses().collect::<Vec<_>>(), [freed.broadcast()]);
    assert!(asked.looked_into().iter().all(|block| *block == freed));

    // What goes through this node it finds at once.
    refused();
    let released = Release { address: freed.broadcast(), handle: Some("h1".into()), sequence: None };
    run(allocator.release_ips(&[released])).unwrap();
    let assigned = run(allocator.auto_assign(&request("a", "h2"))).unwrap();
    assert_eq!(assigned.addresses().collect::<Vec<_>>(), [freed.broadcast()]);

    // Another question is not answered by what was found then.
    refused();
    asked.store.put(
        &format!("{RESOURCES}/ippools/q"),
        json!({"spec": {"cidr": "10.1.0.0/28", "blockSize": 30}}).to_string(),
    );
    assert_eq!(run(allocator.auto_assign(&request("a", "h3"))).unwrap().addresses().count(), 1);
}

#[test]
fn an_address_that_has_cooled_down_is_found_in_a_block_that_was_full() {
    let asked = Asked::taken(4);
    let config = json!({"auto_allocate_blocks": true, "ipCooldownSeconds": 30});
    asked.store.put("/calico/ipam/v2/config", config.to_string());
    let notes = Arc::new(MemoryNotes::default());
    let allocator = Allocator::new(&asked).with_notes(Arc::clone(&notes) as Arc<dyn Notes>);
    let freed = places().nth(99).unwrap();
    run(allocator.release_ips(&[Release::any(freed.broadcast())])).unwrap();
    let assign = || {
        let assigned = run(allocator.auto_assign(&request("a", "h1"))).unwrap();
        assigned.addresses().collect::<Vec<_>>()
    };
    assert_eq!(assign(), [] as [std::net::IpAddr; 0]);
    asked.store.advance(SignedDuration::from_secs(31));
    assert_eq!(assign(), [freed.broadcast()]);
}

#[test]
fn what_is_released_while_all_blocks_are_read_is_found() {
    let asked = Asked::taken(4);
    let allocator = Allocator::new(&asked).with_notes(Arc::new(MemoryNotes::default()));
    // The first block that is looked into has a free address when the others were read, half a minute later.
    let (freed, mut readings) = (Arc::new(Mutex::new(None)), 0);
    let first = Arc::clone(&freed);
    *asked.meanwhile.lock().unwrap() = Some(Box::new(move |store, queries| {
        let Some(Query::Get(Key::Block(cidr))) = queries.first() else { return };
        let cidr = *first.lock().unwrap().get_or_insert(*cidr);
        readings += 1;
        store.advance(SignedDuration::from_secs(4));
        if readings == 8 {
            store.put(&Key::Block(cidr).to_string(), block(cidr, "other", 3).to_string());
        }
    }));
    let assigned = run(allocator.auto_assign(&request("a", "h1"))).unwrap();
    let freed = freed.lock().unwrap().unwrap();
    assert_eq!(assigned.addresses().collect::<Vec<_>>(), [freed.broadcast()]);
}
