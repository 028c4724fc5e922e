//! Lists since a state that an earlier call on the node has noted.

use std::cell::RefCell;
use std::sync::Arc;

use calipam_assign::{
    Allocator, AutoAssign, Entry, KnownState, ListsSince, MemoryNotes, Query, Store, StoreError, Swap,
};
use calipam_model::snapshot::Revision;
use calipam_testkit::memory::MemoryStore;
use jiff::{SignedDuration, Timestamp};

use crate::cluster::{Cluster, wants_as};
use crate::run;

/// A datastore that lists since a state, and records the states that it was given.
struct Caching {
    memory: MemoryStore,
    asked: RefCell<Vec<Option<String>>>,
}

impl Store for Caching {
    fn now(&self) -> Timestamp {
        self.memory.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.memory.read(queries).await
    }

    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        self.asked
            .borrow_mut()
            .push(known.map(|state| state.version.clone()));
        let state = KnownState {
            version: self.asked.borrow().len().to_string(),
            at: self.now(),
        };
        Ok(ListsSince {
            answers: self.memory.read(queries).await?,
            state: Some(state).filter(|_| known.is_none()),
        })
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        self.memory.swap(swap).await
    }
}

impl Caching {
    fn new() -> Self {
        Self {
            memory: Cluster::with_blocks(&[("10.0.0.0/28", 30)]).store,
            asked: RefCell::default(),
        }
    }

    /// Assigns an address as the plugin does: the inputs are read some time before the assignment.
    fn add(&self, notes: &Arc<MemoryNotes>, handle: &str, wait: SignedDuration) {
        let notes = Arc::clone(notes);
        let allocator = Allocator::new(self).with_notes(notes);
        let request: AutoAssign = wants_as("host-a", 1, handle);
        let inputs = run(allocator.read_inputs(&request)).unwrap();
        self.memory.advance(wait);
        let assigned = run(allocator.auto_assign_after(inputs, &request)).unwrap();
        assert_eq!(assigned.addresses().count(), 1, "{handle}");
    }

    /// The versions since which lists were read, by call of the datastore; `None` for current lists.
    fn take_asked(&self) -> Vec<Option<String>> {
        self.asked.take()
    }
}

const NO_WAIT: SignedDuration = SignedDuration::ZERO;

#[test]
fn calls_list_since_the_state_that_an_earlier_one_noted_for_some_seconds() {
    let store = Caching::new();
    let notes = Arc::new(MemoryNotes::default());
    let since = |version: &str| Some(version.to_owned());
    store.add(&notes, "first", NO_WAIT);
    assert_eq!(store.take_asked(), [None]);

    store.add(&notes, "second", NO_WAIT);
    store.memory.advance(SignedDuration::from_millis(2_490));
    store.add(&notes, "third", NO_WAIT);
    assert_eq!(store.take_asked(), [since("1"), since("1")]);

    store.memory.advance(SignedDuration::from_millis(10));
    store.add(&notes, "fourth", NO_WAIT);
    assert_eq!(store.take_asked(), [None], "the note is too old");

    store.memory.advance(SignedDuration::from_secs(-1));
    let inputs = run(Allocator::new(&store)
        .with_notes(notes)
        .read_inputs(&wants_as("host-a", 1, "fifth")));
    inputs.unwrap();
    assert_eq!(store.take_asked(), [None], "the clock was set back");
}

/// The age of inputs counts from the state that was listed, so that a call never relies on older data than without
/// notes.
#[test]
fn lists_since_a_state_are_as_old_as_the_state() {
    let store = Caching::new();
    let notes = Arc::new(MemoryNotes::default());
    store.add(&notes, "first", NO_WAIT);
    store.memory.advance(SignedDuration::from_secs(2));
    store.take_asked();

    store.add(&notes, "second", SignedDuration::from_millis(2_990));
    assert_eq!(store.take_asked(), [Some("1".to_owned())]);

    store.add(&notes, "third", NO_WAIT);
    store.memory.advance(SignedDuration::from_secs(2));
    store.take_asked();
    store.add(&notes, "fourth", SignedDuration::from_millis(3_010));
    let asked = store.take_asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[1], None, "the inputs are read again");
}

#[test]
fn a_call_without_notes_reads_current_lists() {
    let store = Caching::new();
    let allocator = Allocator::new(&store);
    for handle in ["first", "second"] {
        run(allocator.read_inputs(&wants_as("host-a", 1, handle))).unwrap();
    }
    assert_eq!(store.take_asked(), [None, None]);
}

#[test]
fn an_affinity_that_old_lists_lack_is_found_before_a_block_is_claimed() {
    let store = Caching::new();
    let notes = Arc::new(MemoryNotes::default());
    let allocator = Allocator::new(&store).with_notes(notes);
    let request = wants_as("host-a", 1, "late");
    let inputs = run(allocator.read_inputs(&request)).unwrap();
    // Another call claims the node's first block.
    run(allocator.auto_assign(&wants_as("host-a", 1, "first"))).unwrap();
    store.memory.take_changes();

    run(allocator.auto_assign_after(inputs, &request)).unwrap();
    let changes = store.memory.take_changes();
    assert!(
        changes.iter().all(|change| !change.path.contains("/host/")),
        "{changes:?}"
    );
}
