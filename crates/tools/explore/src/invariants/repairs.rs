//! The invariants of calipam's own commands.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_check::Code;
use calipam_model::block::Block;
use calipam_model::cidr::overlap;
use calipam_model::handle::Handle;
use calipam_model::pool::Pool;
use calipam_repair::stale_locks;
use calipam_testkit::memory::Change;
use jiff::SignedDuration;

use super::{OF_CRASHES, OF_QUIET, explained};
use crate::actor::rebuild_all;
use crate::objects::{Objects, may_be_left};
use crate::world::{NotedWrite, PendingRequest, Phase, World, snapshot};

/// The handle of addresses that a person assigns manually.
pub(crate) const BY_HAND: &str = "by-hand";

/// The key of the allocator's configuration.
pub(crate) const CONFIG: &str = "/calico/ipam/v2/config";

/// The name of the cluster in all scenarios.
pub(crate) const CLUSTER: &str = "explored";

/// Findings that may remain after a rebuild: findings that a node's next claim settles, and findings about capacity.
const OF_REBUILT: &[Code] = &[
    Code::AffinityWithoutBlock,
    Code::NodeWithoutAddresses,
    Code::PoolNearlyFull,
];

/// Checks each write: strict affinity is kept, a block in use is not given up as empty, DEL and GC create nothing, a
/// command releases only leaks, and an undo restores the previous state. If nothing goes wrong, a command that locks
/// the datastore writes only while it is locked.
pub(super) fn written(
    world: &World,
    by: Option<&PendingRequest>,
    changes: Vec<Change>,
) -> Result<(), String> {
    let (by, writes) = (by.map(|by| by.id.actor), world.audit().note(by, changes));
    for write in writes {
        let path = &*write.path;
        let phase = write.phase;
        let is_of_command = phase.is_some_and(Phase::is_of_command);
        let is_lock = path.contains("/clusterinformations/");
        if !is_of_command {
            keeps_strict_affinity(world, &write)?;
            if let Some(node) = by.and_then(|actor| world.audit().adds.get(&actor).cloned()) {
                takes_no_block(world, &write, &node)?;
            }
        }
        // On Kubernetes, pools are written one by one, and may overlap until the last one is written.
        if is_of_command && !world.is_kubernetes() {
            overlaps_no_pool(world, &write)?;
        }
        if by.is_some_and(|actor| world.audit().takes_a_block_in_use(actor, &write)) {
            return Err(format!("{path}, which is in use, is given up as empty"));
        }
        // After a lost answer, a run may mistake another run's lock for its own, since both write the same value.
        let is_locking = |actor| {
            let audit = world.audit();
            audit.locking.contains(&actor) && !audit.has_faults
        };
        if is_of_command && by.is_some_and(is_locking) && !is_lock && !is_locked(world) {
            return Err(format!(
                "{path} is written by a run that locks the datastore, which is not locked"
            ));
        }
        match (phase, by) {
            (Some(Phase::Releases), _) if write.before.is_none() => {
                return Err(format!("a release creates {path}"));
            }
            (Some(Phase::Repairs), _) => {
                released_was_leaked(world, &write)?;
                takes_no_count(world, &write)?;
                keeps_other_settings(&write)?;
            }
            (Some(Phase::Undoes), Some(actor)) => {
                // An object is marked before it is deleted, and a marked object is deleted before it is created again.
                let is_marked =
                    is_marked(write.after()) || (write.after.is_none() && is_marked(write.before()));
                if !world.audit().restores(actor, &write) && !is_marked && !is_lock {
                    return Err(format!(
                        "an undo does not restore {path} to its value before the run"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// True for an object in Kubernetes whose deletion has begun.
fn is_marked(value: Option<&[u8]>) -> bool {
    let object: Option<serde_json::Value> = value.and_then(|value| serde_json::from_slice(value).ok());
    object.is_some_and(|object| object["spec"]["deleted"] == true || object["spec"]["deleted"] == "true")
}

/// Checks that a written pool overlaps no other pool.
fn overlaps_no_pool(world: &World, write: &NotedWrite) -> Result<(), String> {
    let cidr = |path: &str, value: &[u8]| Some(Pool::parse(path, value).ok()?.value.cidr);
    const POOLS: &str = "/ippools/";
    let path = &write.path;
    let Some(own) = write
        .after()
        .filter(|_| path.contains(POOLS))
        .and_then(|value| cidr(path, value))
    else {
        return Ok(());
    };
    let others = world
        .values()
        .into_iter()
        .filter(|(other, ..)| other.contains(POOLS) && other != path);
    let mut others = others.filter_map(|(other, value, _)| cidr(&other, &value));
    let other = others.find(|other| overlap(*other, own));
    other.map_or(Ok(()), |other| {
        Err(format!("the pool {own} is written, which overlaps {other}"))
    })
}

/// Checks that a node assigns addresses only from its own blocks if affinity is strict.
fn keeps_strict_affinity(world: &World, write: &NotedWrite) -> Result<(), String> {
    let config: serde_json::Value =
        serde_json::from_slice(&world.data.value(CONFIG).unwrap_or_default()).unwrap_or_default();
    if config["strict_affinity"] != true {
        return Ok(());
    }
    let was = recorded(&write.path, write.before());
    let Some(block) = block(&write.path, write.after()) else {
        return Ok(());
    };
    for held in block
        .allocations()
        .filter(|held| !was.iter().any(|(address, _)| *address == held.address))
    {
        let owner = held.attribute.to_attribute().owner.unwrap_or_default();
        let node = owner.get("node");
        let host = block.host();
        if node.is_some_and(|node| host != Some(node.as_str())) {
            return Err(format!(
                "{} is assigned on {node:?} in the block of {host:?}",
                held.address
            ));
        }
    }
    Ok(())
}

/// Checks that an ADD does not take a block from another node if the block is in use or was claimed less than a minute
/// ago. Otherwise, two nodes could take the block from each other again and again.
fn takes_no_block(world: &World, write: &NotedWrite, node: &str) -> Result<(), String> {
    let Some(before) = block(&write.path, write.before()) else {
        return Ok(());
    };
    let is_taken = block(&write.path, write.after()).is_none_or(|after| after.owner() != before.owner());
    let age = before
        .claimed_at()
        .map(|claimed| world.now().duration_since(claimed));
    let is_needed = !before.is_empty() || age.is_some_and(|age| age < SignedDuration::from_mins(1));
    let owner = before
        .host()
        .filter(|owner| *owner != node && is_taken && is_needed);
    let taken = |owner| {
        Err(format!(
            "{node} takes {} from {owner}, which needs it",
            before.cidr()
        ))
    };
    owner.map_or(Ok(()), taken)
}

/// Decodes a value as a block; `None` if it is not a block.
fn block(path: &str, value: Option<&[u8]>) -> Option<Block> {
    objects(path, value)?.blocks.pop()
}

/// Checks that a command releases no address of an existing pod, not even of one that is just starting.
fn released_was_leaked(world: &World, write: &NotedWrite) -> Result<(), String> {
    let pods = world.truth.pods();
    let kept = recorded(&write.path, write.after());
    for (address, handle) in recorded(&write.path, write.before()) {
        let is_released = !kept.iter().any(|(other, _)| *other == address);
        if is_released && pods.get(&handle).is_some_and(|pod| pod.exists) {
            return Err(format!("{address} is released, and {handle} is alive"));
        }
    }
    Ok(())
}

/// Checks that no command makes a handle count fewer addresses than it has. DEL would leave such addresses behind.
fn takes_no_count(world: &World, write: &NotedWrite) -> Result<(), String> {
    let Some(before) = handle(&write.path, write.before()) else {
        return Ok(());
    };
    let id = before.id().to_string();
    let after = handle(&write.path, write.after());
    let recorded = Objects::of(&world.values())?.counts();
    for (block, counted) in before.blocks() {
        let left = after.as_ref().map_or(0, |after| after.count(block));
        let has = recorded.get(&(id.clone(), block)).copied().unwrap_or_default();
        if left < counted.min(has) {
            return Err(format!(
                "a command makes {id} count {left} of {has} addresses in {block}"
            ));
        }
    }
    Ok(())
}

/// Decodes a value as a handle; `None` if it is not a handle.
fn handle(path: &str, value: Option<&[u8]>) -> Option<Handle> {
    objects(path, value)?.handles.into_values().next()
}

/// Checks that commands change only strict affinity in the allocator's configuration.
fn keeps_other_settings(write: &NotedWrite) -> Result<(), String> {
    let others = |value: Option<&[u8]>| {
        let mut value: serde_json::Value = serde_json::from_slice(value?).ok()?;
        value.as_object_mut()?.remove("strict_affinity");
        Some(value)
    };
    let [before, after] = [write.before(), write.after()];
    if write.path == CONFIG && before.is_some() && others(before) != others(after) {
        return Err("a setting is changed that was not named".to_owned());
    }
    Ok(())
}

/// The addresses of a block, with their handles.
fn recorded(path: &str, value: Option<&[u8]>) -> Vec<(IpAddr, String)> {
    let recorded = objects(path, value)
        .and_then(|objects| objects.recorded().ok())
        .unwrap_or_default();
    recorded.into_iter().collect()
}

/// Decodes the object in a value.
fn objects(path: &str, value: Option<&[u8]>) -> Option<Objects> {
    Objects::of(&[(path.to_owned(), value?.to_vec(), 1)]).ok()
}

/// Checks the end, with all actors stopped: the lock is released or named in a journal, `check` explains the state, and
/// `rebuild` and the collector of kube-controllers clean it up.
pub(crate) fn at_the_end(world: &World) -> Result<(), String> {
    let copy = world.copy();
    let is_locked = is_locked(world);
    if is_locked && !world.audit().has_killed {
        return Err("the datastore stays locked, and nobody was killed".to_owned());
    }
    let names_lock =
        |folder: &PathBuf| stale_locks(folder, CLUSTER, None).is_ok_and(|found| !found.is_empty());
    if is_locked && !world.files.folders().iter().any(names_lock) {
        return Err("the datastore is locked, nobody holds the lock, and no journal names it".to_owned());
    }
    let locked: &[Code] = if is_locked { &[Code::DatastoreLocked] } else { &[] };
    if !world.audit().has_faults {
        Objects::of(&world.values())?.handles_count_exactly(world)?;
    }
    // The leftovers of a split are removed by an undo, not by a rebuild. Objects that others have created stay.
    let half_split: &[Code] = &[Code::OverlappingPools];
    let one_by_one = if world.is_kubernetes() { ONE_BY_ONE } else { &[] };
    explained(
        world,
        &copy.values(),
        &[OF_QUIET, OF_CRASHES, DAMAGED, one_by_one, locked].concat(),
    )?;

    if !world.is_kubernetes() {
        // The kubelet repeats DEL for deleted pods, and the collector releases unused addresses.
        super::stop(world, &copy.data, |pod| !pod.exists)?;
    }
    rebuild_all(&copy)?;
    // If a request gets no answer, Calico's plugin looks for another address. The address of the first request stays
    // recorded until the pod stops.
    let users = world.truth.users();
    let pods = world.truth.pods();
    let has_two =
        |handle: &String| may_be_left(world, handle) && pods.get(handle).is_some_and(|pod| pod.exists);
    // An address that was assigned by hand stays recorded if there was no room for the journal of the undo. With etcd,
    // the collector has released the address.
    let is_by_hand = |handle: &String| world.is_kubernetes() && world.audit().has_faults && handle == BY_HAND;
    let stays = |handle: &String| has_two(handle) || is_by_hand(handle);
    let second: &[Code] = if pods.keys().any(stays) {
        &[Code::LeakedAddress]
    } else {
        &[]
    };
    explained(
        world,
        &copy.values(),
        &[OF_REBUILT, half_split, locked, second].concat(),
    )
    .map_err(|what| format!("after a rebuild {what}"))?;
    let mut recorded = Objects::of(&copy.values())?.recorded()?.into_iter();
    let left = recorded.find(|(address, handle)| users.get(address) != Some(handle) && !stays(handle));
    left.map_or(Ok(()), |(address, handle)| {
        Err(format!("{address} stays recorded for {handle} after a rebuild"))
    })
}

fn is_locked(world: &World) -> bool {
    snapshot(&world.values()).is_locked()
}

/// Findings about damage that exists at the start of a scenario or that others cause. The damage stays if the commands
/// that repair it are killed.
const DAMAGED: &[Code] = &[
    Code::MissingHandle,
    Code::OverlappingPools,
    Code::BlockOfMissingNode,
    Code::AffinityOfMissingNode,
];

/// Findings that may remain with the Kubernetes datastore, where objects are written one by one.
const ONE_BY_ONE: &[Code] = &[Code::HalfDeleted];
