//! The datastore of a worker as calipam's allocator sees it. The requests, and the form in which Kubernetes has the
//! objects, are the tests' own.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use calipam_assign::{Entry, Family, Query, Record, StoreError};
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::snapshot::{ObjectVersion, Revision};
use jiff::Timestamp;

use super::store::{List, Place, Read, Result, Store, Version};
use crate::servers::ServerError;

/// One worker's datastore. An operation on it never waits for another task: the requests block the worker's thread.
pub(super) struct Records(RefCell<Store>);

/// Runs an operation of the allocator to its end.
pub(super) fn finish<T>(operation: impl Future<Output = T>) -> T {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the requests of a worker block its thread"),
    }
}

impl Records {
    pub(super) fn new(store: Store) -> Self {
        Self(RefCell::new(store))
    }

    /// Uses the datastore without the allocator.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }

    fn entries(&self, query: &Query) -> Result<Vec<Entry>> {
        let store = &mut *self.0.borrow_mut();
        let listed =
            |list: Vec<(String, Read)>| list.into_iter().filter_map(|(path, read)| entry(&path, read));
        Ok(match query {
            Query::Get(key) => match List::of(key) {
                Some(list) => listed(store.others().list(list)?).collect(),
                None => {
                    let read = place(key).map(|place| store.get(place)).transpose()?.flatten();
                    read.and_then(|read| entry(&key.to_string(), read)).into_iter().collect()
                }
            },
            Query::Pools => listed(store.others().list(List::Pools)?).collect(),
            Query::Reservations => listed(store.others().list(List::Reservations)?).collect(),
            Query::Affinities { holder, family, .. } => {
                let entries = listed(store.others().list(List::Affinities(Some(holder)))?);
                entries.filter(|entry| family_of(entry) == Some(*family)).collect()
            }
            Query::HostAffinities => listed(store.others().list(List::Affinities(None))?).collect(),
            Query::Blocks(family) => {
                let entries = listed(store.others().list(List::Blocks)?);
                entries.filter(|entry| family_of(entry) == Some(*family)).collect()
            }
            Query::BlockKey(cidr) => {
                let read = store.get(Place::Block(*cidr))?;
                read.map(|(_, version)| block_key(*cidr, revision(version))).into_iter().collect()
            }
            Query::Overlapping(cidr) => {
                let all = block_keys(listed(store.others().list(List::Blocks)?));
                all.filter(|(found, _)| cidr::overlap(*found, *cidr)).map(|(_, entry)| entry).collect()
            }
            Query::BlockKeys(family) | Query::BlockRevisions(family) => {
                let all = block_keys(listed(store.others().list(List::Blocks)?));
                all.filter(|(found, _)| Family::of(*found) == *family).map(|(_, entry)| entry).collect()
            }
        })
    }
}

impl List<'_> {
    /// The list that has one object which the allocator only reads.
    fn of(key: &Key) -> Option<List<'_>> {
        match key {
            Key::IpamConfig => Some(List::Config),
            Key::Node(name) => Some(List::Node(name)),
            _ => None,
        }
    }
}

/// The place of an object that the allocator writes.
fn place(key: &Key) -> Option<Place<'_>> {
    match key {
        Key::Block(cidr) => Some(Place::Block(*cidr)),
        Key::Affinity(affinity) => Some(Place::Affinity(&affinity.node, affinity.cidr)),
        Key::Handle(id) => Some(Place::Handle(id)),
        _ => None,
    }
}

fn entry(path: &str, (value, version): Read) -> Option<Entry> {
    let key = Key::parse(path).ok()??;
    Some(Entry { record: Record::decode(&key, &value)?, revision: revision(version) })
}

fn block_key(cidr: IpNet, revision: Revision) -> Entry {
    Entry { record: Record::BlockKey(cidr), revision }
}

/// The keys of the blocks among some records.
fn block_keys(entries: impl Iterator<Item = Entry>) -> impl Iterator<Item = (IpNet, Entry)> {
    entries.filter_map(|entry| match entry.record.key() {
        Key::Block(cidr) => Some((cidr, block_key(cidr, entry.revision))),
        _ => None,
    })
}

fn family_of(entry: &Entry) -> Option<Family> {
    match entry.record.key() {
        Key::Block(cidr) => Some(Family::of(cidr)),
        Key::Affinity(affinity) => Some(Family::of(affinity.cidr)),
        _ => None,
    }
}

fn revision(version: Version) -> Revision {
    match version {
        Version::Etcd(revision) => Revision::Etcd(revision),
        Version::Kubernetes(resource_version, uid) => Revision::Kubernetes(Box::new(ObjectVersion {
            resource_version,
            uid,
            ..ObjectVersion::default()
        })),
    }
}

fn version(revision: &Revision) -> Version {
    match revision {
        Revision::Etcd(revision) => Version::Etcd(*revision),
        Revision::Kubernetes(version) => {
            Version::Kubernetes(version.resource_version.clone(), version.uid.clone())
        }
    }
}

fn unavailable(error: ServerError) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

impl calipam_assign::Store for Records {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn read(&self, queries: &[Query]) -> std::result::Result<Vec<Vec<Entry>>, StoreError> {
        queries.iter().map(|query| self.entries(query).map_err(unavailable)).collect()
    }

    async fn create(&self, record: &Record) -> std::result::Result<Revision, StoreError> {
        let key = record.key();
        let (place, value) = written(&key, record);
        let created = self.0.borrow_mut().create(place, value).map_err(unavailable)?;
        created.map(revision).ok_or(StoreError::Exists(key))
    }

    async fn update(&self, record: &Record, read: &Revision) -> std::result::Result<Revision, StoreError> {
        let key = record.key();
        let (place, value) = written(&key, record);
        let updated = self.0.borrow_mut().update(place, value, &version(read)).map_err(unavailable)?;
        updated.map(revision).ok_or(StoreError::Conflict(key))
    }

    async fn delete(&self, entry: &Entry) -> std::result::Result<(), StoreError> {
        let key = entry.record.key();
        let (place, _) = written(&key, &entry.record);
        let store = &mut *self.0.borrow_mut();
        if store.delete(place, &version(&entry.revision)).map_err(unavailable)? {
            return Ok(());
        }
        match store.get(place).map_err(unavailable)? {
            Some(_) => Err(StoreError::Conflict(key)),
            None => Err(StoreError::NotFound(key)),
        }
    }
}

/// Where and what is written of a record.
fn written<'k>(key: &'k Key, record: &Record) -> (Place<'k>, Vec<u8>) {
    let place = place(key).expect("workers write blocks, affinities and handles");
    (place, record.encode().expect("what is written has a value"))
}
