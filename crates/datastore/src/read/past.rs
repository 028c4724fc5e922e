//! The past of objects, in a datastore that keeps old revisions.

use calipam_files::raw::RawKv;
use calipam_files::recording::Change;
use calipam_model::IpNet;
use jiff::Timestamp;

use super::Lookup;

/// The subject of a request for past revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastSubject {
    /// An address, or a handle by its full ID.
    Lookup(Lookup),
    Block(IpNet),
    Node(String),
    /// A pod, by namespace and name.
    Pod((String, String)),
    /// All blocks, but only their latest revisions.
    Blocks,
}

/// The past revisions of some keys, as far as etcd still keeps them.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The endpoint without user and password.
    pub location: String,
    /// The GUID of the cluster; empty if it has none, or it was not read.
    pub guid: String,
    /// The oldest readable revision, or for [`PastSubject::Blocks`] the first one that was read; 0 if unknown.
    pub oldest: i64,
    /// The last revision for which changes were read.
    pub newest: i64,
    pub read_at: Timestamp,
    /// The values at the oldest revision, or else the earliest ones that were read.
    pub base: Vec<RawKv>,
    /// The changes after `base`, in ascending order of revision.
    pub changes: Vec<Change>,
}
