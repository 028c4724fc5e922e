//! Reads a block's JSON, and determines whether the block is sound or corrupt.

use std::borrow::Cow;

use ipnet::IpNet;
use serde::de::{MapAccess, SeqAccess};

use super::records::Records;
use super::{Block, BlockOwner, BlockProblem, CorruptBlock, Extras, usable};
use crate::DecodeError;
use crate::cidr;
use crate::json::{
    Array, Fields, Items, Object, Unknown, is_field, keep_unknown, read_object, set_unless_null,
};
use crate::words::joined;

/// The level of detail at which owner records are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordDetail {
    #[default]
    Full,
    /// Enough to count addresses and to find borrowed ones. The addresses on the block's own node, which are nearly
    /// all, share one record. It contains the newest of their times, but no handle or pod. All other records are read
    /// in full. No address has a sequence number.
    Borrowers,
}

/// A value stored under a block's key.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockContent {
    /// A block whose structure is sound.
    Sound(Box<Block>),
    /// A block whose structure is broken.
    Corrupt(Box<CorruptBlock>),
}

impl BlockContent {
    /// Reads a block's JSON.
    ///
    /// # Errors
    /// If the text is not JSON, a field has a type that Calico's reader does not accept, or `cidr` is missing or not a
    /// CIDR. A block that can be read but is broken becomes [`Self::Corrupt`].
    pub fn parse(json: &[u8]) -> Result<Self, DecodeError> {
        Self::parse_with(json, RecordDetail::Full)
    }

    /// Reads a block's JSON, with its records at the given level of detail. A corrupt block is read in full.
    pub fn parse_with(json: &[u8], detail: RecordDetail) -> Result<Self, DecodeError> {
        let without_fields = || RawBlock {
            detail,
            ..RawBlock::default()
        };
        let raw = read_object(json, without_fields)?;
        if raw.records.kept.own.is_some() && raw.records.kept.host.as_deref() != raw.host() {
            // The owner field occurs again after the records, so it is unclear which records belong to the owner.
            return Self::parse_with(json, RecordDetail::Full);
        }
        let cidr = raw.cidr.as_deref().ok_or_else(|| DecodeError::missing("cidr"))?;
        let cidr = cidr::parse_cidr(cidr).ok_or_else(|| DecodeError::not_a_cidr("cidr", cidr))?;

        let problems = raw.problems(cidr);
        if problems.is_empty() {
            return Ok(Self::Sound(Box::new(raw.into_block(cidr))));
        }
        let owner = raw.owner();
        let raw_text = String::from_utf8_lossy(json).into_owned().into_boxed_str();
        let usable = usable::without_unreferenced(&raw_text, &problems).and_then(|json| parse_sound(&json));
        Ok(Self::Corrupt(Box::new(CorruptBlock {
            cidr,
            owner,
            deleted: raw.deleted,
            problems,
            usable,
            raw: raw_text,
        })))
    }

    /// The CIDR in the value.
    pub fn cidr(&self) -> IpNet {
        match self {
            Self::Sound(block) => block.cidr(),
            Self::Corrupt(block) => block.cidr,
        }
    }

    /// The owner in the value.
    pub fn owner(&self) -> Option<&BlockOwner> {
        match self {
            Self::Sound(block) => block.owner(),
            Self::Corrupt(block) => block.owner.as_ref(),
        }
    }

    /// True if the block is marked as deleted.
    pub fn is_deleted(&self) -> bool {
        match self {
            Self::Sound(block) => block.is_deleted(),
            Self::Corrupt(block) => block.deleted,
        }
    }

    /// The block, if its structure is sound.
    pub fn sound(&self) -> Option<&Block> {
        match self {
            Self::Sound(block) => Some(block),
            Self::Corrupt(_) => None,
        }
    }

    /// The block as an allocator uses it: sound, or without its unreferenced records if they are its only problem.
    /// Calico drops such records with its next write (3.33 and later), so a release must not fail because of them.
    pub fn usable(&self) -> Option<&Block> {
        match self {
            Self::Sound(block) => Some(block),
            Self::Corrupt(block) => block.usable.as_deref(),
        }
    }

    /// Returns the block if Calico can use it, even if it is corrupt.
    pub fn into_usable(self) -> Result<Box<Block>, DecodeError> {
        match self {
            Self::Sound(block) => Ok(block),
            Self::Corrupt(block) => block
                .usable
                .ok_or_else(|| DecodeError(joined(&block.problems, "; "))),
        }
    }

    /// The block as Calico's allocator takes addresses from it. Calico looks at the free list alone: an address in the
    /// list is free even if it has a record, and any other one is taken. `None` if more is broken than the free list.
    ///
    /// It predicts what Calico does. calipam's own allocator takes nothing from such a block.
    pub fn as_calico_takes(&self) -> Option<Cow<'_, Block>> {
        let corrupt = match self {
            Self::Sound(block) => return Some(Cow::Borrowed(block)),
            Self::Corrupt(corrupt) => corrupt,
        };
        if let Some(usable) = &corrupt.usable {
            return Some(Cow::Borrowed(usable));
        }
        let json = usable::by_free_list(&corrupt.raw, &corrupt.problems)?;
        let block = Self::parse(&json).ok()?.into_usable().ok()?;
        Some(Cow::Owned(*block))
    }
}

/// Reads a block; `None` if it is not sound.
fn parse_sound(json: &[u8]) -> Option<Box<Block>> {
    match BlockContent::parse(json).ok()? {
        BlockContent::Sound(block) => Some(block),
        BlockContent::Corrupt(_) => None,
    }
}

/// A block's fields before validation.
#[derive(Default)]
struct RawBlock<'de> {
    cidr: Option<String>,
    affinity: Option<String>,
    claim_time: Option<String>,
    allocations: Numbers,
    unallocated: Numbers,
    detail: RecordDetail,
    records: Records<'de>,
    sequence: u64,
    sequences: SequenceMap,
    deleted: bool,
    /// True if `attributes` is present and not `null`.
    has_attributes: bool,
    /// True if `sequenceNumberForAllocation` is present and not `null`.
    has_sequences: bool,
    unknown: Option<Box<Unknown>>,
}

impl<'de> Fields<'de> for RawBlock<'de> {
    /// Reads a field of a block.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "cidr") {
            self.cidr = map.next_value()?;
        } else if is_field(name, "affinity") {
            self.affinity = map.next_value()?;
        } else if is_field(name, "affinity_claim_time") || is_field(name, "affinityClaimTime") {
            // In custom resources, the field has the second name.
            self.claim_time = map.next_value()?;
        } else if is_field(name, "allocations") {
            self.allocations.0.clear();
            map.next_value_seed(Array(&mut self.allocations))?;
        } else if is_field(name, "unallocated") {
            self.unallocated.0.clear();
            map.next_value_seed(Array(&mut self.unallocated))?;
        } else if is_field(name, "attributes") {
            // The records from an earlier field with the same name are discarded.
            self.records = Records::default();
            self.records.kept.host = match self.detail {
                RecordDetail::Full => None,
                RecordDetail::Borrowers => self.host().map(str::to_owned),
            };
            self.has_attributes = map.next_value_seed(Array(&mut self.records))?;
        } else if is_field(name, "sequenceNumber") {
            set_unless_null(&mut self.sequence, map)?;
        } else if is_field(name, "sequenceNumberForAllocation") {
            self.has_sequences = map.next_value_seed(Object(&mut self.sequences))?;
        } else if is_field(name, "deleted") {
            set_unless_null(&mut self.deleted, map)?;
        } else {
            keep_unknown(&mut self.unknown, name, map)?;
        }
        Ok(())
    }
}

impl RawBlock<'_> {
    fn host(&self) -> Option<&str> {
        self.affinity.as_deref()?.strip_prefix("host:")
    }

    fn owner(&self) -> Option<BlockOwner> {
        // The older `hostAffinity` is an unknown field: to Calico 3, a block with only that field has no owner.
        self.affinity
            .as_deref()
            .filter(|owner| !owner.is_empty())
            .map(BlockOwner::parse)
    }

    /// Violations of the rules in facts 3.1. If the array length is wrong, nothing else is reported.
    fn problems(&self, cidr: IpNet) -> Vec<BlockProblem> {
        let size = cidr::size(cidr);
        let found = self.allocations.0.len();
        if size != found as u128 {
            return vec![BlockProblem::ArrayLength {
                expected: size.to_string(),
                found,
            }];
        }
        let mut problems = Vec::new();
        let mut referenced = vec![false; self.records.kept.len()];
        for (ordinal, index) in (0..).zip(&self.allocations.0) {
            let Some(index) = *index else { continue };
            let record = usize::try_from(index)
                .ok()
                .and_then(|index| referenced.get_mut(index));
            match record {
                Some(is_referenced) => *is_referenced = true,
                None => problems.push(BlockProblem::AttributeIndex { ordinal, index }),
            }
        }
        for (index, is_referenced) in (0..).zip(referenced) {
            if !is_referenced {
                problems.push(BlockProblem::UnreferencedAttribute { index });
            }
        }
        self.free_list_problems(&mut problems);
        problems
    }

    /// Adds a problem for each ordinal that the free list names although it is allocated or out of range, that it names
    /// twice, or that it lacks although it is free.
    fn free_list_problems(&self, problems: &mut Vec<BlockProblem>) {
        let allocations = &self.allocations.0;
        let mut listed = vec![false; allocations.len()];
        for entry in &self.unallocated.0 {
            let number = entry.unwrap_or_default();
            let index = usize::try_from(number).ok();
            let Some(index) = index.filter(|index| *index < listed.len()) else {
                problems.push(BlockProblem::FreeListOutOfRange { ordinal: number });
                continue;
            };
            let ordinal = index as u32;
            if listed[index] {
                problems.push(BlockProblem::FreeListDuplicate { ordinal });
            } else if allocations[index].is_some() {
                problems.push(BlockProblem::FreeListAllocated { ordinal });
            }
            listed[index] = true;
        }
        for (ordinal, allocation) in (0..).zip(allocations) {
            if allocation.is_none() && !listed[ordinal as usize] {
                problems.push(BlockProblem::FreeListIncomplete { ordinal });
            }
        }
    }

    /// Makes the block of fields that have no problem, so that all indexes and ordinals are in range.
    fn into_block(self, cidr: IpNet) -> Block {
        let owner = self.owner();
        let size = self.allocations.0.len();
        let (attributes, places) = self.records.kept.finish();
        let place_of = |index: i64| places.get(index as usize).copied().unwrap_or(index as u32);
        let (mut sequences, stray_sequences) = self.sequences.split(size);
        if self.detail == RecordDetail::Borrowers {
            sequences = Vec::new();
        }
        let extras = Extras {
            stray_sequences,
            unknown: self.unknown.map(|unknown| *unknown).unwrap_or_default(),
        };

        let allocations = self.allocations.0.into_iter();
        let unallocated = self.unallocated.0.into_iter().flatten();
        Block {
            cidr,
            owner,
            claim_time: self.claim_time,
            allocations: allocations.map(|index| index.map(place_of)).collect(),
            unallocated: unallocated.map(|ordinal| ordinal as u32).collect(),
            attributes,
            sequence: self.sequence,
            sequences,
            deleted: self.deleted,
            null_attributes: !self.has_attributes,
            null_sequences: !self.has_sequences,
            extras: Some(extras)
                .filter(|extras| *extras != Extras::default())
                .map(Box::new),
        }
    }
}

/// An array of numbers and nulls.
#[derive(Default)]
struct Numbers(Vec<Option<i64>>);

impl<'de> Items<'de> for Numbers {
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        let number = seq.next_element::<Option<i64>>()?;
        self.0.extend(number);
        Ok(number.is_some())
    }
}

/// A key in `sequenceNumberForAllocation`.
enum SequenceKey {
    Ordinal(u32),
    Other(String),
}

impl SequenceKey {
    /// Reads a key. An ordinal has no plus sign and no leading zeros.
    fn parse(text: &str) -> Self {
        let is_canonical = text.len() == 1 || !text.starts_with(['0', '+']);
        match text.parse() {
            Ok(ordinal) if is_canonical && ordinal < u32::MAX => Self::Ordinal(ordinal),
            _ => Self::Other(text.to_owned()),
        }
    }
}

/// Pairs of an ordinal, or another key, and its sequence number.
type Numbered<T> = Vec<(T, u64)>;

/// `sequenceNumberForAllocation`.
#[derive(Default)]
struct SequenceMap(Numbered<SequenceKey>);

impl<'de> Fields<'de> for SequenceMap {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let number = map.next_value::<Option<u64>>()?.unwrap_or_default();
        self.0.push((SequenceKey::parse(name), number));
        Ok(())
    }
}

impl SequenceMap {
    /// Splits the map into entries for ordinals below `size`, ascending, and entries for all other keys.
    fn split(self, size: usize) -> (Numbered<u32>, Numbered<String>) {
        let mut of_ordinals = Vec::with_capacity(self.0.len());
        let mut stray = Vec::new();
        for (key, number) in self.0 {
            match key {
                SequenceKey::Ordinal(ordinal) if (ordinal as usize) < size => {
                    of_ordinals.push((ordinal, number));
                }
                SequenceKey::Ordinal(ordinal) => stray.push((ordinal.to_string(), number)),
                SequenceKey::Other(text) => stray.push((text, number)),
            }
        }

        of_ordinals.sort_by_key(|(ordinal, _)| *ordinal);
        // As in Go's reader, the last of several entries for one ordinal counts.
        of_ordinals.reverse();
        of_ordinals.dedup_by_key(|(ordinal, _)| *ordinal);
        of_ordinals.reverse();
        of_ordinals.shrink_to_fit();
        (of_ordinals, stray)
    }
}
