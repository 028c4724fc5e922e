//! The addresses available to the users of the old pool once it is disabled. To find out, the allocator itself runs on
//! the snapshot, node by node.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calipam_assign::{Allocator, AutoAssign, Event, Family, SnapshotStore, without_waiting};
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::{Revision, Snapshot, Versioned};
use serde::Serialize;

use super::{Detour, Leg, Migration, User, UserKind};

/// The addresses that users of one IP family on one node can get when they lose their present addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCapacity {
    pub node: String,
    /// The number of addresses that the users on the node need: pods, endpoints and tunnels.
    pub needed: u32,
    /// The number of addresses that the allocator finds for them.
    pub found: u32,
    /// The number of blocks that the node claims for these addresses.
    pub new_blocks: usize,
    /// The reason why the allocator does not find more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Runs the allocator for the users of the old pool, as if the old pool were disabled and the new pool enabled. Leaves
/// the snapshot unchanged.
pub fn capacity(snapshot: &mut Snapshot, migration: &Migration, users: &[User]) -> Vec<NodeCapacity> {
    let disabled = |pool: &Versioned<Pool>| {
        let is_old = pool.value.name == migration.old.name;
        Pool { disabled: pool.value.disabled || is_old, ..pool.value.clone() }
    };
    let mut after: Vec<Pool> = snapshot.pools.iter().map(disabled).collect();
    open(&mut after, migration.new.as_ref());
    capacity_in(snapshot, after, users)
}

/// Runs the allocator for the way back from a temporary pool, as if the old pool were empty and had been created again
/// with the new block size. Returns nothing if no temporary pool is needed, or if users are already on the way back.
pub fn capacity_back(snapshot: &mut Snapshot, migration: &Migration, users: &[User]) -> Vec<NodeCapacity> {
    let Some(Detour { leg: Leg::There, temporary, successor }) = migration.detour() else {
        return Vec::new();
    };
    let is_there = |cidr: IpNet| overlap(cidr, successor.cidr);
    let blocks = mem::take(&mut snapshot.blocks);
    let affinities = mem::take(&mut snapshot.affinities);
    snapshot.blocks = blocks.iter().filter(|block| !is_there(block.value.key)).cloned().collect();
    snapshot.affinities =
        affinities.iter().filter(|affinity| !is_there(affinity.value.key.cidr)).cloned().collect();

    let mut after: Vec<Pool> = snapshot.pools.iter().map(|pool| pool.value.clone()).collect();
    after.retain(|pool| ![&migration.old.name, &temporary.name].contains(&&pool.name));
    let again = Pool { block_size: successor.block_size, disabled: false, ..migration.old.clone() };
    open(&mut after, Some(&again));
    let capacity = capacity_in(snapshot, after, users);
    (snapshot.blocks, snapshot.affinities) = (blocks, affinities);
    capacity
}

/// Creates or enables a pool.
fn open(pools: &mut Vec<Pool>, new: Option<&Pool>) {
    let Some(new) = new else { return };
    let open = Pool { disabled: false, not_allocatable: None, ..new.clone() };
    match pools.iter_mut().find(|pool| pool.name == new.name) {
        Some(pool) => *pool = open,
        None => pools.push(open),
    }
}

/// Returns the addresses that the allocator finds for the users in the pools `after`. Leaves the snapshot unchanged.
pub fn capacity_in(snapshot: &mut Snapshot, after: Vec<Pool>, users: &[User]) -> Vec<NodeCapacity> {
    let after = after.into_iter().map(|value| Versioned { value, revision: Revision::Etcd(0) }).collect();
    let before = mem::replace(&mut snapshot.pools, after);
    let of_family = |family: Family| {
        let users = users.iter().filter(|user| Family::of_address(user.address) == family);
        assign_to(snapshot, family, users)
    };
    let capacity = Family::BOTH.into_iter().flat_map(of_family).collect();
    snapshot.pools = before;
    capacity
}

/// Runs the allocator, node by node, for one address per user. Services are left out.
fn assign_to<'u>(
    snapshot: &Snapshot,
    family: Family,
    users: impl Iterator<Item = &'u User>,
) -> Vec<NodeCapacity> {
    let mut demand: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for user in users {
        match user.kind {
            UserKind::Pod | UserKind::Endpoint => demand.entry(&user.node).or_default().0 += 1,
            UserKind::Tunnel => demand.entry(&user.node).or_default().1 += 1,
            UserKind::Service => {}
        }
    }

    let claimed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&claimed);
    let count = move |event| {
        if matches!(event, Event::Claimed(_) | Event::Reclaimed(_)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    let windows = snapshot.nodes.iter().map(|node| &node.value).filter(|node| node.is_windows());
    let windows: HashSet<&str> = windows.map(|node| node.name.as_str()).collect();
    let store = SnapshotStore::new(snapshot);
    let allocator = Allocator::new(&store).observed_by(Arc::new(count));
    let of_node = |(node, (workloads, tunnels)): (&str, (u32, u32))| {
        let mut found = 0;
        let mut reason = None;
        let windows = windows.contains(node);
        for (wanted, intended_use) in [(workloads, PoolUse::Workload), (tunnels, PoolUse::Tunnel)] {
            let (v4, v6) = if family == Family::V4 { (wanted, 0) } else { (0, wanted) };
            let intended_use = Some(intended_use);
            let wanted =
                AutoAssign { host: node.to_owned(), v4, v6, intended_use, windows, ..AutoAssign::default() };
            let (done, error) = match without_waiting(allocator.auto_assign(&wanted)) {
                Ok(done) => (done, None),
                Err(partly) => (partly.done, Some(partly.error.to_string())),
            };
            found += u32::try_from(done.addresses().count()).unwrap_or(u32::MAX);
            let messages = done.v4.iter().chain(&done.v6).flat_map(|assigned| &assigned.messages);
            reason = reason.or(error).or_else(|| messages.map(ToString::to_string).next());
        }
        let needed = workloads.saturating_add(tunnels);
        let reason = reason.filter(|_| found < needed).map(|reason| reason.trim().to_owned());
        NodeCapacity {
            node: node.to_owned(),
            needed,
            found,
            new_blocks: claimed.swap(0, Ordering::Relaxed),
            reason,
        }
    };
    demand.into_iter().map(of_node).collect()
}
