//! The stored blocks: which are sound or readable, and which addresses in them have cooled down.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{Allocation, Block, BlockContent, BlockOwner, BlockProblem};
use calipam_model::cidr::block_around;
use calipam_model::snapshot::{Revision, Snapshot, Source, StoredBlock, Versioned};
use calipam_model::time::CLOCK_SKEW;
use jiff::{SignedDuration, Timestamp};

use crate::finding::RecordEvidence;

/// A stored block that is not marked deleted.
#[derive(Debug)]
pub struct IndexedBlock<'s> {
    pub key: IpNet,
    pub owner: Option<&'s BlockOwner>,
    /// The block, if it is sound.
    pub sound: Option<&'s Block>,
    /// The block, if its addresses can be read. The block is sound, or its only defects are records that no ordinal
    /// refers to. Such records are left out.
    pub usable: Option<&'s Block>,
    /// The sound block without the addresses that have cooled down; `None` if there are no such addresses.
    cooled: Option<Box<Block>>,
    /// The defects; empty for a sound block.
    pub problems: Vec<BlockProblem>,
    /// The revision of the stored object.
    pub revision: &'s Revision,
}

impl<'s> IndexedBlock<'s> {
    /// Returns the node that owns the block; `None` if it has another owner or none.
    pub fn host(&self) -> Option<&'s str> {
        self.owner.and_then(BlockOwner::host)
    }

    /// Returns a sound block as an allocator sees it: addresses that have cooled down are free.
    pub(crate) fn current(&self) -> Option<&Block> {
        self.cooled.as_deref().or(self.sound)
    }
}

/// One block's record of an address.
#[derive(Clone, Copy, Debug)]
pub struct Record<'c, 's> {
    pub block: &'c IndexedBlock<'s>,
    pub allocation: Allocation<'s>,
}

impl Record<'_, '_> {
    /// Copies the record for a finding.
    pub(crate) fn evidence(&self) -> RecordEvidence {
        RecordEvidence {
            block: self.block.key,
            block_owner: self.block.owner.cloned(),
            ordinal: self.allocation.ordinal,
            record: self.allocation.attribute.to_packed(),
            sequence_number: self.allocation.sequence,
        }
    }
}

/// Returns the stored blocks, by CIDR. A block is corrupt if it contains a release time that is later than `now` by
/// more than the permitted clock skew.
pub(super) fn index_blocks(snapshot: &Snapshot, now: Timestamp) -> Vec<IndexedBlock<'_>> {
    let latest_release = now.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    let cooldown = if snapshot.has_read(Source::IpamConfig) {
        let config = snapshot.effective_ipam_config();
        config.map(|config| config.cooldown())
    } else {
        None
    };
    let mut blocks = Vec::new();
    for stored in &snapshot.blocks {
        if !stored.value.content.is_deleted() {
            blocks.push(index_block(stored, latest_release, now, cooldown));
        }
    }
    blocks.sort_by_key(|block| block.key);
    blocks
}

/// Finds the problems of a stored block, and the addresses that have cooled down by `now`.
fn index_block(
    stored: &Versioned<StoredBlock>,
    latest_release: Timestamp,
    now: Timestamp,
    cooldown: Option<SignedDuration>,
) -> IndexedBlock<'_> {
    let content = &stored.value.content;
    let mut problems = match content {
        BlockContent::Sound(_) => Vec::new(),
        BlockContent::Corrupt(block) => block.problems.clone(),
    };
    // Looking at cooling addresses is most of the work. Most blocks have none, and skip it.
    let cooling = content.usable().filter(|block| block.has_cooling());
    if let Some(block) = cooling {
        problems.extend(released_in_future(block, latest_release));
    }
    if content.cidr() != stored.value.key {
        problems.push(BlockProblem::KeyMismatch {
            key: stored.value.key.to_string(),
            cidr: content.cidr().to_string(),
        });
    }

    let mut usable = None;
    let mut sound = None;
    let mut cooled = None;
    let is_usable = problems
        .iter()
        .all(|problem| matches!(problem, BlockProblem::UnreferencedAttribute { .. }));
    if is_usable {
        usable = content.usable();
    }
    if problems.is_empty() {
        sound = usable;
    }
    if let Some(block) = sound
        && cooling.is_some()
        && let Some(cooldown) = cooldown
    {
        let without_cooled = block.without_cooled(now, cooldown);
        if without_cooled.allocated() < block.allocated() {
            cooled = Some(Box::new(without_cooled.into_owned()));
        }
    }
    IndexedBlock {
        key: stored.value.key,
        owner: content.owner(),
        sound,
        usable,
        cooled,
        problems,
        revision: &stored.revision,
    }
}

/// Returns the blocks that contain an address, the largest first.
pub(super) fn blocks_around<'b, 's>(
    blocks: &'b [IndexedBlock<'s>],
    address: IpAddr,
) -> impl DoubleEndedIterator<Item = &'b IndexedBlock<'s>> + Clone {
    let longest_prefix = IpNet::from(address).prefix_len();
    let possible = (0..=longest_prefix).filter_map(move |prefix| block_around(address, prefix));
    possible.filter_map(|cidr| {
        let position = blocks.binary_search_by_key(&cidr, |block| block.key).ok()?;
        Some(&blocks[position])
    })
}

/// Returns a problem for each address that was released after `latest_release`, the latest time that can be right.
fn released_in_future(block: &Block, latest_release: Timestamp) -> Vec<BlockProblem> {
    let mut problems = Vec::new();
    for allocation in block.allocations() {
        let attribute = allocation.attribute;
        let Some(released) = attribute.released_time() else {
            continue;
        };
        if released <= latest_release {
            continue;
        }
        let released_at = attribute.released_at().map(|time| time.to_string());
        problems.push(BlockProblem::ReleasedInFuture {
            ordinal: allocation.ordinal,
            released_at: released_at.unwrap_or_default(),
        });
    }
    problems
}
