//! The allocator and its typed reads.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::event::{Observer, Trace};
use crate::notes::Notes;
use crate::record::Record;
use crate::store::{Entry, Query, Store};

/// The maximum number of attempts if other clients keep writing first; the same as in Calico.
pub(crate) const RETRIES: usize = 100;

/// A Calico allocator on a datastore.
///
/// Dropping an unfinished operation is like a crash: Calico and later operations can handle the state it leaves.
#[derive(Clone, Debug)]
pub struct Allocator<S> {
    store: S,
    pub(crate) trace: Trace,
    pub(crate) notes: Option<Arc<dyn Notes>>,
    /// True if the allocator takes over empty blocks of other holders (Calico 3.32 and later).
    pub(crate) reclaims: bool,
    /// True if the allocator also does what only Calico's does: see [`Self::like_calico`].
    pub(crate) is_calico: bool,
    /// A reservation with an entry at which the cluster's Calico dies.
    pub(crate) fatal_reservation: Option<String>,
}

impl<S: Store> Allocator<S> {
    /// Creates an allocator on a store: without events and notes, and with reclaiming of empty blocks.
    pub fn new(store: S) -> Self {
        Self {
            store,
            trace: Trace::default(),
            notes: None,
            reclaims: true,
            is_calico: false,
            fatal_reservation: None,
        }
    }

    /// Does what Calico's allocator does even where it assigns addresses twice or fails unnecessarily: creates blocks
    /// that overlap others, looks for an address only in the block of its pool's block size, and fails where a deletion
    /// stopped half-way. For predictions only.
    pub(crate) fn like_calico(self) -> Self {
        Self {
            is_calico: true,
            ..self
        }
    }

    /// Fails at a reservation, whenever reservations are read.
    pub(crate) fn dying_at(self, fatal_reservation: Option<String>) -> Self {
        Self {
            fatal_reservation,
            ..self
        }
    }

    /// Reports every decision to an observer.
    pub fn observed_by(self, observer: Observer) -> Self {
        Self {
            trace: Trace(Some(observer)),
            ..self
        }
    }

    /// Uses `notes` to remember the full blocks that a search finds, so that the next search reads fewer blocks.
    pub fn with_notes(self, notes: Arc<dyn Notes>) -> Self {
        Self {
            notes: Some(notes),
            ..self
        }
    }

    /// Leaves empty blocks to their owners, as Calico before 3.32 does.
    pub fn without_reclaiming(self) -> Self {
        Self {
            reclaims: false,
            ..self
        }
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// Makes a fixed number of queries in one round trip.
    pub(crate) async fn read<const N: usize>(&self, queries: [Query; N]) -> Result<[Vec<Entry>; N]> {
        let mut answers = self.store.read(&queries).await?.into_iter();
        Ok(std::array::from_fn(|_| answers.next().unwrap_or_default()))
    }

    /// Returns the stored configuration, or else Calico's default, which is not written.
    pub async fn config(&self) -> Result<IpamConfig> {
        let [found] = self.read([Query::Get(Key::IpamConfig)]).await?;
        config(found)
    }

    pub(crate) async fn block(&self, cidr: IpNet) -> Result<Option<Versioned<Block>>> {
        self.get(Key::Block(cidr)).await
    }

    pub(crate) async fn get<T>(&self, key: Key) -> Result<Option<Versioned<T>>>
    where
        Option<T>: From<Record>,
    {
        let [found] = self.read([Query::Get(key)]).await?;
        one(found)
    }

    /// Reads several blocks in one round trip.
    pub(crate) async fn blocks(&self, cidrs: &[IpNet]) -> Result<Vec<Option<Versioned<Block>>>> {
        self.each_block(cidrs).await?.into_iter().collect()
    }

    /// Reads several blocks in one round trip. Each block that cannot be decoded has an error of its own in the result.
    pub(crate) async fn each_block(&self, cidrs: &[IpNet]) -> Result<Vec<Result<Option<Versioned<Block>>>>> {
        let queries: Vec<Query> = cidrs.iter().map(|cidr| Query::Get(Key::Block(*cidr))).collect();
        let answers = self.store.read(&queries).await?;
        Ok(answers.into_iter().map(one).collect())
    }

    /// The blocks of any size that contain an address, the largest first.
    pub(crate) async fn blocks_around(&self, address: IpAddr) -> Result<Vec<Versioned<Block>>> {
        let cidrs: Vec<IpNet> = crate::walk::around(address).collect();
        Ok(self.blocks(&cidrs).await?.into_iter().flatten().collect())
    }
}

/// Returns the record in an answer to [`Query::Get`]. `None` if the answer is empty, or if the record is of another
/// kind.
///
/// # Errors
/// [`Error::Undecodable`] if a value is stored that cannot be decoded.
pub(crate) fn one<T>(found: Vec<Entry>) -> Result<Option<Versioned<T>>>
where
    Option<T>: From<Record>,
{
    let Some(Entry { record, revision }) = found.into_iter().next() else {
        return Ok(None);
    };
    if let Record::Undecodable { key, reason } = record {
        return Err(Error::Undecodable { key, reason });
    }
    Ok(Option::from(record).map(|value| Versioned { value, revision }))
}

/// The stored configuration, or Calico's default.
pub(crate) fn config(found: Vec<Entry>) -> Result<IpamConfig> {
    let config: Option<Versioned<IpamConfig>> = one(found)?;
    Ok(config.map_or_else(IpamConfig::default, |config| config.value))
}

pub(crate) fn block_entry(block: &Versioned<Block>) -> Entry {
    Entry {
        record: Record::Block(Arc::new(block.value.clone())),
        revision: block.revision.clone(),
    }
}
