//! A datastore in memory with a clock of its own, for tests and simulations. It keeps values as etcd would.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::{ENDPOINT_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};

use crate::family::Family;
use crate::record::Record;
use crate::store::{Entry, Query, Store, StoreError};

/// One write that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of the key.
    pub path: String,
    /// There was a value before.
    pub existed: bool,
    /// The value after; `None` if it was deleted.
    pub value: Option<Vec<u8>>,
}

/// A fault of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// It does not reach the datastore.
    Lost,
    /// It takes effect, but the answer is lost.
    AnswerLost,
}

/// A datastore in memory.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Values by path, with the revision of their last write.
    values: BTreeMap<String, (Vec<u8>, i64)>,
    /// The number of writes of each path, which is its revision. Paths are counted separately, so that the order of
    /// unrelated writes leaves no trace.
    revisions: BTreeMap<String, i64>,
    now: Timestamp,
    changes: Vec<Change>,
    is_interleaved: bool,
    fault: Option<Box<dyn FnMut() -> Fault + Send>>,
}

impl MemoryStore {
    /// An empty datastore whose clock is at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new(State { now, ..State::default() }) }
    }

    /// Lets other tasks go first at every request, as requests to a server do. A scheduler can then decide which
    /// operation makes the next step.
    pub fn interleaved(self) -> Self {
        self.state().is_interleaved = true;
        self
    }

    /// Sets the function that decides the fault of each write.
    pub fn set_fault(&self, fault: impl FnMut() -> Fault + Send + 'static) {
        self.state().fault = Some(Box::new(fault));
    }

    /// Advances the clock. Each reading advances it by a microsecond, too.
    pub fn advance(&self, by: SignedDuration) {
        let now = &mut self.state().now;
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    /// Stores a value, whatever was there.
    pub fn put(&self, path: &str, value: impl Into<Vec<u8>>) {
        self.state().change(path, Some(value.into()));
    }

    /// Deletes a value; false if there is none.
    pub fn remove(&self, path: &str) -> bool {
        let mut state = self.state();
        let is_there = state.values.contains_key(path);
        if is_there {
            state.change(path, None);
        }
        is_there
    }

    /// Stores and deletes values in one transaction, and returns the revision that they all get.
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

    /// All values whose path begins with `prefix`, by path, with their revisions.
    pub fn values(&self, prefix: &str) -> Vec<(String, Vec<u8>, i64)> {
        let state = self.state();
        let found = state.values.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix));
        found.map(|(path, (value, revision))| (path.clone(), value.clone(), *revision)).collect()
    }

    /// Returns the writes since the last call, in order.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.state().changes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other tasks go first if requests are interleaved.
    async fn turn(&self) {
        if self.state().is_interleaved {
            Turn(false).await;
        }
    }

    /// Makes a write if `check` allows it, and returns its revision.
    async fn write(
        &self,
        key: &Key,
        value: Option<Vec<u8>>,
        check: impl FnOnce(Option<i64>) -> Result<(), StoreError>,
    ) -> Result<Revision, StoreError> {
        self.turn().await;
        let mut state = self.state();
        let fault = state.fault.as_mut().map(|fault| fault()).unwrap_or_default();
        if fault == Fault::Lost {
            return Err(no_answer());
        }
        let path = key.to_string();
        let outcome = check(state.values.get(&path).map(|(_, revision)| *revision));
        let revision = outcome.map(|()| state.change(&path, value));
        if fault == Fault::AnswerLost {
            return Err(no_answer());
        }
        revision.map(Revision::Etcd)
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
        self.changes.push(Change { path: path.to_owned(), existed: before.is_some(), value });
        *revision
    }

    fn read(&self, query: &Query) -> Vec<Entry> {
        match query {
            Query::Get(key) => {
                let value = self.values.get(&key.to_string());
                value.and_then(|stored| entry(key, stored)).into_iter().collect()
            }
            Query::Pools => self.list(&format!("{RESOURCE_PREFIX}ippools/")),
            Query::Reservations => self.list(&format!("{RESOURCE_PREFIX}ipreservations/")),
            Query::Affinities { kind, holder, family } => {
                self.list(&format!("/calico/ipam/v2/{kind}/{holder}/ipv{}/block/", family.number()))
            }
            Query::HostAffinities => {
                self.list("/calico/ipam/v2/host/").into_iter().filter(is_affinity).collect()
            }
            Query::Blocks(family) => self.list(&block_prefix(*family)),
            Query::BlockKey(cidr) => self.block_keys(Family::of(*cidr), |found| found == *cidr),
            Query::Overlapping(cidr) => {
                self.block_keys(Family::of(*cidr), |found| cidr::overlap(found, *cidr))
            }
            Query::BlockKeys(family) | Query::BlockRevisions(family) => self.block_keys(*family, |_| true),
        }
    }

    fn block_keys(&self, family: Family, is_wanted: impl Fn(IpNet) -> bool) -> Vec<Entry> {
        let prefix = block_prefix(family);
        let found = self.values.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        found
            .filter_map(|(path, (_, revision))| match Key::parse(path).ok().flatten()? {
                Key::Block(cidr) if is_wanted(cidr) => {
                    Some(Entry { record: Record::BlockKey(cidr), revision: Revision::Etcd(*revision) })
                }
                _ => None,
            })
            .collect()
    }

    fn list(&self, prefix: &str) -> Vec<Entry> {
        let found = self.values.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix));
        found.filter_map(|(path, stored)| entry(&Key::parse(path).ok().flatten()?, stored)).collect()
    }
}

fn block_prefix(family: Family) -> String {
    format!("/calico/ipam/v2/assignment/ipv{}/block/", family.number())
}

fn is_affinity(entry: &Entry) -> bool {
    matches!(entry.record.key(), Key::Affinity(_))
}

fn entry(key: &Key, (value, revision): &(Vec<u8>, i64)) -> Option<Entry> {
    debug_assert!(!key.to_string().starts_with(ENDPOINT_PREFIX), "allocators read no endpoints");
    Some(Entry { record: Record::decode(key, value)?, revision: Revision::Etcd(*revision) })
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
            // One after the other, as on Kubernetes.
            self.turn().await;
            answers.push(self.state().read(query));
        }
        Ok(answers)
    }

    async fn create(&self, record: &Record) -> Result<Revision, StoreError> {
        let key = record.key();
        let check = |found: Option<i64>| match found {
            None => Ok(()),
            Some(_) => Err(StoreError::Exists(record.key())),
        };
        self.write(&key, record.encode(), check).await
    }

    async fn update(&self, record: &Record, revision: &Revision) -> Result<Revision, StoreError> {
        let key = record.key();
        self.write(&key, record.encode(), |found| check_revision(record, found, revision)).await
    }

    async fn delete(&self, entry: &Entry) -> Result<(), StoreError> {
        let key = entry.record.key();
        self.write(&key, None, |found| check_revision(&entry.record, found, &entry.revision)).await.map(drop)
    }
}

/// Fails unless the record still has the revision that was read.
fn check_revision(record: &Record, found: Option<i64>, revision: &Revision) -> Result<(), StoreError> {
    match found {
        None => Err(StoreError::NotFound(record.key())),
        Some(found) if Revision::Etcd(found) == *revision => Ok(()),
        Some(_) => Err(StoreError::Conflict(record.key())),
    }
}

/// A future that is ready at its second poll.
struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
