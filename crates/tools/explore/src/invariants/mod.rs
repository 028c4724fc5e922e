//! The invariants that hold at every step and at the end.

pub(crate) mod repairs;

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::{Code, Finding, Options, check};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityState};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot, Source, StoredBlock, Versioned};
use calipam_testkit::memory::MemoryStore;
use jiff::SignedDuration;

use crate::actor::{Call, clean_up, served, would_assign};
use crate::scenario::NODES;
use crate::truth::Pod;
use crate::world::{PendingRequest, World, kubernetes};

/// Findings that a crash may leave in addition to [`OF_QUIET`] (facts 3.15). Any other finding would be damage.
/// Addresses leak if their endpoint is not written yet, or already deleted. A handle is left over if it counts an
/// address before it is allocated, or after its release.
const OF_CRASHES: &[Code] = &[Code::LeakedAddress, Code::OrphanHandle, Code::NodeOverBlockLimit];

/// Findings that may remain after DEL was repeated. They concern affinities that the next claim or release settles, and
/// surplus counts in a pod's handle, which remain until the pod stops.
const OF_QUIET: &[Code] = &[
    Code::HandleCount,
    Code::UnsettledAffinity,
    Code::AffinityWithoutBlock,
    Code::AffinityBlockMismatch,
    Code::AffinityConflict,
    Code::EmptyUnownedBlock,
    Code::NodeWithoutAddresses,
    Code::PoolNearlyFull,
];

/// Checks the invariants after a step. `by` is the request of the step.
pub(crate) fn always(world: &World, by: Option<&PendingRequest>) -> Result<(), String> {
    if let Some(violation) = world.truth.take_violations().into_iter().next() {
        return Err(violation);
    }
    let changes = world.data.take_changes();
    if changes.is_empty() {
        return Ok(());
    }
    repairs::written(world, by, changes)?;
    let objects = Objects::of(&world.values())?;
    let recorded = objects.recorded()?;
    for (address, user) in world.truth.users() {
        match recorded.get(&address) {
            Some(handle) if *handle == user => {}
            Some(handle) => return Err(format!("{address} of {user} is recorded for {handle}")),
            None if world.truth.has(&user, |pod| pod.is_damaged) => {}
            None => return Err(format!("{address}, which {user} uses, is free")),
        }
    }
    objects.handles_count_enough(world)?;
    objects.blocks_have_one_affinity()
}

/// Checks the end, with all actors stopped and DEL repeated: no claim is half done, nothing is leaked, and a check
/// explains the leftovers.
pub(crate) fn at_the_end(world: &World) -> Result<(), String> {
    if !world.audit().has_faults {
        Objects::of(&world.values())?.claims_are_whole()?;
    }
    nothing_is_leaked(world, &[])
}

/// Checks the end in worlds where nodes lose blocks that they use or claim. Another node may own such a block by now,
/// and an affinity may be unsettled until the next claim. A block whose creation takes effect after its node gave the
/// block up has no affinity (`docs/safety.md`).
pub(crate) fn at_the_end_of_claims(world: &World) -> Result<(), String> {
    let late: &[Code] = if world.audit().has_lost_answers { &[Code::BlockWithoutAffinity] } else { &[] };
    nothing_is_leaked(world, &[&[Code::BorrowedUnderStrictAffinity], late].concat())
}

/// Checks the end, and also that the next pod on a node is assigned an address of each family.
pub(crate) fn next_pod_starts(world: &World) -> Result<(), String> {
    nothing_is_leaked(world, &[])?;
    let copy = world.copy();
    stop(world, &copy.data, |pod| !pod.is_served())?;
    let call = Call::of_both("a/later");
    let addresses = served(&copy.data, &call);
    if addresses.len() != call.wants() {
        return Err(format!("the next pod gets {addresses:?}"));
    }
    copy.data.put(&call.endpoint(), call.endpoint_object(&addresses).to_string());
    let mut recorded = Objects::of(&copy.values())?.recorded()?;
    for address in addresses {
        if let Some(user) = world.truth.users().get(&address) {
            return Err(format!("the next pod gets {address}, which {user} uses"));
        }
        recorded.remove(&address);
    }
    if recorded != world.truth.users() {
        return Err(format!("{recorded:?} are recorded beside the next pod"));
    }
    explained(world, &copy.values(), OF_QUIET)
}

/// Runs DEL again for the selected pods.
fn stop(world: &World, data: &MemoryStore, is_stopped: fn(&Pod) -> bool) -> Result<(), String> {
    for (handle, pod) in world.truth.pods().iter().filter(|(_, pod)| is_stopped(pod)) {
        clean_up(data, &pod.node, handle).map_err(|error| format!("DEL of {handle} fails: {error}"))?;
    }
    Ok(())
}

fn nothing_is_leaked(world: &World, also: &[Code]) -> Result<(), String> {
    let copy = world.copy();
    if !world.audit().has_faults {
        Objects::of(&copy.values())?.handles_count_exactly(world)?;
    }
    explained(world, &copy.values(), &[OF_QUIET, OF_CRASHES, also].concat())?;

    // A late write, which takes effect last, may also leave something behind.
    stop(world, &copy.data, |pod| !pod.is_served())?;
    let objects = Objects::of(&copy.values())?;
    let users = world.truth.users();
    if !world.audit().has_lost_answers {
        objects.handles_count_exactly(world)?;
    }
    objects.are_only_of(&users).map_err(|what| format!("{what} after DEL was repeated"))?;
    explained(world, &copy.values(), &[OF_QUIET, also].concat())?;

    stop(world, &copy.data, Pod::is_served)?;
    let left = Objects::of(&copy.values())?.are_only_of(&BTreeMap::new());
    left.map_err(|what| format!("{what} after all pods stopped"))
}

/// Checks that a node's notes hide no address from its next ADD, whatever happened to the notes file.
pub(crate) fn notes_hide_nothing(world: &World) -> Result<(), String> {
    at_the_end(world)?;
    for node in NODES {
        let (call, notes) = (Call::from(&*format!("{node}/next")), world.notes.of(node));
        if would_assign(world, &call, notes.as_ref()) != would_assign(world, &call, None) {
            return Err(format!(
                "the next ADD on {node} ends otherwise by what the node has kept: {notes:?}"
            ));
        }
    }
    Ok(())
}

/// True if Calico's plugin may leave addresses recorded although its DEL succeeds, since it relies on the counts in the
/// handle. The collector finds such addresses.
pub(crate) fn may_be_left(world: &World, handle: &str) -> bool {
    let has_faults = world.audit().has_faults;
    world.truth.has(handle, |pod| pod.is_of_calico && (has_faults || pod.is_damaged))
}

/// Checks that nothing is recorded for a handle once its release has succeeded.
pub(crate) fn is_released(world: &World, handle: &str) -> Result<(), String> {
    let mut recorded = Objects::of(&world.values())?.recorded()?.into_iter();
    recorded.find(|(_, recorded)| recorded == handle).map_or(Ok(()), |(address, _)| {
        Err(format!("DEL of {handle} succeeds, and {address} stays recorded for it"))
    })
}

/// True if an address is recorded for a handle.
pub(crate) fn is_recorded(world: &World, address: IpAddr, handle: &str) -> bool {
    let recorded = Objects::of(&world.values()).and_then(|objects| objects.recorded());
    recorded.is_ok_and(|recorded| recorded.get(&address).is_some_and(|found| found == handle))
}

/// Checks that `check` reports only the findings in `allowed`. If the clock jumped, `check` may also report a clock
/// that went back.
fn explained(world: &World, values: &[(String, Vec<u8>, i64)], allowed: &[Code]) -> Result<(), String> {
    let mut snapshot = snapshot(values);
    (snapshot.taken_at, snapshot.rechecked) = (world.now(), true);
    if values.iter().any(|(path, ..)| path.starts_with(kubernetes::ALL)) {
        snapshot.datastore = DatastoreKind::Kubernetes;
        let own = ETCD_SOURCES.into_iter().filter(|source| *source != Source::Endpoints);
        snapshot.mark_read(own.chain([Source::Pods, Source::Services]));
    } else {
        snapshot.mark_read(ETCD_SOURCES);
    }
    let options = Options { grace: Some(SignedDuration::ZERO), ..Options::default() };
    let is_of_clock = |finding: &Finding| {
        !world.jumped().is_zero()
            && finding.code == Code::CorruptBlock
            && finding.message().contains("was released in the future")
    };
    let mut findings = check(&snapshot, &options).findings.into_iter();
    let other = findings.find(|finding| !allowed.contains(&finding.code) && !is_of_clock(finding));
    other.map_or(Ok(()), |other| Err(format!("check finds {}: {}", other.code, other.message())))
}

/// Creates the snapshot that a check would take of these values.
pub(crate) fn snapshot(values: &[(String, Vec<u8>, i64)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (path, value, revision) in values {
        if !kubernetes::decode(&mut snapshot, path, value, *revision) {
            snapshot.add_entry(path.as_bytes(), value, *revision);
        }
    }
    snapshot
}

/// The stored objects.
struct Objects {
    blocks: Vec<Block>,
    handles: BTreeMap<String, Handle>,
    affinities: Vec<Affinity>,
}

impl Objects {
    fn of(values: &[(String, Vec<u8>, i64)]) -> Result<Self, String> {
        let snapshot = snapshot(values);
        if let Some(defect) = snapshot.defects.first() {
            return Err(format!("{}: {defect:?}", defect.path));
        }
        let sound = |block: &Versioned<StoredBlock>| block.value.content.sound().cloned();
        let blocks = snapshot.blocks.iter().filter_map(sound).filter(|block| !block.is_deleted()).collect();
        let handles = snapshot.handles.into_iter().map(|handle| handle.value);
        let handles = handles.filter(|handle| !handle.is_deleted());
        Ok(Self {
            blocks,
            handles: handles.map(|handle| (handle.id().to_string(), handle)).collect(),
            affinities: snapshot.affinities.into_iter().map(|affinity| affinity.value).collect(),
        })
    }

    /// The handles of all allocated addresses. Fails if an address is in two blocks.
    fn recorded(&self) -> Result<BTreeMap<IpAddr, String>, String> {
        let mut recorded = BTreeMap::new();
        for held in self.blocks.iter().flat_map(Block::allocations) {
            let Some(handle) = held.attribute.to_attribute().handle else { continue };
            if let Some(other) = recorded.insert(held.address, handle.clone()) {
                return Err(format!("{} is recorded for {other} and for {handle}", held.address));
            }
        }
        Ok(recorded)
    }

    /// Checks that nothing is recorded for others than these users of addresses.
    fn are_only_of(&self, users: &BTreeMap<IpAddr, String>) -> Result<(), String> {
        for (address, handle) in self.recorded()? {
            if users.get(&address) != Some(&handle) {
                return Err(format!("{address} stays recorded for {handle}"));
            }
        }
        let left = self.handles.keys().find(|handle| !users.values().any(|user| user == *handle));
        left.map_or(Ok(()), |handle| Err(format!("the handle {handle} stays")))
    }

    /// The number of addresses by handle and block.
    fn counts(&self) -> BTreeMap<(String, IpNet), i64> {
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
    fn handles_count_enough(&self, world: &World) -> Result<(), String> {
        for ((handle, block), count) in self.counts() {
            if world.truth.has(&handle, |pod| pod.is_damaged) || may_be_left(world, &handle) {
                continue;
            }
            let counted = self.handles.get(&handle).map_or(0, |object| object.count(block));
            if counted < count {
                return Err(format!("{handle} counts {counted} of {count} addresses in {block}"));
            }
        }
        Ok(())
    }

    /// Checks that no handle counts too many addresses, unless an answer was lost or a process was killed.
    ///
    /// Handles of Calico's plugin are exempt, since the plugin does not undo the count of an assignment that lost a
    /// race. Handles that an undo has restored are exempt as well. They may have had a surplus count before the undone
    /// release, since the collector had released the address, but not yet updated the handle.
    fn handles_count_exactly(&self, world: &World) -> Result<(), String> {
        let counts = self.counts();
        let is_restored = |id: &String| {
            let path = Key::Handle(id.clone()).to_string();
            world.data.value(&path).is_some_and(|now| world.audit().is_restored(&path, &now))
        };
        let is_exact =
            |id: &String| !world.truth.has(id, |pod| pod.is_damaged || pod.is_of_calico) && !is_restored(id);
        for (id, handle) in self.handles.iter().filter(|(id, _)| is_exact(id)) {
            for (block, counted) in handle.blocks() {
                let count = counts.get(&(id.clone(), block)).copied().unwrap_or_default();
                if counted != count {
                    return Err(format!("{id} counts {counted} in {block}, which has {count} of it"));
                }
            }
        }
        Ok(())
    }

    /// Checks that no claim is half done: an affinity is confirmed if and only if its block exists.
    fn claims_are_whole(&self) -> Result<(), String> {
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
        if let Some(block) = self.blocks.iter().find(|block| block.is_empty() && block.owner().is_none()) {
            return Err(format!("{} stays, which is empty and has no owner", block.cidr()));
        }
        if let Some(Affinity { key, state, .. }) = self.affinities.iter().find(is_half) {
            return Err(format!("{} of {} stays {state}, with or without its block", key.cidr, key.node));
        }
        let is_claimed = |cidr, owner: &BlockOwner| {
            self.affinities.iter().any(|Affinity { key, .. }| key.cidr == cidr && key.owner() == *owner)
        };
        let mut owned = self.blocks.iter().filter_map(|block| Some((block.cidr(), block.owner()?)));
        owned.find(|(cidr, owner)| !is_claimed(*cidr, owner)).map_or(Ok(()), |(cidr, owner)| {
            Err(format!("{cidr} stays with {owner}, which has no affinity for it"))
        })
    }

    /// Checks that at most one node has a confirmed affinity for each block.
    fn blocks_have_one_affinity(&self) -> Result<(), String> {
        let mut sure: BTreeMap<IpNet, String> = BTreeMap::new();
        let confirmed = self.affinities.iter().filter(|affinity| affinity.state == AffinityState::Confirmed);
        for affinity in confirmed {
            let holder = affinity.key.owner().to_string();
            if let Some(other) = sure.insert(affinity.key.cidr, holder.clone()) {
                return Err(format!("{other} and {holder} both have {} confirmed", affinity.key.cidr));
            }
        }
        Ok(())
    }
}
