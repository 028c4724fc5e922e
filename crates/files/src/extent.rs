//! How much of a datastore is read.

use std::collections::BTreeSet;

use calipam_model::block::RecordDetail;
use calipam_model::key::{BLOCK_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, RESOURCE_PREFIX, source_of_resources};
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};

/// The sources that Calico 2.x has.
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

/// What a read brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Everything that a check needs.
    #[default]
    Whole,
    /// These sources, and what lies with them. Of the records of blocks, those that [`RecordDetail::Borrowers`] keeps. No
    /// rule can check what is read so, since nothing says who uses addresses.
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

    /// How much of the records of blocks is wanted.
    pub fn records(&self) -> RecordDetail {
        match self {
            Self::Whole => RecordDetail::Full,
            Self::Sources(_) => RecordDetail::Borrowers,
        }
    }

    /// True for an entry that is wanted, by its key in etcd or in an export of either datastore. Keys that name no source
    /// are findings of a whole read.
    pub fn has_key(&self, key: &[u8]) -> bool {
        match self {
            Self::Whole => true,
            Self::Sources(sources) => source_of(key).is_some_and(|source| sources.contains(&source)),
        }
    }

    /// Says of every source that is not wanted that it was not read, if nothing is said about it yet.
    pub fn say(&self, snapshot: &mut Snapshot) {
        for source in Source::ALL.into_iter().filter(|source| !self.has(*source)) {
            let unread = || Coverage::Skipped(WhySkipped::NotNeeded);
            snapshot.coverage.entry(source).or_insert_with(unread);
        }
    }
}

/// Says why a source is not read, if it is not.
pub fn skip(snapshot: &mut Snapshot, source: Source, reason: WhySkipped) {
    snapshot.coverage.entry(source).or_insert_with(|| Coverage::Skipped(reason));
}

/// The source that an entry of etcd or of an export belongs to.
fn source_of(key: &[u8]) -> Option<Source> {
    if let Some(rest) = key.strip_prefix(IPAM_PREFIX.as_bytes()) {
        let is_below = |prefix: &str| key.starts_with(prefix.as_bytes());
        return match rest {
            b"config" => Some(Source::IpamConfig),
            _ if is_below(BLOCK_PREFIX) => Some(Source::Blocks),
            _ if is_below(HANDLE_PREFIX) => Some(Source::Handles),
            _ => Some(Source::Affinities),
        };
    }
    if let Some(rest) = key.strip_prefix(RESOURCE_PREFIX.as_bytes()) {
        return source_of_resources(rest.split(|byte| *byte == b'/').next()?);
    }
    let (plural, _) = std::str::from_utf8(key).ok()?.split_once('/')?;
    crate::objects::kinds::by_plural(plural).map(|kind| kind.source)
}
