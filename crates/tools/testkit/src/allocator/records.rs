//! A worker's datastore as calipam's allocator sees it. The requests and the form of Kubernetes objects are the tests'
//! own.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use calipam_assign::{Entry, Query, StoreError, Swap};
use calipam_model::key::Key;
use calipam_model::snapshot::{ObjectVersion, Revision};
use jiff::Timestamp;

use super::store::{List, Place, Read, Result, Store, Version};
use crate::servers::ServerError;

/// One worker's datastore. Operations never wait for another task: requests block the worker's thread.
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

    /// Accesses the datastore without the allocator.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }

    fn entries(&self, query: &Query) -> Result<Vec<Entry>> {
        let store = &mut *self.0.borrow_mut();
        let one = |store: &mut Store, key: &Key| -> Result<Vec<(String, Read)>> {
            let read = place(key).map(|place| store.get(place)).transpose()?.flatten();
            Ok(read.map(|read| (key.to_string(), read)).into_iter().collect())
        };
        let found = match query {
            Query::Get(key) => match List::of(key) {
                Some(list) => store.others().list(list)?,
                None => one(store, key)?,
            },
            Query::BlockKey(cidr) => one(store, &Key::Block(*cidr))?,
            Query::Pools => store.others().list(List::Pools)?,
            Query::Reservations => store.others().list(List::Reservations)?,
            Query::Affinities { holder, .. } => store.others().list(List::Affinities(Some(holder)))?,
            Query::HostAffinities => store.others().list(List::Affinities(None))?,
            Query::Blocks(_) | Query::Overlapping(_) | Query::BlockKeys(_) | Query::BlockRevisions(_) => {
                store.others().list(List::Blocks)?
            }
        };
        let entry = |(path, (value, version)): (String, Read)| {
            let record = query.decode(&Key::parse(&path).ok()??, &value)?;
            Some(Entry { record, revision: revision(version) })
        };
        Ok(found.into_iter().filter_map(entry).collect())
    }
}

impl List<'_> {
    /// The list with one object that the allocator only reads.
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

    async fn swap(&self, swap: &Swap) -> std::result::Result<Revision, StoreError> {
        let (key, mut store) = (swap.record.key(), self.0.borrow_mut());
        let place = place(&key).expect("workers write blocks, affinities and handles");
        let value = swap.record.encode().expect("what is written has a value");
        let Some(read) = &swap.read else {
            let created = store.create(place, value).map_err(unavailable)?;
            return created.map(revision).ok_or(StoreError::Exists(key));
        };
        if !swap.deletes {
            let updated = store.update(place, value, &version(read)).map_err(unavailable)?;
            return updated.map(revision).ok_or(StoreError::Conflict(key));
        }
        if store.delete(place, &version(read)).map_err(unavailable)? {
            return Ok(read.clone());
        }
        match store.get(place).map_err(unavailable)? {
            Some(_) => Err(StoreError::Conflict(key)),
            None => Err(StoreError::NotFound(key)),
        }
    }
}
