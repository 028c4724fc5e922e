//! The datastore that an allocator works on.

use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

use crate::family::Family;
use crate::record::Record;

/// A datastore as the allocator sees it: typed records under their keys, each with its revision.
///
/// The futures need not be `Send`: the allocator runs on a current-thread runtime or under a scheduler of its own.
/// An implementation may retry reads, never writes.
///
/// On Kubernetes, Calico deletes in two steps (facts 2.9). If [`read`](Self::read) finds a record by key that is marked
/// deleted, it finishes the deletion and returns nothing; from lists it leaves out marked affinities.
/// [`delete`](Self::delete) makes both steps, of which the mark is the compare-and-swap.
#[allow(async_fn_in_trait, reason = "the futures of an allocator stay on one thread")]
pub trait Store {
    fn now(&self) -> Timestamp;

    /// Answers independent queries in one round trip, in their order. The answer to a [`Query::Get`] has one entry or
    /// none. Records that cannot be decoded come as [`Record::Undecodable`] and are never left out.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError>;

    /// Stores a record if there is none under its key.
    async fn create(&self, record: &Record) -> Result<Revision, StoreError>;

    /// Replaces the record that was read at `revision`.
    async fn update(&self, record: &Record, revision: &Revision) -> Result<Revision, StoreError>;

    /// Deletes the record that was read.
    async fn delete(&self, entry: &Entry) -> Result<(), StoreError>;
}

impl<S: Store> Store for &S {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        (**self).read(queries).await
    }

    async fn create(&self, record: &Record) -> Result<Revision, StoreError> {
        (**self).create(record).await
    }

    async fn update(&self, record: &Record, revision: &Revision) -> Result<Revision, StoreError> {
        (**self).update(record, revision).await
    }

    async fn delete(&self, entry: &Entry) -> Result<(), StoreError> {
        (**self).delete(entry).await
    }
}

/// A question to a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One record: a block, an affinity, a handle, a node, [`Key::IpamConfig`] or, on etcd alone, [`Key::IpamHost`].
    /// For the configuration of Kubernetes, see [`Record::Config`].
    Get(Key),
    /// All pools of both families, disabled ones too.
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
    /// All blocks of a family with their contents. No assignment reads them, since they are large.
    Blocks(Family),
    /// The [`Record::BlockKey`] of a block, if it exists.
    BlockKey(IpNet),
    /// The keys of all blocks of any size that have addresses of a CIDR, including the block with that CIDR.
    Overlapping(IpNet),
    /// The keys of all blocks of a family. Their revisions may be missing.
    BlockKeys(Family),
    /// The keys of all blocks of a family, with revisions.
    BlockRevisions(Family),
}

impl Query {
    /// True if it asks for keys of blocks, as the search for another block does.
    pub fn asks_for_block_keys(&self) -> bool {
        matches!(
            self,
            Self::BlockKey(_) | Self::Overlapping(_) | Self::BlockKeys(_) | Self::BlockRevisions(_)
        )
    }
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub record: Record,
    pub revision: Revision,
}

/// The reason that a request to the datastore failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is a record under the key already. Nothing was changed.
    #[error("resource already exists: {0}")]
    Exists(Key),
    /// The record has changed since it was read. Nothing was changed.
    #[error("update conflict: {0}")]
    Conflict(Key),
    /// The record is gone. Nothing was changed.
    #[error("resource does not exist: {0}")]
    NotFound(Key),
    /// There was no definite answer: a write may have been made, or may be made later.
    #[error("{0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// True if another client was faster: reading again and trying again makes sense.
    pub fn is_lost_race(&self) -> bool {
        matches!(self, Self::Exists(_) | Self::Conflict(_) | Self::NotFound(_))
    }
}
