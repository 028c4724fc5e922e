//! Repairs the structure of corrupt blocks, so that the rest of the plan works with sound ones.

mod mapping;
mod raw;

use std::collections::{BTreeMap, HashMap};

use calipam_check::claim::Claim;
use calipam_check::index::IndexedBlock;
use calipam_check::record::names_owner;
use calipam_check::{Code, Subject, and_more};
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Block, BlockContent};
use calipam_model::cidr::{BLOCK_PREFIXES_V4, BLOCK_PREFIXES_V6, address_at, is_v4};
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock};

use self::mapping::SlotMapping;
use self::raw::RawBlock;
use super::request::Request;
use super::stored::{hidden_blocks, overlapping};
use crate::basis::Basis;
use crate::skipped::{Refusal, Result, SkipReason, Skipped};

/// A corrupt block with its structure repaired.
pub(super) struct Repaired {
    /// Structurally sound, with a raised sequence number.
    pub block: Block,
    /// The version of the corrupt block.
    pub revision: Revision,
    /// A description of the damage.
    pub broken: String,
    /// Ordinals that are still in use, but whose records are lost. They are free in `block`, and must not stay free.
    pub unrecorded: Vec<u32>,
}

/// All corrupt blocks of a plan.
#[derive(Default)]
pub(super) struct CorruptBlocks {
    pub blocks: BTreeMap<IpNet, Repaired>,
    pub skipped: Vec<Skipped>,
}

impl CorruptBlocks {
    /// Repairs the corrupt blocks in scope.
    pub(super) fn new(basis: &Basis<'_>, request: &Request) -> Self {
        let mut corrupt = Self::default();
        let broken = basis
            .context
            .index
            .blocks
            .iter()
            .filter(|block| block.sound.is_none());
        let broken: Vec<&IndexedBlock<'_>> = broken
            .filter(|block| request.has_block(block.key, block.owner))
            .collect();
        if broken.is_empty() {
            return corrupt;
        }

        let stored = basis
            .snapshot
            .blocks
            .iter()
            .filter(|block| !block.value.content.is_deleted());
        let stored: HashMap<IpNet, &StoredBlock> =
            stored.map(|block| (block.value.key, &block.value)).collect();
        let hidden = hidden_blocks(basis.snapshot, |_| false);

        for block in broken {
            let Some(content) = stored.get(&block.key) else {
                continue;
            };
            // An address in two overlapping blocks would be recorded twice.
            let repaired = match overlapping(&basis.context.index, &hidden, block.key) {
                None => repair(basis, block, &content.content),
                Some(other) => {
                    let detail = format!("{} overlaps {other}; decide which of them to keep", block.key);
                    Err(Refusal::new(SkipReason::Overlap, detail))
                }
            };
            match repaired {
                Ok((repaired, unrecorded)) => {
                    let first = block
                        .problems
                        .first()
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    let broken = first + &and_more(block.problems.len(), "problem", "problems");
                    let revision = block.revision.clone();
                    corrupt.blocks.insert(
                        block.key,
                        Repaired {
                            block: repaired,
                            revision,
                            broken,
                            unrecorded,
                        },
                    );
                }
                Err(refusal) => {
                    let skipped = Skipped::new(Subject::Block(block.key), refusal.reason, refusal.detail);
                    corrupt.skipped.push(skipped.with_code(Code::CorruptBlock));
                }
            }
        }

        corrupt
    }

    /// Returns the snapshot with the repaired blocks instead of the corrupt ones.
    pub(super) fn apply(&self, snapshot: &Snapshot) -> Snapshot {
        let mut repaired = snapshot.clone();
        for stored in &mut repaired.blocks {
            if stored.value.content.is_deleted() {
                continue;
            }
            if let Some(replacement) = self.blocks.get(&stored.value.key) {
                stored.value.content = BlockContent::Sound(Box::new(replacement.block.clone()));
            }
        }
        repaired
    }
}

fn beyond(detail: impl Into<String>) -> Refusal {
    Refusal::new(SkipReason::CorruptBeyondRepair, detail)
}

/// Refuses a block of a size that Calico never makes.
fn require_allowed_size(key: IpNet) -> Result<()> {
    let allowed = if is_v4(key) {
        BLOCK_PREFIXES_V4
    } else {
        BLOCK_PREFIXES_V6
    };
    if allowed.contains(&key.prefix_len()) {
        return Ok(());
    }
    Err(beyond(format!(
        "{key} has a size that Calico does not allow; delete it by hand"
    )))
}

/// Repairs a block. Also returns the ordinals whose records are lost although they are in use.
fn repair(basis: &Basis<'_>, broken: &IndexedBlock<'_>, content: &BlockContent) -> Result<(Block, Vec<u32>)> {
    let key = broken.key;
    require_allowed_size(key)?;
    let mut raw = RawBlock::new(key, content)?;
    let scratch = raw.records()?;
    let records: Vec<AttributeRef<'_>> = scratch.attributes().take(raw.attributes.len()).collect();

    if content.cidr() != key && !belongs_to_key(basis, key, content.cidr(), &raw, &records) {
        return Err(beyond(format!(
            "{key} holds the content of {}, but nothing shows that it belongs here; delete one of them by hand",
            content.cidr()
        )));
    }

    let mapping = SlotMapping::new(basis, key, &raw, &records)?;
    raw.write(&mapping.slots, basis.snapshot.taken_at);
    match BlockContent::parse(serde_json::Value::Object(raw.fields).to_string().as_bytes()) {
        Ok(BlockContent::Sound(mut block)) => {
            block.update(|edit| edit.touch());
            Ok((*block, mapping.unrecorded))
        }
        Ok(BlockContent::Corrupt(_)) | Err(_) => Err(beyond(format!(
            "too little of {key} can be read; delete it by hand, then rebuild its addresses"
        ))),
    }
}

/// Returns true if the content of a block belongs to the CIDR in its key rather than to the CIDR in its field `cidr`,
/// which has the same size. This is the case if more of its records match users of the key's addresses, or if it
/// allocates nothing.
fn belongs_to_key(
    basis: &Basis<'_>,
    key: IpNet,
    stated: IpNet,
    raw: &RawBlock,
    records: &[AttributeRef<'_>],
) -> bool {
    if key.prefix_len() != stated.prefix_len() || is_v4(key) != is_v4(stated) {
        return false;
    }

    if raw.allocations.iter().all(Option::is_none) {
        return true;
    }
    matching_records(basis, key, raw, records) > matching_records(basis, stated, raw, records)
}

/// Counts the records that name the users of their addresses, if the first address of the block is that of `cidr`.
fn matching_records(basis: &Basis<'_>, cidr: IpNet, raw: &RawBlock, records: &[AttributeRef<'_>]) -> usize {
    let mut number = 0;
    for (ordinal, index) in (0..).zip(&raw.allocations) {
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(record) = index.and_then(|index| records.get(index))
            && names_user(basis, record, cidr, ordinal)
        {
            number += 1;
        }
    }
    number
}

/// Returns true if the record is known to name a user of the address.
fn names_user(basis: &Basis<'_>, record: &AttributeRef<'_>, cidr: IpNet, ordinal: u32) -> bool {
    let claim = Claim::of(record);
    if matches!(claim, Claim::Anonymous | Claim::Unknown) || claim.needs_unread_source(basis.snapshot) {
        return false;
    }
    let index = &basis.context.index;
    let uses = index.uses_of(address_at(cidr, ordinal));
    uses.iter().any(|used| names_owner(record, used.owner, index))
}
