//! The block arithmetic (facts section 3).

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;

use super::{Block, BlockOwner, WINDOWS_RESERVED, WINDOWS_RESERVED_FIRST, WINDOWS_RESERVED_LAST};
use crate::attributes::{Attribute, AttributeTable};
use crate::cidr;
use crate::text::Text;
use crate::time::format_seconds;

/// The reason why an ordinal cannot be assigned or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The ordinal is allocated or cooling, or reserved by Windows.
    #[error("ordinal {0} is already allocated")]
    AlreadyAllocated(u32),
    #[error("ordinal {0} is not in the block")]
    OutOfRange(u32),
}

impl Block {
    /// Creates a block as Calico does: all addresses free in ascending order, and the current time in nanoseconds as
    /// the sequence number. `None` if the CIDR is larger than Calico allows (/20, /116).
    pub fn new(cidr: IpNet, owner: Option<BlockOwner>, now: Timestamp) -> Option<Self> {
        let allowed_prefixes = if cidr::is_v4(cidr) {
            cidr::BLOCK_PREFIXES_V4
        } else {
            cidr::BLOCK_PREFIXES_V6
        };
        if !allowed_prefixes.contains(&cidr.prefix_len()) {
            return None;
        }

        let size = cidr::size(cidr) as u32;
        Some(Self {
            cidr: cidr.trunc(),
            claim_time: owner.is_some().then(|| format_seconds(now)),
            owner,
            allocations: vec![None; size as usize].into_boxed_slice(),
            unallocated: (0..size).collect(),
            attributes: AttributeTable::default(),
            sequence: now.as_nanosecond().try_into().unwrap_or_default(),
            sequences: Vec::new(),
            deleted: false,
            null_attributes: true,
            null_sequences: false,
            extras: None,
        })
    }

    /// Creates a Windows node's block, with the first three ordinals and the last one reserved. They have no
    /// per-ordinal sequence number. `None` if the block is too large, or too small for the reservation. A block with
    /// four addresses has none to assign, but Calico creates such blocks nevertheless.
    pub fn new_windows(cidr: IpNet, owner: Option<BlockOwner>, now: Timestamp) -> Option<Self> {
        let mut block = Self::new(cidr, owner, now)?;
        if block.size() < WINDOWS_RESERVED {
            return None;
        }
        block.attributes.push(&Attribute::windows_reserved());
        block.null_attributes = false;
        let reserved_last = block.size() - WINDOWS_RESERVED_LAST..block.size();
        for ordinal in (0..WINDOWS_RESERVED_FIRST).chain(reserved_last) {
            block.allocations[ordinal as usize] = Some(0);
        }
        let allocations = &block.allocations;
        block
            .unallocated
            .retain(|ordinal| allocations[*ordinal as usize].is_none());
        Some(block)
    }

    /// Updates the block once. All changes in the closure count as one write: the sequence number rises by one if
    /// anything changed.
    pub fn update<T>(&mut self, change: impl FnOnce(&mut BlockUpdate<'_>) -> T) -> T {
        let mut update = BlockUpdate {
            block: self,
            changed: false,
        };
        let result = change(&mut update);
        if update.changed {
            self.sequence = self.sequence.wrapping_add(1);
        }
        result
    }

    /// Turns this block, which was read earlier, into the successor of the current one. Its sequence number is set to
    /// one more than the higher of the two, and addresses whose record changes get the number of a new allocation
    /// (facts 3.2). `current` is `None` if the block does not exist now.
    pub fn restore(&mut self, current: Option<&Self>) {
        // Ordinals that are allocated in this block with another record than now, and the index of the record.
        let mut changed: Vec<(u32, u32)> = Vec::new();
        for earlier in self.allocations() {
            let now = current.and_then(|block| block.allocation(earlier.ordinal));
            let is_unchanged = now.is_some_and(|now| earlier.attribute.is_same(now.attribute));
            if !is_unchanged {
                changed.push((earlier.ordinal, earlier.attribute_index));
            }
        }

        self.sequence = self.sequence.max(current.map_or(0, Self::sequence));
        self.update(|update| {
            for (ordinal, index) in changed {
                update.allocate(ordinal, index);
            }
            update.touch();
        });
    }
}

/// A block update in progress.
#[derive(Debug)]
pub struct BlockUpdate<'b> {
    pub(super) block: &'b mut Block,
    changed: bool,
}

impl BlockUpdate<'_> {
    /// The block in its current state.
    pub fn block(&self) -> &Block {
        self.block
    }

    /// Assigns one ordinal, from anywhere in the free list (facts 3.3). It gets the sequence number with which the
    /// block was read, and shares an equal owner record if there is one.
    ///
    /// # Errors
    /// If the ordinal is not free or not in the block. In that case nothing is changed.
    pub fn assign(&mut self, ordinal: u32, attribute: &Attribute) -> Result<(), AssignError> {
        match self.block.allocations.get(ordinal as usize) {
            None => return Err(AssignError::OutOfRange(ordinal)),
            Some(Some(_)) => return Err(AssignError::AlreadyAllocated(ordinal)),
            Some(None) => {}
        }
        let index = self.find_or_add(attribute);
        self.block.unallocated.retain(|free| *free != ordinal);
        self.allocate(ordinal, index);
        Ok(())
    }

    /// Assigns up to `count` ordinals from the head of the free list (facts 3.4.2), and returns them. Reserved
    /// addresses keep their places in the list.
    pub fn auto_assign(
        &mut self,
        count: usize,
        attribute: &Attribute,
        reserved: impl Fn(IpAddr) -> bool,
    ) -> Vec<u32> {
        let assigned: Vec<u32> = self.block.assignable(reserved).take(count).collect();
        if assigned.is_empty() {
            return assigned;
        }

        // Both lists have the same order, so one comparison per ordinal is enough.
        let mut next_assigned = assigned.iter().peekable();
        self.block
            .unallocated
            .retain(|ordinal| next_assigned.next_if_eq(&ordinal).is_none());
        let index = self.find_or_add(attribute);
        for ordinal in &assigned {
            self.allocate(*ordinal, index);
        }
        assigned
    }

    /// Frees ordinals without a cooldown. They are appended to the free list in ascending order and lose their sequence
    /// numbers, and owner records that no ordinal uses are dropped. Returns the freed ordinals, without those that were
    /// already free.
    pub fn release(&mut self, ordinals: &[u32]) -> Vec<u32> {
        let freed = self.allocated_among(ordinals);
        if freed.is_empty() {
            return freed;
        }

        for ordinal in &freed {
            self.block.allocations[*ordinal as usize] = None;
            self.block.unallocated.push(*ordinal);
            self.block.sequences.retain(|(numbered, _)| numbered != ordinal);
        }
        self.block.null_sequences = false;
        self.changed = true;
        self.compact();
        freed
    }

    /// Frees ordinals as a release by handle or the end of a cooldown does: if `sequenceNumberForAllocation` is `null`,
    /// it stays `null`.
    pub fn release_by_handle(&mut self, ordinals: &[u32]) -> Vec<u32> {
        let null_sequences = self.block.null_sequences;
        let freed = self.release(ordinals);
        self.block.null_sequences = null_sequences;
        freed
    }

    /// Gives an allocated ordinal another owner record and the sequence number of a new allocation.
    ///
    /// # Errors
    /// If the ordinal is free or not in the block. In that case nothing is changed.
    pub fn set_attribute(&mut self, ordinal: u32, attribute: &Attribute) -> Result<(), AssignError> {
        if self.block.allocation(ordinal).is_none() {
            return Err(AssignError::OutOfRange(ordinal));
        }
        let index = self.find_or_add(attribute);
        self.allocate(ordinal, index);
        self.compact();
        Ok(())
    }

    /// Changes the owner record of an ordinal, for all ordinals that share it. Sequence numbers do not change.
    ///
    /// # Errors
    /// If the ordinal is free or not in the block. In that case nothing is changed.
    pub fn edit_record(
        &mut self,
        ordinal: u32,
        edit: impl FnOnce(&mut Attribute),
    ) -> Result<(), AssignError> {
        let Some(allocation) = self.block.allocation(ordinal) else {
            return Err(AssignError::OutOfRange(ordinal));
        };
        let index = allocation.attribute_index as usize;
        let mut record = allocation.attribute.to_attribute();
        edit(&mut record);
        self.block.attributes.replace(index, &record);
        self.changed = true;
        Ok(())
    }

    /// Makes `owner` the owner of the block from `now` on.
    pub fn set_owner(&mut self, owner: BlockOwner, now: Timestamp) {
        self.block.claim_time = Some(format_seconds(now));
        self.block.owner = Some(owner);
        self.changed = true;
    }

    /// Removes the block's owner and claim time. The addresses stay allocated.
    pub fn clear_owner(&mut self) {
        self.block.owner = None;
        self.block.claim_time = None;
        self.changed = true;
    }

    /// Makes this an update even without changes: Calico writes an unchanged block to make racing writers fail (facts
    /// 3.9).
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// The allocated ordinals among `ordinals`, ascending and without duplicates.
    pub(super) fn allocated_among(&self, ordinals: &[u32]) -> Vec<u32> {
        let mut allocated = ordinals.to_vec();
        allocated.retain(|ordinal| self.block.allocation(*ordinal).is_some());
        allocated.sort_unstable();
        allocated.dedup();
        allocated
    }

    /// Points an ordinal to a record, with the number of this update.
    pub(super) fn allocate(&mut self, ordinal: u32, index: u32) {
        self.block.allocations[ordinal as usize] = Some(index);
        let number = self.block.sequence;
        let sequences = &mut self.block.sequences;
        match sequences.binary_search_by_key(&ordinal, |(numbered, _)| *numbered) {
            Ok(position) => sequences[position].1 = number,
            Err(position) => sequences.insert(position, (ordinal, number)),
        }
        self.block.null_sequences = false;
        self.changed = true;
    }

    /// Returns the index of an owner record with the same handle and attributes, or adds one. Records of migrating or
    /// cooling addresses never match (facts 3.5).
    fn find_or_add(&mut self, attribute: &Attribute) -> u32 {
        let table = &self.block.attributes;
        let handle = attribute.handle.as_deref().map(Text::new);
        let handle = handle.as_ref().map(Text::as_ref);
        for index in 0..table.len() {
            // A full block has a record for each address, nearly all with different handles, so only records with the
            // same handle are unpacked.
            if table.handle(index) != handle {
                continue;
            }
            let Some(record) = table.get(index) else {
                continue;
            };
            let record = record.to_attribute();
            let is_migrating = record.alternate.is_some();
            let is_cooling = record.released_at.is_some();
            if record.owner == attribute.owner && !is_migrating && !is_cooling {
                return index as u32;
            }
        }
        self.add(attribute)
    }

    pub(super) fn add(&mut self, attribute: &Attribute) -> u32 {
        self.block.attributes.push(attribute);
        self.block.null_attributes = false;
        self.block.attributes.len() as u32 - 1
    }

    /// Drops owner records that no ordinal uses, keeps the order of the other records, and renumbers the allocations.
    pub(super) fn compact(&mut self) {
        let mut used = vec![false; self.block.attributes.len()];
        for index in self.block.allocations.iter().flatten() {
            used[*index as usize] = true;
        }
        if used.iter().all(|is_used| *is_used) {
            return;
        }

        let mut new_indexes: Vec<u32> = Vec::with_capacity(used.len());
        let mut used_before = 0;
        for is_used in &used {
            new_indexes.push(used_before);
            if *is_used {
                used_before += 1;
            }
        }
        for index in self.block.allocations.iter_mut().flatten() {
            *index = new_indexes[*index as usize];
        }
        self.block.attributes.retain(&used);
    }
}
