//! An in-memory datastore with its own clock, for tests. It stores values in the same form as etcd.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use calipam_assign::{Entry, Query, Record, Store, StoreError, Swap};
use calipam_model::key::{ENDPOINT_PREFIX, Key};
use calipam_model::parallel::lock;
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};

/// One write that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of the key.
    pub path: String,
    /// True if the key had a value before the write.
    pub existed: bool,
    /// The value after the write; `None` if the write deleted the key.
    pub value: Option<Vec<u8>>,
}

/// A fault that a write can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// The write does not reach the datastore.
    Lost,
    /// The write takes effect, but the answer is lost.
    AnswerLost,
}

/// An in-memory datastore.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Values by path, with the revision of their last write.
    values: BTreeMap<String, (Vec<u8>, i64)>,
    /// The number of writes to each path, which is its revision. Paths are counted separately, so that the order of
    /// unrelated writes does not matter.
    revisions: BTreeMap<String, i64>,
    now: Timestamp,
    changes: Vec<Change>,
    is_interleaved: bool,
    fault: Option<Box<dyn FnMut() -> Fault + Send>>,
}

impl MemoryStore {
    /// Creates an empty datastore whose clock is at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: Mutex::new(State {
                now,
                ..State::default()
            }),
        }
    }

    /// Copies the values, with their revisions, to a datastore whose clock is at `now`.
    pub fn copy(&self, now: Timestamp) -> Self {
        let State {
            values, revisions, ..
        } = &*self.state();
        let values = values.clone();
        let revisions = revisions.clone();
        Self {
            state: Mutex::new(State {
                values,
                revisions,
                now,
                ..State::default()
            }),
        }
    }

    /// Makes every request let other tasks run first, like a request to a server. A scheduler can then decide which
    /// operation takes the next step.
    pub fn interleaved(self) -> Self {
        self.state().is_interleaved = true;
        self
    }

    /// Sets the function that decides the fault of each write.
    pub fn set_fault(&self, fault: impl FnMut() -> Fault + Send + 'static) {
        self.state().fault = Some(Box::new(fault));
    }

    /// Advances the clock. Reading the clock also advances it, by a microsecond.
    pub fn advance(&self, by: SignedDuration) {
        let now = &mut self.state().now;
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    /// Stores a value, replacing any earlier one.
    pub fn put(&self, path: &str, value: impl Into<Vec<u8>>) {
        self.state().change(path, Some(value.into()));
    }

    /// Deletes a value. Returns false if there is none.
    pub fn remove(&self, path: &str) -> bool {
        let mut state = self.state();
        let is_there = state.values.contains_key(path);
        if is_there {
            state.change(path, None);
        }
        is_there
    }

    /// Stores and deletes values in one transaction. Returns the revision, which is the same for all of them.
    pub fn change_together(&self, changes: &[(String, Option<Vec<u8>>)]) -> i64 {
        let mut state = self.state();
        let last =
            |(path, _): &(String, Option<Vec<u8>>)| state.revisions.get(path).copied().unwrap_or_default();
        let revision = 1 + changes.iter().map(last).max().unwrap_or_default();
        for (path, value) in changes {
            if value.is_some() || state.values.contains_key(path) {
                state.revisions.insert(path.clone(), revision - 1);
                state.change(path, value.clone());
            }
        }
        revision
    }

    pub fn value(&self, path: &str) -> Option<Vec<u8>> {
        self.value_at(path).map(|(value, _)| value)
    }

    /// The value under a path, with its revision.
    pub fn value_at(&self, path: &str) -> Option<(Vec<u8>, i64)> {
        self.state().values.get(path).cloned()
    }

    /// All values whose path begins with `prefix`, sorted by path, with their revisions.
    pub fn values(&self, prefix: &str) -> Vec<(String, Vec<u8>, i64)> {
        let state = self.state();
        let found = state
            .values
            .range(prefix.to_owned()..)
            .take_while(|(path, _)| path.starts_with(prefix));
        found
            .map(|(path, (value, revision))| (path.clone(), value.clone(), *revision))
            .collect()
    }

    /// Returns the writes since the last call, in order.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.state().changes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets other tasks run first if requests are interleaved.
    async fn turn(&self) {
        if self.state().is_interleaved {
            tokio::task::yield_now().await;
        }
    }
}

impl State {
    fn change(&mut self, path: &str, value: Option<Vec<u8>>) -> i64 {
        let revision = self.revisions.entry(path.to_owned()).or_default();
        *revision += 1;
        let before = match &value {
            Some(value) => self.values.insert(path.to_owned(), (value.clone(), *revision)),
            None => self.values.remove(path),
        };
        self.changes.push(Change {
            path: path.to_owned(),
            existed: before.is_some(),
            value,
        });
        *revision
    }

    fn read(&self, query: &Query) -> Vec<Entry> {
        let begin = query.path();
        let found = self
            .values
            .range(begin.clone()..)
            .take_while(|(path, _)| path.starts_with(&begin));
        found
            .filter_map(|(path, stored)| entry(query, path, stored))
            .collect()
    }
}

fn entry(query: &Query, path: &str, (value, revision): &(Vec<u8>, i64)) -> Option<Entry> {
    debug_assert!(!path.starts_with(ENDPOINT_PREFIX), "allocators read no endpoints");
    let record = query.decode(&Key::parse(path).ok()??, value)?;
    Some(Entry {
        record,
        revision: Revision::Etcd(*revision),
    })
}

fn no_answer() -> StoreError {
    StoreError::Unavailable("no answer".into())
}

impl Store for MemoryStore {
    fn now(&self) -> Timestamp {
        let now = &mut self.state().now;
        *now = now.saturating_add(SignedDuration::from_micros(1)).unwrap_or(*now);
        *now
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            // Queries are answered one after another, as on Kubernetes.
            self.turn().await;
            answers.push(self.state().read(query));
        }
        Ok(answers)
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        self.turn().await;
        let mut state = self.state();
        let fault = state.fault.as_mut().map(|fault| fault()).unwrap_or_default();
        if fault == Fault::Lost {
            return Err(no_answer());
        }
        let path = swap.record.key().to_string();
        let found = state
            .values
            .get(&path)
            .map(|(_, revision)| Revision::Etcd(*revision));
        let outcome = swap.expect(found.as_ref());
        let revision = outcome.map(|()| state.change(&path, swap.after().and_then(Record::encode)));
        if fault == Fault::AnswerLost {
            return Err(no_answer());
        }
        revision.map(Revision::Etcd)
    }
}
