//! Changes of entries: decoded while etcd still reports them, in the form in which they are appended to the cache, and as the
//! objects that a snapshot gets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{self, Sender};

use calipam_files::raw::{RawEntry, RawKv, is_read};
use calipam_model::snapshot::Snapshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::entries::{Entry, add, push_deletion, push_key, take_change};
use super::{State, stale};
use crate::cache::WhyWhole;
use crate::cache::newest::{Newest, sum};
use crate::client::etcd::{Answer, TakeChanges, WatchedChange};

/// What is stored under a key.
pub(super) enum Stored {
    Object(Entry<'static>),
    AsStored(RawKv),
}

impl Stored {
    fn add_to(self, snapshot: &mut Snapshot) {
        match self {
            Self::Object(object) => object.add_to(snapshot),
            Self::AsStored(entry) => Entry::AsStored(entry.as_entry()).add_to(snapshot),
        }
    }

    /// A copy of its own of an entry.
    fn of(entry: Entry<'_>) -> Self {
        match entry {
            Entry::Block(block) => Self::Object(Entry::Block(block)),
            Entry::Handle(handle) => Self::Object(Entry::Handle(handle)),
            Entry::Endpoint(endpoint) => Self::Object(Entry::Endpoint(endpoint)),
            Entry::AsStored(entry) => Self::AsStored(entry.to_owned()),
        }
    }
}

/// What is stored under keys that have changed; `None` under those that are deleted.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Stored>>;

/// Reads changes; `None` if they are none.
pub(super) fn read(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, Option<Stored>)>> {
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        let (key, entry) = take_change(&mut bytes)?;
        changes.push((key.to_vec(), entry.map(Stored::of)));
    }
    Some(changes)
}

/// The keys of changes, and what is stored under them since.
pub(super) fn split(changes: Changes) -> (Vec<Vec<u8>>, Snapshot) {
    let (mut keys, mut fresh) = (Vec::with_capacity(changes.len()), Snapshot::default());
    for (key, stored) in changes {
        if let Some(stored) = stored {
            stored.add_to(&mut fresh);
        }
        keys.push(key);
    }
    (keys, fresh)
}

/// Makes a snapshot of what it is with changes.
pub(super) fn apply(changes: Changes, snapshot: &mut Snapshot) {
    let (keys, fresh) = split(changes);
    snapshot.change_entries(&keys, fresh);
}

/// Changes after the last one that a cache knows.
pub(super) struct New {
    pub changes: Changes,
    pub appended: Appended,
    /// What the cache comes to with them.
    pub state: State,
}

/// Changes as a cache holds them: the last one of each key.
pub(super) struct Appended {
    text: Vec<u8>,
    /// Where each lies, in the order of the keys.
    places: Vec<Range<usize>>,
}

impl Appended {
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.text[place.clone()])
    }
}

/// Hands changes over to a thread that decodes them, so that what etcd sends is not kept until all of it is there.
pub(super) struct Decoding {
    sender: Sender<Answer>,
    decoded: JoinHandle<Decoded>,
}

impl Decoding {
    /// Begins with what a cache comes to.
    pub(super) fn begin(state: &State) -> Self {
        let (sender, receiver) = mpsc::channel::<Answer>();
        let mut decoded = Decoded::after(state);
        let decoded = spawn_blocking(move || {
            receiver.into_iter().for_each(|answer| answer.changes().for_each(|change| decoded.take(change)));
            decoded
        });
        Self { sender, decoded }
    }

    /// All changes, if what the cache knows as the last write came again.
    pub(super) async fn finish(self) -> Result<New, WhyWhole> {
        drop(self.sender);
        self.decoded.await.map_err(|lost| WhyWhole::Unusable(lost.to_string()))?.finish()
    }
}

impl TakeChanges for Decoding {
    fn take(&mut self, answer: Answer) {
        // If the thread has ended, that is seen when it is waited for.
        let _ = self.sender.send(answer);
    }
}

/// What was decoded so far.
struct Decoded {
    /// What the cache comes to without the changes.
    before: State,
    /// The sums of what came up to the last write that the cache knows.
    again: Vec<u32>,
    newest: Newest,
    /// By key: the revision of the last change, what is stored since, and where the change is in the text.
    changes: BTreeMap<Vec<u8>, (i64, Option<Stored>, Range<usize>)>,
    text: Vec<u8>,
    /// Takes one entry after the other.
    scratch: Snapshot,
}

impl Decoded {
    fn after(state: &State) -> Self {
        Self {
            before: state.clone(),
            again: Vec::new(),
            newest: state.newest.clone(),
            changes: BTreeMap::new(),
            text: Vec::new(),
            scratch: Snapshot { newest_creation: state.newest_creation, ..Snapshot::default() },
        }
    }

    fn take(&mut self, change: WatchedChange<'_>) {
        if !is_read(change.key) {
            return;
        }
        let sum = || sum(change.key, change.value);
        if change.revision <= self.before.newest.last {
            self.again.push(sum());
            return;
        }
        self.newest.note(change.revision, sum);
        // A later change of the key may have come already.
        if self.changes.get(change.key).is_some_and(|(revision, ..)| *revision > change.revision) {
            return;
        }
        let start = self.text.len();
        push_key(&mut self.text, change.key);
        let stored = match change.value {
            Some(value) => Some(self.decode(change.key, value, change.revision)),
            None => {
                push_deletion(&mut self.text);
                None
            }
        };
        self.changes.insert(change.key.to_vec(), (change.revision, stored, start..self.text.len()));
    }

    /// Decodes a value, and appends it to the text.
    fn decode(&mut self, key: &[u8], value: &[u8], mod_revision: i64) -> Stored {
        let entry = RawEntry { key, value, mod_revision, ..RawEntry::default() };
        let scratch = &mut self.scratch;
        let is_compact = add(scratch, entry, &mut self.text);
        if is_compact {
            let block = scratch.blocks.pop().map(Entry::Block);
            let object = block.or_else(|| scratch.handles.pop().map(Entry::Handle));
            if let Some(object) = object.or_else(|| scratch.endpoints.pop().map(Entry::Endpoint)) {
                return Stored::Object(object);
            }
        }
        let newest_creation = scratch.newest_creation;
        *scratch = Snapshot { newest_creation, ..Snapshot::default() };
        Stored::AsStored(entry.to_owned())
    }

    fn finish(self) -> Result<New, WhyWhole> {
        stale::require_same_last_write(&self.before.newest, &self.again)?;
        let (mut changes, mut places) = (Changes::new(), Vec::with_capacity(self.changes.len()));
        for (key, (_, stored, place)) in self.changes {
            changes.insert(key, stored);
            places.push(place);
        }
        let state = State {
            newest: self.newest,
            newest_creation: self.scratch.newest_creation,
            changes: self.before.changes + changes.len() as u64,
            ..self.before
        };
        Ok(New { changes, appended: Appended { text: self.text, places }, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = "/calico/ipam/v2/handle/net.a";

    fn change(revision: i64, key: &'static str, value: Option<&'static str>) -> WatchedChange<'static> {
        WatchedChange { revision, key: key.as_bytes(), value: value.map(str::as_bytes) }
    }

    /// At revision 7 the last write was that of a handle.
    fn reported(changes: impl IntoIterator<Item = WatchedChange<'static>>) -> Result<New, WhyWhole> {
        let mut state = State { objects: 9, changes: 3, ..State::default() };
        state.newest.note(7, || sum(HANDLE.as_bytes(), Some(b"{}")));
        let mut decoded = Decoded::after(&state);
        changes.into_iter().for_each(|change| decoded.take(change));
        decoded.finish()
    }

    #[test]
    fn the_last_change_of_a_key_counts_and_comes_back_from_the_cache() {
        let block = r#"{"block":{"10.0.0.0/26":1}}"#;
        let (deleted, odd) = ("/calico/ipam/v2/handle/net.b", "/calico/ipam/v2/@/odd");
        let new = reported([
            change(7, HANDLE, Some("{}")),
            change(8, HANDLE, Some("broken")),
            change(9, "/calico/else/where", Some("")),
            change(11, HANDLE, Some(block)),
            change(10, HANDLE, None),
            change(12, deleted, Some(block)),
            change(13, deleted, None),
            change(14, odd, Some("kept as it is")),
        ]);
        let New { changes, appended, state } = new.unwrap();
        assert_eq!((state.changes, state.newest.last), (6, 14));
        let kept: Changes = appended.iter().flat_map(|change| read(change).unwrap()).collect();
        for changes in [changes, kept] {
            assert_eq!(
                changes.keys().map(Vec::as_slice).collect::<Vec<_>>(),
                [odd.as_bytes(), HANDLE.as_bytes(), deleted.as_bytes()]
            );
            let mut snapshot = Snapshot::default();
            apply(changes, &mut snapshot);
            let mut whole = Snapshot::default();
            whole.add_entry(HANDLE.as_bytes(), block.as_bytes(), 11);
            whole.add_entry(odd.as_bytes(), b"kept as it is", 14);
            assert_eq!(snapshot, whole);
        }
        for change in appended.iter() {
            assert!((1..change.len()).all(|cut| read(&change[..cut]).is_none()), "{change:?}");
        }
    }

    #[test]
    fn the_last_write_that_is_known_is_told_again() {
        let is_other = |changes: Vec<WatchedChange<'static>>| {
            matches!(reported(changes), Err(WhyWhole::AnotherHistory(_)))
        };
        assert!(!is_other(vec![change(7, HANDLE, Some("{}"))]));
        assert!(is_other(vec![change(7, HANDLE, Some("other")), change(8, HANDLE, Some("{}"))]));
        assert!(is_other(Vec::new()));
    }
}
