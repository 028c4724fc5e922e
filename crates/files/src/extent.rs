//! The part of a datastore that is read.

use std::collections::BTreeSet;

use calipam_model::block::RecordDetail;
use calipam_model::key::{BLOCK_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, RESOURCE_PREFIX, source_of_resources};
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};

/// The sources in Calico 2.x.
pub const CALICO_2_SOURCES: [Source; 8] = [
    Source::Blocks,
    Source::Affinities,
    Source::Handles,
    Source::Pools,
    Source::Nodes,
    Source::Endpoints,
    Source::ClusterInformation,
    Source::IpamConfig,
];

/// The data to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Everything that a check needs.
    #[default]
    Whole,
    /// These sources and data stored with them, with the block records that [`RecordDetail::Borrowers`] keeps. Rules
    /// cannot check this data, since it does not show who uses addresses.
    Sources(BTreeSet<Source>),
}

impl Extent {
    /// True if a source is wanted.
    pub fn has(&self, source: Source) -> bool {
        match self {
            Self::Whole => true,
            Self::Sources(sources) => sources.contains(&source),
        }
    }

    pub fn has_any(&self, sources: &[Source]) -> bool {
        sources.iter().any(|source| self.has(*source))
    }

    /// The detail in which block records are read.
    pub fn records(&self) -> RecordDetail {
        match self {
            Self::Whole => RecordDetail::Full,
            Self::Sources(_) => RecordDetail::Borrowers,
        }
    }

    /// True if the entry with this key is wanted. The key is one in etcd, or in an export of etcd or Kubernetes. Keys
    /// that belong to no source are wanted only if everything is read, since only then do they lead to findings.
    pub fn has_key(&self, key: &[u8]) -> bool {
        match self {
            Self::Whole => true,
            Self::Sources(sources) => source_of(key).is_some_and(|source| sources.contains(&source)),
        }
    }

    /// Marks unwanted sources as not needed, unless their coverage is already known.
    pub fn mark_unwanted(&self, snapshot: &mut Snapshot) {
        let unwanted = Source::all().filter(|source| !self.has(*source));
        for source in unwanted {
            skip(snapshot, source, WhySkipped::NotNeeded);
        }
    }
}

/// Records the reason why a source is not read, unless its coverage is already known.
pub fn skip(snapshot: &mut Snapshot, source: Source, reason: WhySkipped) {
    snapshot
        .coverage
        .entry(source)
        .or_insert_with(|| Coverage::Skipped(reason));
}

/// Returns the source to which an entry in etcd or in an export belongs; `None` for other keys.
fn source_of(key: &[u8]) -> Option<Source> {
    if let Some(ipam_key) = key.strip_prefix(IPAM_PREFIX.as_bytes()) {
        let source = if ipam_key == b"config" {
            Source::IpamConfig
        } else if key.starts_with(BLOCK_PREFIX.as_bytes()) {
            Source::Blocks
        } else if key.starts_with(HANDLE_PREFIX.as_bytes()) {
            Source::Handles
        } else {
            Source::Affinities
        };
        return Some(source);
    }

    if let Some(resource_key) = key.strip_prefix(RESOURCE_PREFIX.as_bytes()) {
        let kind = resource_key.split(|byte| *byte == b'/').next()?;
        return source_of_resources(kind);
    }
    // Kubernetes objects have keys such as `pods/namespace/name`.
    let (plural, _) = std::str::from_utf8(key).ok()?.split_once('/')?;
    crate::objects::kinds::by_plural(plural).map(|kind| kind.source)
}
