//! The datastore that an allocator works on.

use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr;
use calipam_model::key::{BLOCK_PREFIX, IPAM_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

use crate::family::Family;
use crate::recent::KnownState;
use crate::record::Record;

/// A datastore as the allocator sees it: typed records under their keys, each with its revision.
///
/// The futures need not be `Send`, since the allocator stays on one thread, whether on a runtime or in a simulation. An
/// implementation may retry reads, but never writes.
///
/// On Kubernetes, Calico deletes in two steps (facts 2.9): it marks the object deleted, then deletes it.
/// [`swap`](Self::swap) performs both steps. The first one, the mark, is the compare-and-swap. If [`read`](Self::read)
/// finds a marked record by key, it finishes the deletion and returns no entry. If it lists affinities, it leaves out
/// marked ones.
#[allow(async_fn_in_trait, reason = "the futures of an allocator stay on one thread")]
pub trait Store {
    fn now(&self) -> Timestamp;

    /// Answers independent queries in one round trip. The answers are in the order of the queries. The answer to a
    /// [`Query::Get`] has one entry or none. Records that cannot be decoded are returned as [`Record::Undecodable`],
    /// never left out.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError>;

    /// Answers queries like [`Self::read`], but may answer lists from any state that is not older than `known`, if that
    /// is faster. Answers to [`Query::Get`] are current.
    async fn read_since(
        &self,
        queries: &[Query],
        _known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        Ok(ListsSince {
            answers: self.read(queries).await?,
            state: None,
        })
    }

    /// The blocks that belong to an owner, with or without an affinity, ascending, if the store knows that without
    /// reading all blocks.
    fn owned_blocks(&self, _owner: &BlockOwner) -> Vec<IpNet> {
        Vec::new()
    }

    /// A block whose deletion stopped half-way, as a list shows it, if the store knows that without a read. A read of the
    /// block alone finishes the deletion (facts 2.9).
    fn half_deleted_block(&self, _cidr: IpNet) -> Option<Arc<Block>> {
        None
    }

    /// Performs one write, and returns the record's new revision. After a deletion, the revision has no meaning.
    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError>;

    /// Stores a record; fails if one exists under its key.
    async fn create(&self, record: &Record) -> Result<Revision, StoreError> {
        self.swap(&Swap {
            record: record.clone(),
            read: None,
            deletes: false,
        })
        .await
    }

    /// Replaces the record that was read at `revision`.
    async fn update(&self, record: &Record, revision: &Revision) -> Result<Revision, StoreError> {
        self.swap(&Swap {
            record: record.clone(),
            read: Some(revision.clone()),
            deletes: false,
        })
        .await
    }

    /// Deletes a record, if it has not changed since it was read.
    async fn delete(&self, entry: &Entry) -> Result<(), StoreError> {
        let Entry { record, revision } = entry.clone();
        self.swap(&Swap {
            record,
            read: Some(revision),
            deletes: true,
        })
        .await
        .map(drop)
    }
}

impl<S: Store> Store for &S {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        (**self).read(queries).await
    }

    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        (**self).read_since(queries, known).await
    }

    fn owned_blocks(&self, owner: &BlockOwner) -> Vec<IpNet> {
        (**self).owned_blocks(owner)
    }

    fn half_deleted_block(&self, cidr: IpNet) -> Option<Arc<Block>> {
        (**self).half_deleted_block(cidr)
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        (**self).swap(swap).await
    }
}

/// The answers of [`Store::read_since`].
#[derive(Debug)]
pub struct ListsSince {
    /// The answers, in the order of the queries.
    pub answers: Vec<Vec<Entry>>,
    /// The state since which later calls can list, if all lists are current and the store can list since a state.
    pub state: Option<KnownState>,
}

/// A write: the compare-and-swap of one record.
#[derive(Clone, Debug)]
pub struct Swap {
    /// The record to write or delete.
    pub record: Record,
    /// The revision at which the record was read; `None` if none may exist under its key.
    pub read: Option<Revision>,
    pub deletes: bool,
}

impl Swap {
    /// The record after this write; `None` if the write deletes it.
    pub fn after(&self) -> Option<&Record> {
        if self.deletes {
            return None;
        }
        Some(&self.record)
    }

    /// Fails unless `found`, the current revision under the key, is the one that was read.
    pub fn expect(&self, found: Option<&Revision>) -> Result<(), StoreError> {
        match (&self.read, found) {
            (None, Some(_)) => Err(StoreError::Exists(self.record.key())),
            (Some(_), None) => Err(StoreError::NotFound(self.record.key())),
            (read, found) if read.as_ref() == found => Ok(()),
            _ => Err(StoreError::Conflict(self.record.key())),
        }
    }
}

/// A read request to a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One record: a block, an affinity, a handle, a node, [`Key::IpamConfig`] or, with the etcd datastore,
    /// [`Key::IpamHost`]. For the configuration with the Kubernetes datastore, see [`Record::Config`].
    Get(Key),
    /// All pools of both families, including disabled ones.
    Pools,
    /// All reservations.
    Reservations,
    Affinities {
        kind: AffinityType,
        holder: String,
        family: Family,
    },
    /// The affinities of all nodes in both families, without those of virtual holders.
    HostAffinities,
    /// All blocks of a family with their contents. Assignments never make this query, since its answer is large.
    Blocks(Family),
    /// The [`Record::BlockKey`] of a block, if it exists.
    BlockKey(IpNet),
    /// The keys of blocks of any size that overlap a CIDR, including the block with that CIDR.
    Overlapping(IpNet),
    /// The keys of blocks of any size that overlap one of the pools with these CIDRs, which are of one family. Their
    /// revisions can be missing.
    BlockKeys(Vec<IpNet>),
    /// The same keys as [`Self::BlockKeys`], with revisions.
    BlockRevisions(Vec<IpNet>),
}

impl Query {
    /// True if the query asks for block keys.
    pub fn asks_for_block_keys(&self) -> bool {
        matches!(
            self,
            Self::BlockKey(_) | Self::Overlapping(_) | Self::BlockKeys(_) | Self::BlockRevisions(_)
        )
    }

    /// The etcd path that the query reads, or the prefix of all paths that it reads.
    pub fn path(&self) -> String {
        let blocks = |family: Family| format!("{BLOCK_PREFIX}ipv{}/block/", family.number());
        match self {
            Self::Get(key) => key.to_string(),
            Self::BlockKey(cidr) => Key::Block(*cidr).to_string(),
            Self::Pools => format!("{RESOURCE_PREFIX}ippools/"),
            Self::Reservations => format!("{RESOURCE_PREFIX}ipreservations/"),
            Self::Affinities { kind, holder, family } => {
                format!("{IPAM_PREFIX}{kind}/{holder}/ipv{}/block/", family.number())
            }
            Self::HostAffinities => format!("{IPAM_PREFIX}{}/", AffinityType::Host),
            Self::Overlapping(cidr) => blocks(Family::of(*cidr)),
            Self::Blocks(family) => blocks(*family),
            Self::BlockKeys(pools) | Self::BlockRevisions(pools) => {
                blocks(pools.first().map_or(Family::V4, |pool| Family::of(*pool)))
            }
        }
    }

    /// Returns true if a record under `key` belongs to the answer to this query.
    pub fn asks_for(&self, key: &Key) -> bool {
        match self {
            Self::Get(wanted) => key == wanted,
            Self::Pools => matches!(key, Key::Pool(_)),
            Self::Reservations => matches!(key, Key::Reservation(_)),
            Self::Affinities { kind, holder, family } => matches!(
                key,
                Key::Affinity(AffinityKey { kind: kind_of_key, node, cidr })
                    if kind_of_key == kind && node == holder && Family::of(*cidr) == *family
            ),
            Self::HostAffinities => {
                matches!(key, Key::Affinity(affinity) if affinity.kind == AffinityType::Host)
            }
            Self::Blocks(family) => matches!(key, Key::Block(block) if Family::of(*block) == *family),
            Self::BlockKeys(pools) | Self::BlockRevisions(pools) => {
                matches!(key, Key::Block(block) if pools.iter().any(|pool| cidr::overlap(*pool, *block)))
            }
            Self::BlockKey(wanted) => matches!(key, Key::Block(block) if block == wanted),
            Self::Overlapping(network) => matches!(key, Key::Block(block) if cidr::overlap(*network, *block)),
        }
    }

    /// Decodes a value from etcd; `None` if the query does not ask for its key.
    pub fn decode(&self, key: &Key, value: &[u8]) -> Option<Record> {
        match key {
            key if !self.asks_for(key) => None,
            Key::Block(cidr) if self.asks_for_block_keys() => Some(Record::BlockKey(*cidr)),
            key => Record::decode(key, value),
        }
    }
}

/// A record and the revision at which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub record: Record,
    pub revision: Revision,
}

/// The reason why a request to the datastore failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A record already exists under the key. Nothing was changed.
    #[error("resource already exists: {0}")]
    Exists(Key),
    /// The record has changed since it was read. Nothing was changed.
    #[error("update conflict: {0}")]
    Conflict(Key),
    /// The record no longer exists. Nothing was changed.
    #[error("resource does not exist: {0}")]
    NotFound(Key),
    /// There was no definite answer: a write may have been made, or may still be made.
    #[error("{0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// True if another client wrote first, so reading and trying again makes sense.
    pub fn is_lost_race(&self) -> bool {
        matches!(self, Self::Exists(_) | Self::Conflict(_) | Self::NotFound(_))
    }
}
