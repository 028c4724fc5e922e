//! Models of Calico's own allocator and collector, written after the facts (3.3 to 3.17).
//!
//! They send Calico's requests in Calico's order, each read separately, except for the differences that `docs/cni.md`
//! lists. The only code that they share with calipam's allocator is the arithmetic of blocks, so a guard that is
//! missing in the allocator is not missing here. They leave out everything that the explored worlds do not need: IPv6,
//! Windows, machines, reservations, strict affinity and limits of blocks. They also do not read the node and the pool
//! after a release, since the pool selects every node.

mod affinity;
mod assign;
mod collector;
mod release;

pub(crate) use self::assign::Wanted;

use std::borrow::Cow;
use std::sync::Arc;

use calipam_assign::{Entry, Family, Query, Record, Store, StoreError};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{Revision, Versioned};

use crate::world::Client;

/// Number of attempts before an operation that keeps losing races fails.
const RETRIES: usize = 100;

/// Calico's allocator in one process.
pub(crate) struct Calico {
    store: Client,
}

/// The reason why an operation ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Another client was faster.
    Conflict,
    Exists,
    Gone,
    /// The block belongs to another host, and the host's own affinity has been deleted.
    NotOurs,
    NotEmpty,
    /// There is no block to claim.
    NoFreeBlock,
    /// The address is taken, or its record differs from the request.
    Refused,
    /// The request got no answer. It may or may not have been executed.
    NoAnswer,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists(_) => Self::Exists,
            StoreError::Conflict(_) => Self::Conflict,
            StoreError::NotFound(_) => Self::Gone,
            StoreError::Unavailable(_) => Self::NoAnswer,
        }
    }
}

type Result<T> = std::result::Result<T, Stop>;

impl Calico {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            store: client.one_by_one(),
        }
    }

    async fn read(&self, query: Query) -> Result<Vec<Entry>> {
        Ok(self.store.read(&[query]).await?.into_iter().flatten().collect())
    }

    /// Reads a record; [`Stop::Gone`] if there is none.
    async fn get<T>(&self, key: Key) -> Result<Versioned<T>>
    where
        Option<T>: From<Record>,
    {
        let found = self
            .read(Query::Get(key))
            .await?
            .into_iter()
            .next()
            .ok_or(Stop::Gone)?;
        into_versioned(found).ok_or(Stop::Refused)
    }

    async fn block(&self, cidr: IpNet) -> Result<Versioned<Block>> {
        self.get(Key::Block(cidr)).await
    }

    async fn affinity(&self, key: &AffinityKey) -> Result<Versioned<Affinity>> {
        self.get(Key::Affinity(key.clone())).await
    }

    async fn handle(&self, id: &str) -> Result<Versioned<Handle>> {
        self.get(Key::Handle(id.to_owned())).await
    }

    async fn config(&self) -> Result<IpamConfig> {
        let stored: Option<Versioned<IpamConfig>> = found(self.get(Key::IpamConfig).await)?;
        Ok(stored.map_or_else(IpamConfig::default, |config| config.value))
    }

    async fn pools(&self) -> Result<Vec<Pool>> {
        let found = self.read(Query::Pools).await?.into_iter();
        Ok(found.filter_map(|entry| entry.record.into()).collect())
    }

    async fn blocks(&self) -> Result<Vec<Versioned<Block>>> {
        let found = self.read(Query::Blocks(Family::V4)).await?.into_iter();
        Ok(found.filter_map(into_versioned).collect())
    }

    async fn affinities(&self, host: &str) -> Result<Vec<IpNet>> {
        let kind = AffinityType::Host;
        let holder = host.to_owned();
        let found = self
            .read(Query::Affinities {
                kind,
                holder,
                family: Family::V4,
            })
            .await?
            .into_iter();
        let cidr = |entry: Entry| match entry.record.key() {
            Key::Affinity(key) => Some(key.cidr),
            _ => None,
        };
        Ok(found.filter_map(cidr).collect())
    }

    /// Replaces a block if it has not changed since it was read. The sequence number must already be incremented.
    async fn update_block(&self, block: Versioned<Block>) -> Result<Versioned<Block>> {
        let record = Record::Block(Arc::new(block.value.clone()));
        let revision = self.store.update(&record, &block.revision).await?;
        Ok(Versioned {
            value: block.value,
            revision,
        })
    }

    /// Counts one more address in a handle (facts 3.8). Retries the write after any error.
    async fn increment(&self, id: &str, block: IpNet) -> Result<()> {
        retried(async || {
            let stored = found(self.handle(id).await)?;
            let mut handle = stored
                .as_ref()
                .map_or_else(|| Handle::new(id), |stored| stored.value.clone());
            handle.set_count(block, handle.count(block) + 1);
            let written = match &stored {
                Some(stored) => self.store.update(&Record::Handle(handle), &stored.revision).await,
                None => self.store.create(&Record::Handle(handle)).await,
            };
            written.map(drop).map_err(|_| Stop::Conflict)
        })
        .await
    }

    /// Counts `by` fewer addresses in a handle, and deletes the handle when its last count is removed.
    async fn decrement(&self, id: &str, block: IpNet, by: i64) -> Result<()> {
        retried(async || {
            let stored = self.handle(id).await?;
            let count = stored.value.count(block);
            if count < by {
                return Err(Stop::Refused);
            }
            let mut handle = stored.value.clone();
            handle.set_count(block, count - by);
            if handle.blocks().next().is_none() {
                return found(self.delete(Record::Handle(stored.value), stored.revision).await).map(drop);
            }
            Ok(self
                .store
                .update(&Record::Handle(handle), &stored.revision)
                .await
                .map(drop)?)
        })
        .await
    }

    /// A block without the addresses whose cooldown is over.
    fn current<'b>(&self, block: &'b Block, config: &IpamConfig) -> Cow<'b, Block> {
        block.without_cooled(self.store.now(), config.cooldown())
    }

    async fn delete(&self, record: Record, revision: Revision) -> Result<()> {
        Ok(self.store.delete(&Entry { record, revision }).await?)
    }
}

/// Repeats an operation while it loses races.
async fn retried<T>(mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    for _ in 0..RETRIES {
        match attempt().await {
            Err(Stop::Conflict) => {}
            done => return done,
        }
    }
    Err(Stop::Conflict)
}

/// The result of an operation; `None` if its object no longer exists.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Gone) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// The value of a record; `None` if it is of another kind.
fn into_versioned<T>(entry: Entry) -> Option<Versioned<T>>
where
    Option<T>: From<Record>,
{
    Option::from(entry.record).map(|value| Versioned {
        value,
        revision: entry.revision,
    })
}

/// The affinity of a host for a block.
fn key_of(host: &str, cidr: IpNet) -> AffinityKey {
    AffinityKey {
        kind: AffinityType::Host,
        node: host.to_owned(),
        cidr,
    }
}
