//! Finds the owner record of each address of a corrupt block.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_check::index::Owner;
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{WINDOWS_RESERVED_FIRST, WINDOWS_RESERVED_LAST};
use calipam_model::cidr::address_at;

use super::raw::{RawBlock, Slot};
use super::{beyond, names_user};
use crate::basis::Basis;
use crate::skipped::{Refusal, Result, SkipReason};

/// The states of all ordinals.
pub(super) struct SlotMapping {
    pub slots: Vec<Slot>,
    /// Ordinals that are still in use, but whose records are lost. They are free in `slots`.
    pub unrecorded: Vec<u32>,
}

impl SlotMapping {
    /// Keeps the block's readable records, and finds records for the other held ordinals. It matches records by the
    /// users of the addresses, the ordinals that Windows reserves, and cooldowns. If one ordinal and one record are
    /// left, they belong together.
    pub(super) fn new(
        basis: &Basis<'_>,
        key: IpNet,
        raw: &RawBlock,
        records: &[AttributeRef<'_>],
    ) -> Result<Self> {
        let mut sorter = Sorter {
            basis,
            key,
            raw,
            records,
            slots: Vec::new(),
            open: BTreeSet::new(),
        };
        sorter.read()?;
        let unrecorded = sorter.by_usage();
        sorter.by_windows();
        sorter.match_unused()?;
        Ok(Self {
            slots: sorter.slots,
            unrecorded,
        })
    }
}

/// Returns the block's list of allocations; nothing if its positions are not reliable.
fn readable_allocations<'r>(raw: &'r RawBlock, listed_free: &BTreeSet<u32>) -> &'r [Option<i64>] {
    let has_wrong_length = raw.allocations.len() != raw.size as usize;
    let mut entries = (0..raw.size).zip(&raw.allocations);
    let contradicts_free_list =
        entries.any(|(ordinal, index)| index.is_some() == listed_free.contains(&ordinal));
    // Such a list may have lost entries in the middle.
    if has_wrong_length && contradicts_free_list {
        return &[];
    }
    &raw.allocations
}

/// Returns the slot that an entry of the allocations describes.
fn slot_of_entry(raw: &RawBlock, entry: Option<i64>) -> Slot {
    let Some(index) = entry else {
        return Slot::Free;
    };
    match usize::try_from(index) {
        Ok(index) if index < raw.attributes.len() => Slot::Held(index),
        _ => Slot::Unknown,
    }
}

struct Sorter<'m, 'b, 's> {
    basis: &'m Basis<'b>,
    key: IpNet,
    raw: &'m RawBlock,
    records: &'m [AttributeRef<'s>],
    slots: Vec<Slot>,
    /// Held ordinals whose records are not known yet.
    open: BTreeSet<u32>,
}

impl Sorter<'_, '_, '_> {
    /// Reads the slots from the lists in the block.
    fn read(&mut self) -> Result<()> {
        let raw = self.raw;
        let listed: BTreeSet<u32> = raw.free.iter().copied().collect();
        let readable = readable_allocations(raw, &listed);
        if readable.is_empty() && listed.is_empty() && raw.attributes.is_empty() {
            let detail =
                "neither its allocated nor its free addresses can be read; delete it by hand, then rebuild";
            return Err(beyond(format!("{}: {detail}", self.key)));
        }

        for ordinal in 0..raw.size {
            let slot = match readable.get(ordinal as usize) {
                Some(entry) => slot_of_entry(raw, *entry),
                // Without an entry, only the free list tells.
                None if listed.contains(&ordinal) => Slot::Free,
                None => Slot::Unknown,
            };
            if slot == Slot::Unknown {
                self.open.insert(ordinal);
            }
            self.slots.push(slot);
        }

        Ok(())
    }

    /// Returns the indices of the records that no ordinal uses.
    fn unused(&self) -> Vec<usize> {
        let mut used: BTreeSet<usize> = BTreeSet::new();
        for slot in &self.slots {
            if let Slot::Held(index) = slot {
                used.insert(*index);
            }
        }
        (0..self.records.len())
            .filter(|index| !used.contains(index))
            .collect()
    }

    fn decide(&mut self, ordinal: u32, slot: Slot) {
        self.open.remove(&ordinal);
        self.slots[ordinal as usize] = slot;
    }

    /// Matches addresses in use with unused records. Returns the ordinals of addresses in use whose records are lost.
    fn by_usage(&mut self) -> Vec<u32> {
        let unused = self.unused();
        let mut unrecorded = Vec::new();
        for ordinal in self.open.clone() {
            let address = address_at(self.key, ordinal);
            if self.basis.context.index.uses_of(address).is_empty() {
                continue;
            }

            let mut matching: Vec<usize> = unused.clone();
            matching.retain(|index| names_user(self.basis, &self.records[*index], self.key, ordinal));
            // A node has several tunnels, and a pod may have had several sandboxes.
            let exact = matching.iter().find(|index| self.is_exact(**index, address));
            match exact.or(matching.first()) {
                Some(index) => self.decide(ordinal, Slot::Held(*index)),
                None => {
                    self.decide(ordinal, Slot::Free);
                    unrecorded.push(ordinal);
                }
            }
        }

        unrecorded
    }

    /// Returns true if the record names exactly the tunnel or sandbox that uses the address.
    fn is_exact(&self, record: usize, address: IpAddr) -> bool {
        let record = &self.records[record];
        let claim = Claim::of(record);
        let mut uses = self.basis.context.index.uses_of(address).iter();
        uses.any(|used| match (used.owner, &claim) {
            (Owner::Tunnel(_, tunnel), Claim::Tunnel { kind, .. }) => tunnel == *kind,
            (owner, _) => self.names_sandbox(record, owner),
        })
    }

    /// Returns true if a workload's handle ends with the ID of its sandbox, as Calico's do.
    fn names_sandbox(&self, record: &AttributeRef<'_>, owner: Owner) -> bool {
        let Some(workload) = self.basis.context.index.workload(owner) else {
            return false;
        };
        let Some(handle) = record.clean_handle() else {
            return false;
        };
        // Every handle ends with an empty ID.
        let id = workload.container_id;
        !id.is_empty() && handle.to_string().ends_with(&id.to_string())
    }

    /// Matches the ordinals that Windows reserves, which are always the same.
    fn by_windows(&mut self) {
        let mut unused = self.unused().into_iter();
        let Some(record) = unused.find(|index| self.records[*index].is_windows_reserved()) else {
            return;
        };
        let first_of_last = self.raw.size - WINDOWS_RESERVED_LAST;
        for ordinal in self.open.clone() {
            if ordinal < WINDOWS_RESERVED_FIRST || ordinal >= first_of_last {
                self.decide(ordinal, Slot::Held(record));
            }
        }
    }

    /// Matches the remaining ordinals, which are not in use, with the remaining records.
    fn match_unused(&mut self) -> Result<()> {
        let (cooling, named): (Vec<usize>, Vec<usize>) = self
            .unused()
            .into_iter()
            .partition(|index| self.records[*index].is_cooling());

        let open: Vec<u32> = self.open.iter().copied().collect();
        // No record says whose release it is about, so all addresses wait for the last one.
        let last_released = cooling
            .into_iter()
            .max_by_key(|index| self.records[*index].released_time());
        if let Some(cooling) = last_released
            && named.is_empty()
        {
            for ordinal in open {
                self.decide(ordinal, Slot::Held(cooling));
            }
            return Ok(());
        }
        match (open.as_slice(), named.as_slice()) {
            // Ordinals without a record stay held without an owner.
            ([], _) | (_, []) => Ok(()),
            ([ordinal], [index]) => {
                self.decide(*ordinal, Slot::Held(*index));
                Ok(())
            }
            (open, named) => Err(self.undecided(open.len(), named)),
        }
    }

    /// Refuses a block whose unused addresses and records cannot be matched. If a record is of a tunnel, names the
    /// address that is wrong.
    fn undecided(&self, open: usize, named: &[usize]) -> Refusal {
        let key = self.key;
        let tunnel = named
            .iter()
            .find_map(|index| match Claim::of(&self.records[*index]) {
                Claim::Tunnel { kind, node } => Some((kind, node)),
                _ => None,
            });

        let Some((kind, node)) = tunnel else {
            let detail = format!(
                "{key} holds {open} unused addresses and {} owner records, but does not say which \
                 belong together; if its addresses are not needed, delete it by hand, then rebuild",
                named.len()
            );
            return beyond(detail);
        };

        let mut address = None;
        if let Some(node) = self.basis.context.index.node(&node) {
            let tunnel = node.tunnels.iter().find(|(found, _)| *found == kind);
            address = tunnel.map(|(_, address)| *address);
        }
        let field = kind.field();

        match address {
            None => {
                let detail = format!("{key} holds a tunnel address of {node}, whose {field} is not set");
                Refusal::new(SkipReason::TunnelAddressNotSet, detail)
            }
            Some(address) if address < key.network() => {
                let detail = format!("{field} of {node} is {address}, which is before {key}");
                Refusal::new(SkipReason::TunnelAddressTooLow, detail)
            }
            Some(address) if key.contains(&address) => beyond(format!(
                "{key} does not say who owns which of its addresses; delete it by hand, then rebuild"
            )),
            Some(address) => {
                let detail = format!("{field} of {node} is {address}, which is after {key}");
                Refusal::new(SkipReason::TunnelAddressTooHigh, detail)
            }
        }
    }
}
