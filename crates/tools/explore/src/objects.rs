//! The stored objects of a world, and what must hold among them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityState};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{StoredBlock, Versioned};

use crate::world::{World, snapshot};

/// True if Calico's plugin may leave addresses recorded although its DEL succeeds, since it relies on the counts in the
/// handle. The collector finds such addresses.
pub(crate) fn may_be_left(world: &World, handle: &str) -> bool {
    let has_faults = world.audit().has_faults;
    world
        .truth
        .has(handle, |pod| pod.is_of_calico && (has_faults || pod.is_damaged))
}

/// Checks that nothing is recorded for a handle once its release has succeeded.
pub(crate) fn is_released(world: &World, handle: &str) -> Result<(), String> {
    let mut recorded = Objects::of(&world.values())?.recorded()?.into_iter();
    recorded
        .find(|(_, recorded)| recorded == handle)
        .map_or(Ok(()), |(address, _)| {
            Err(format!(
                "DEL of {handle} succeeds, and {address} stays recorded for it"
            ))
        })
}

/// True if an address is recorded for a handle.
pub(crate) fn is_recorded(world: &World, address: IpAddr, handle: &str) -> bool {
    let recorded = Objects::of(&world.values()).and_then(|objects| objects.recorded());
    recorded.is_ok_and(|recorded| recorded.get(&address).is_some_and(|found| found == handle))
}

/// The stored objects.
pub(crate) struct Objects {
    pub blocks: Vec<Block>,
    pub handles: BTreeMap<String, Handle>,
    pub affinities: Vec<Affinity>,
}

impl Objects {
    pub(crate) fn of(values: &[(String, Vec<u8>, i64)]) -> Result<Self, String> {
        let snapshot = snapshot(values);
        if let Some(defect) = snapshot.defects.first() {
            return Err(format!("{}: {defect:?}", defect.path));
        }
        let sound = |block: &Versioned<StoredBlock>| block.value.content.sound().cloned();
        let blocks = snapshot
            .blocks
            .iter()
            .filter_map(sound)
            .filter(|block| !block.is_deleted())
            .collect();
        let handles = snapshot.handles.into_iter().map(|handle| handle.value);
        let handles = handles.filter(|handle| !handle.is_deleted());
        Ok(Self {
            blocks,
            handles: handles.map(|handle| (handle.id().to_string(), handle)).collect(),
            affinities: snapshot
                .affinities
                .into_iter()
                .map(|affinity| affinity.value)
                .collect(),
        })
    }

    /// The handles of all allocated addresses. Fails if an address is in two blocks.
    pub(crate) fn recorded(&self) -> Result<BTreeMap<IpAddr, String>, String> {
        let mut recorded = BTreeMap::new();
        for held in self.blocks.iter().flat_map(Block::allocations) {
            let Some(handle) = held.attribute.to_attribute().handle else {
                continue;
            };
            if let Some(other) = recorded.insert(held.address, handle.clone()) {
                return Err(format!(
                    "{} is recorded for {other} and for {handle}",
                    held.address
                ));
            }
        }
        Ok(recorded)
    }

    /// Checks that nothing is recorded for others than these users of addresses.
    pub(crate) fn are_only_of(&self, users: &BTreeMap<IpAddr, String>) -> Result<(), String> {
        for (address, handle) in self.recorded()? {
            if users.get(&address) != Some(&handle) {
                return Err(format!("{address} stays recorded for {handle}"));
            }
        }
        let left = self
            .handles
            .keys()
            .find(|handle| !users.values().any(|user| user == *handle));
        left.map_or(Ok(()), |handle| Err(format!("the handle {handle} stays")))
    }

    /// The number of addresses by handle and block.
    pub(crate) fn counts(&self) -> BTreeMap<(String, IpNet), i64> {
        let mut counts = BTreeMap::new();
        for block in &self.blocks {
            for held in block.allocations() {
                if let Some(handle) = held.attribute.to_attribute().handle {
                    *counts.entry((handle, block.cidr())).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Checks that no handle counts fewer addresses than it has. DEL would leave such addresses behind.
    pub(crate) fn handles_count_enough(&self, world: &World) -> Result<(), String> {
        for ((handle, block), count) in self.counts() {
            if world.truth.has(&handle, |pod| pod.is_damaged) || may_be_left(world, &handle) {
                continue;
            }
            let counted = self.handles.get(&handle).map_or(0, |object| object.count(block));
            if counted < count {
                return Err(format!(
                    "{handle} counts {counted} of {count} addresses in {block}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that no handle counts too many addresses, unless an answer was lost or a process was killed.
    ///
    /// Handles of Calico's plugin are exempt, since the plugin does not undo the count of an assignment that lost a
    /// race. Handles that an undo has restored are exempt as well. They may have had a surplus count before the undone
    /// release, since the collector had released the address, but not yet updated the handle.
    pub(crate) fn handles_count_exactly(&self, world: &World) -> Result<(), String> {
        let counts = self.counts();
        let is_restored = |id: &String| {
            let path = Key::Handle(id.clone()).to_string();
            world
                .data
                .value(&path)
                .is_some_and(|now| world.audit().is_restored(&path, &now))
        };
        let is_exact =
            |id: &String| !world.truth.has(id, |pod| pod.is_damaged || pod.is_of_calico) && !is_restored(id);
        for (id, handle) in self.handles.iter().filter(|(id, _)| is_exact(id)) {
            for (block, counted) in handle.blocks() {
                let count = counts.get(&(id.clone(), block)).copied().unwrap_or_default();
                if counted != count {
                    return Err(format!(
                        "{id} counts {counted} in {block}, which has {count} of it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that no claim is half done: an affinity is confirmed if and only if its block exists.
    pub(crate) fn claims_are_whole(&self) -> Result<(), String> {
        let is_half = |affinity: &&Affinity| {
            let owner = affinity.key.owner();
            let of_owner = |block: &Block| block.owner() == Some(&owner) && block.cidr() == affinity.key.cidr;
            let expected = match affinity.state {
                AffinityState::Confirmed => true,
                AffinityState::Pending => false,
                _ => return false,
            };
            self.blocks.iter().any(of_owner) != expected
        };
        if let Some(block) = self
            .blocks
            .iter()
            .find(|block| block.is_empty() && block.owner().is_none())
        {
            return Err(format!("{} stays, which is empty and has no owner", block.cidr()));
        }
        if let Some(Affinity { key, state, .. }) = self.affinities.iter().find(is_half) {
            return Err(format!(
                "{} of {} stays {state}, with or without its block",
                key.cidr, key.node
            ));
        }
        let is_claimed = |cidr, owner: &BlockOwner| {
            self.affinities
                .iter()
                .any(|Affinity { key, .. }| key.cidr == cidr && key.owner() == *owner)
        };
        let mut owned = self
            .blocks
            .iter()
            .filter_map(|block| Some((block.cidr(), block.owner()?)));
        owned
            .find(|(cidr, owner)| !is_claimed(*cidr, owner))
            .map_or(Ok(()), |(cidr, owner)| {
                Err(format!("{cidr} stays with {owner}, which has no affinity for it"))
            })
    }

    /// Checks that at most one node has a confirmed affinity for each block.
    pub(crate) fn blocks_have_one_affinity(&self) -> Result<(), String> {
        let mut sure: BTreeMap<IpNet, String> = BTreeMap::new();
        let confirmed = self
            .affinities
            .iter()
            .filter(|affinity| affinity.state == AffinityState::Confirmed);
        for affinity in confirmed {
            let holder = affinity.key.owner().to_string();
            if let Some(other) = sure.insert(affinity.key.cidr, holder.clone()) {
                return Err(format!(
                    "{other} and {holder} both have {} confirmed",
                    affinity.key.cidr
                ));
            }
        }
        Ok(())
    }
}
