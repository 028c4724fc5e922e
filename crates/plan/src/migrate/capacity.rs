//! The addresses available to the users of the old pool once it is disabled. To find out, the allocator itself runs on
//! the snapshot, node by node.

use std::collections::BTreeMap;
use std::{fmt, mem};

use calipam_assign::{Family, NodeNeed, NodeRoom, Outlook};
use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::cidr::overlap;
use calipam_model::hint::{Call, Hint};
use calipam_model::pool::Pool;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};
use serde::Serialize;

use super::{Detour, Leg, Migration, User, UserKind};
use crate::refusal::{Refused, Result};

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
    let mut pools: Vec<Pool> = snapshot.pools.iter().map(|pool| pool.value.clone()).collect();
    for pool in &mut pools {
        if pool.name == migration.old.name {
            pool.disabled = true;
        }
    }
    if let Some(new) = &migration.new {
        add_enabled(&mut pools, new);
    }
    capacity_in(snapshot, pools, users)
}

/// Runs the allocator for the way back from a temporary pool, as if the old pool were empty and had been created again
/// with the new block size. Returns nothing if no temporary pool is needed, or if users are already on the way back.
pub fn capacity_back(snapshot: &mut Snapshot, migration: &Migration, users: &[User]) -> Vec<NodeCapacity> {
    let Some(Detour {
        leg: Leg::There,
        temporary,
        successor,
    }) = migration.detour()
    else {
        return Vec::new();
    };

    // The old pool will be empty by then, with its blocks and affinities deleted.
    let other_blocks = blocks_outside(snapshot, successor.cidr);
    let other_affinities = affinities_outside(snapshot, successor.cidr);
    let blocks = mem::replace(&mut snapshot.blocks, other_blocks);
    let affinities = mem::replace(&mut snapshot.affinities, other_affinities);

    let mut pools: Vec<Pool> = snapshot.pools.iter().map(|pool| pool.value.clone()).collect();
    pools.retain(|pool| pool.name != migration.old.name && pool.name != temporary.name);
    let created_again = Pool {
        block_size: successor.block_size,
        disabled: false,
        ..migration.old.clone()
    };
    add_enabled(&mut pools, &created_again);
    let capacity = capacity_in(snapshot, pools, users);

    snapshot.blocks = blocks;
    snapshot.affinities = affinities;
    capacity
}

fn blocks_outside(snapshot: &Snapshot, cidr: IpNet) -> Vec<Versioned<StoredBlock>> {
    let blocks = snapshot.blocks.iter();
    let outside = blocks.filter(|block| !overlap(block.value.key, cidr));
    outside.cloned().collect()
}

fn affinities_outside(snapshot: &Snapshot, cidr: IpNet) -> Vec<Versioned<Affinity>> {
    let affinities = snapshot.affinities.iter();
    let outside = affinities.filter(|affinity| !overlap(affinity.value.key.cidr, cidr));
    outside.cloned().collect()
}

/// Adds an enabled pool to the pools, in place of the one with its name if there is one.
fn add_enabled(pools: &mut Vec<Pool>, pool: &Pool) {
    let enabled = Pool {
        disabled: false,
        not_allocatable: None,
        ..pool.clone()
    };
    match pools.iter_mut().find(|other| other.name == pool.name) {
        Some(other) => *other = enabled,
        None => pools.push(enabled),
    }
}

/// Returns the addresses that the allocator finds for the users in these pools, which replace those of the snapshot for
/// the time of the call.
pub fn capacity_in(snapshot: &mut Snapshot, pools: Vec<Pool>, users: &[User]) -> Vec<NodeCapacity> {
    let mut stored = Vec::new();
    for value in pools {
        let revision = Revision::Etcd(0);
        stored.push(Versioned { value, revision });
    }
    let original = mem::replace(&mut snapshot.pools, stored);

    let mut capacity = Vec::new();
    for family in Family::BOTH {
        let of_family = users
            .iter()
            .filter(|user| Family::of_address(user.address) == family);
        capacity.extend(assign_to(snapshot, family, of_family));
    }

    snapshot.pools = original;
    capacity
}

const UNKNOWN: &str = "the settings of the allocator, or objects that it needs, cannot be read";

/// Counts the addresses that the users on each node need. Services are left out, since they are on no node.
fn needs_of_nodes<'u>(users: impl Iterator<Item = &'u User>) -> BTreeMap<&'u str, NodeNeed> {
    let mut needs: BTreeMap<&str, NodeNeed> = BTreeMap::new();
    for user in users {
        match user.kind {
            UserKind::Pod | UserKind::Endpoint => needs.entry(&user.node).or_default().workloads += 1,
            UserKind::Tunnel => needs.entry(&user.node).or_default().tunnels += 1,
            UserKind::Service => {}
        }
    }
    needs
}

/// Returns the addresses that the allocator finds on each node for the users there, one for each user.
fn assign_to<'u>(
    snapshot: &Snapshot,
    family: Family,
    users: impl Iterator<Item = &'u User>,
) -> Vec<NodeCapacity> {
    let needs: Vec<(&str, NodeNeed)> = needs_of_nodes(users).into_iter().collect();
    let rooms: Vec<NodeRoom> = match Outlook::new(snapshot) {
        Some(outlook) => outlook.room_of_nodes(family, needs.iter().copied()),
        None => {
            let unknown = NodeRoom {
                reason: Some(UNKNOWN.to_owned()),
                ..NodeRoom::default()
            };
            vec![unknown; needs.len()]
        }
    };

    // The rooms are in the order of the needs.
    let mut capacity = Vec::new();
    for ((node, need), room) in needs.into_iter().zip(rooms) {
        let needed = need.workloads.saturating_add(need.tunnels);
        capacity.push(NodeCapacity {
            node: node.to_owned(),
            needed,
            found: room.found,
            new_blocks: room.new_blocks,
            reason: room.reason.filter(|_| room.found < needed),
        });
    }
    capacity
}

/// Checks that all users of a pool find addresses elsewhere.
///
/// # Errors
/// If a user does not find one.
pub fn require_room(pool: &str, capacity: &[NodeCapacity]) -> Result<()> {
    let Some(shortage) = shortage(capacity) else {
        return Ok(());
    };
    let hint = "name a larger pool; the table shows each node, and {} continues anyway";
    Err(
        Refused::new(format!("without {pool}, there are no addresses for {shortage}"))
            .hint(Hint::new(hint, [Call::again_with(["--force"])])),
    )
}

/// A shortage of addresses.
pub(super) struct Shortage {
    needed: u32,
    missing: u32,
    /// The first node that lacks addresses.
    node: String,
    reason: String,
}

impl fmt::Display for Shortage {
    /// Writes the numbers of missing and needed addresses, and the first node that lacks some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            needed,
            missing,
            node,
            reason,
        } = self;
        write!(f, "{missing} of {needed} users, first on {node}: {reason}")
    }
}

/// Sums up the nodes that get fewer addresses than they need; `None` if all of them get enough.
pub(super) fn shortage(capacity: &[NodeCapacity]) -> Option<Shortage> {
    let first = capacity.iter().find(|node| node.found < node.needed)?;
    let mut needed = 0;
    let mut missing = 0;
    for node in capacity {
        needed += node.needed;
        missing += node.needed.saturating_sub(node.found);
    }
    Some(Shortage {
        needed,
        missing,
        node: first.node.clone(),
        reason: first.reason.clone().unwrap_or_default(),
    })
}
