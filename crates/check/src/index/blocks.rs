//! The stored blocks: which are sound or readable, and which addresses in them have cooled down.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{Allocation, Block, BlockContent, BlockOwner, BlockProblem};
use calipam_model::cidr::block_around;
use calipam_model::snapshot::{Revision, Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

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
    let future = now.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    let config = snapshot
        .effective_ipam_config()
        .filter(|_| snapshot.has_read(Source::IpamConfig));
    let cooldown = config.map(|config| config.cooldown());
    let stored = snapshot.blocks.iter().filter(|b| !b.value.content.is_deleted());
    let mut blocks: Vec<_> = stored
        .map(|stored| {
            let content = &stored.value.content;
            let mut problems = match content {
                BlockContent::Sound(_) => Vec::new(),
                BlockContent::Corrupt(block) => block.problems.clone(),
            };
            // Looking at cooling addresses is most of the work. Most blocks have none, and skip it.
            let cooling = content.usable().filter(|block| block.has_cooling());
            problems.extend(
                cooling
                    .into_iter()
                    .flat_map(|block| released_in_future(block, future)),
            );
            if content.cidr() != stored.value.key {
                let key = stored.value.key.to_string();
                let cidr = content.cidr().to_string();
                problems.push(BlockProblem::KeyMismatch { key, cidr });
            }
            let is_unreferenced = |p: &BlockProblem| matches!(p, BlockProblem::UnreferencedAttribute { .. });
            let usable = content.usable().filter(|_| problems.iter().all(is_unreferenced));
            let sound = usable.filter(|_| problems.is_empty());
            let cooled = sound
                .filter(|_| cooling.is_some())
                .zip(cooldown)
                .and_then(|(block, cooldown)| {
                    let cooled = block.without_cooled(now, cooldown);
                    (cooled.allocated() < block.allocated()).then(|| Box::new(cooled.into_owned()))
                });
            IndexedBlock {
                key: stored.value.key,
                owner: content.owner(),
                sound,
                usable,
                cooled,
                problems,
                revision: &stored.revision,
            }
        })
        .collect();
    blocks.sort_by_key(|b| b.key);
    blocks
}

/// Returns the blocks that contain an address, the largest first.
pub(super) fn blocks_around<'b, 's>(
    blocks: &'b [IndexedBlock<'s>],
    address: IpAddr,
) -> impl DoubleEndedIterator<Item = &'b IndexedBlock<'s>> + Clone {
    let around =
        (0..=IpNet::from(address).prefix_len()).filter_map(move |prefix| block_around(address, prefix));
    around
        .filter_map(|cidr| blocks.binary_search_by_key(&cidr, |block| block.key).ok())
        .map(|at| &blocks[at])
}

fn released_in_future(block: &Block, limit: Timestamp) -> Vec<BlockProblem> {
    let late = |time: Timestamp| time > limit;
    let broken = block
        .allocations()
        .filter(|a| a.attribute.released_time().is_some_and(late));
    broken
        .map(|a| BlockProblem::ReleasedInFuture {
            ordinal: a.ordinal,
            released_at: a
                .attribute
                .released_at()
                .map(|t| t.to_string())
                .unwrap_or_default(),
        })
        .collect()
}
