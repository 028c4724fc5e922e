//! The full blocks that a search found, kept for the next search on the same node.

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::recent::is_recent;

/// One family's blocks that had no address to assign. This is also the format of the plugin's notes (`notes.rs` of
/// calipam-cni): a change here needs a new `FULL_BLOCKS` there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullBlocks {
    /// A hash of the node, the pools, the reservations and the configuration. The blocks may be skipped only by
    /// searches with the same hash.
    pub inputs_hash: u64,
    /// The start of a search that found no further address in any block.
    pub exhausted_at: Option<Timestamp>,
    /// The blocks, each with the revision at which it was read. If a block has another revision now, it must be read
    /// again.
    pub blocks: HashMap<IpNet, String, FixedState>,
}

impl FullBlocks {
    /// True if a recent search found nothing.
    pub(crate) fn was_exhausted(&self, now: Timestamp) -> bool {
        self.exhausted_at.is_some_and(|then| is_recent(then, now))
    }

    /// True if a block was full at this revision.
    pub(crate) fn has(&self, cidr: IpNet, revision: &Revision) -> bool {
        self.blocks
            .get(&cidr)
            .is_some_and(|known| !known.is_empty() && *known == revision.to_string())
    }
}
