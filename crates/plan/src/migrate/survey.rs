//! The phase of a migration and the leftovers of the old pool, determined from the content of the datastore.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_check::index::Index;
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::pool::Successor;
use serde::Serialize;

use super::capacity::shortage;
use super::objects::objects_in;
use super::pools::serves;
use super::users::users;
use super::{Detour, Difference, Migration, NodeCapacity, Phase, User, require_room};
use crate::basis::Basis;
use crate::refusal::{Refused, Result};

/// The leftovers in the old pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leftovers {
    pub blocks: usize,
    pub affinities: usize,
    /// Addresses that are in use.
    pub in_use: usize,
    /// Addresses that an object names, but may not own.
    pub named: usize,
    /// Addresses that are recorded and leaked.
    pub leaked: usize,
    /// Recorded addresses that are neither in use nor known to be leaked: recently allocated, cooling down, or recorded
    /// for an owner that may use them again.
    pub others: usize,
}

/// The state of a migration.
#[derive(Clone, Debug)]
pub struct Survey {
    pub migration: Migration,
    /// The next phase.
    pub phase: Phase,
    pub leftovers: Leftovers,
    /// The users of the old pool, ascending.
    pub users: Vec<User>,
    /// The nodes of users that do not exist.
    pub missing_nodes: BTreeSet<String>,
    /// The addresses that the users would find without the old pool, by node. Users on nodes that do not exist need
    /// none.
    pub capacity: Vec<NodeCapacity>,
    /// The addresses that the users would find on the way back from a temporary pool. Empty if there is no temporary
    /// pool, or if users are already on the way back.
    pub capacity_back: Vec<NodeCapacity>,
    /// Settings in which the new pool differs from the old one, if the new pool exists already.
    pub differences: Vec<Difference>,
}

/// Surveys a migration, except its capacity and differences: see [`super::capacity()`], [`super::capacity_back()`] and
/// [`super::differences()`].
pub fn survey(basis: &Basis<'_>, migration: Migration) -> Survey {
    let cidr = migration.old.cidr;
    let index = &basis.context.index;
    let users = users(index, cidr);
    let leftovers = count_leftovers(basis, cidr, &users);
    Survey {
        phase: phase_of(basis, &migration, &leftovers),
        migration,
        leftovers,
        missing_nodes: missing_nodes(index, &users),
        users,
        capacity: Vec::new(),
        capacity_back: Vec::new(),
        differences: Vec::new(),
    }
}

impl Survey {
    /// Returns the users that need other addresses, without those on nodes that do not exist.
    pub fn movers(&self) -> Vec<User> {
        self.users
            .iter()
            .filter(|user| !self.missing_nodes.contains(&user.node))
            .cloned()
            .collect()
    }

    /// Checks that all users find an address without the old pool, and on the way back from a temporary one. Phases
    /// after [`Phase::Disable`] need no room.
    ///
    /// # Errors
    /// If a user does not find one.
    pub fn require_room(&self) -> Result<()> {
        if !matches!(self.phase, Phase::Create | Phase::Disable) {
            return Ok(());
        }
        require_room(&self.migration.old.name, &self.capacity)?;

        let Some(Detour { successor, .. }) = self.migration.detour() else {
            return Ok(());
        };
        let Some(shortage) = shortage(&self.capacity_back) else {
            return Ok(());
        };
        let Successor { cidr, block_size, .. } = successor;
        let message = format!("with blocks of /{block_size}, {cidr} has no addresses for {shortage}");
        let hint = "choose another block size, or fix the problem above; {} continues anyway";
        Err(Refused::new(message).hint(Hint::new(hint, [Call::again_with(["--force"])])))
    }
}

/// Returns the first phase of a migration that is not yet done.
fn phase_of(basis: &Basis<'_>, migration: &Migration, leftovers: &Leftovers) -> Phase {
    let Migration { old, .. } = migration;
    let mut pools = basis.snapshot.pools.iter().map(|stored| &stored.value);
    let has_other_pool = pools.any(|pool| pool.name != old.name && serves(pool, old.cidr));
    if migration.creates || migration.enables() || !has_other_pool {
        Phase::Create
    } else if !old.disabled {
        Phase::Disable
    } else if leftovers.in_use + leftovers.named > 0 {
        Phase::Move
    } else if leftovers.blocks + leftovers.affinities > 0 {
        Phase::CleanUp
    } else {
        Phase::Delete
    }
}

/// Counts the recorded addresses in a pool that `is_counted` accepts.
fn count_recorded(index: &Index<'_>, cidr: IpNet, is_counted: impl Fn(IpAddr) -> bool) -> usize {
    let blocks = index.blocks.iter().filter(|block| overlap(block.key, cidr));
    let mut number = 0;
    for allocation in blocks
        .filter_map(|block| block.usable)
        .flat_map(|usable| usable.allocations())
    {
        // Addresses that Windows reserves go with their block.
        if is_counted(allocation.address) && !allocation.attribute.is_windows_reserved() {
            number += 1;
        }
    }
    number
}

/// Returns the nodes of the users that do not exist. A service is on no node.
fn missing_nodes(index: &Index<'_>, users: &[User]) -> BTreeSet<String> {
    let nodes = users.iter().map(|user| &user.node);
    let missing = nodes.filter(|node| !node.is_empty() && !index.node_exists(node));
    missing.cloned().collect()
}

/// Counts the addresses, blocks and affinities that are still in the old pool.
fn count_leftovers(basis: &Basis<'_>, cidr: IpNet, users: &[User]) -> Leftovers {
    let index = &basis.context.index;
    let used: HashSet<IpAddr> = users.iter().map(|user| user.address).collect();
    let mentioned = index.mentioned_in(cidr);
    let named = mentioned.iter().filter(|address| !used.contains(address)).count();
    let leaked: HashSet<IpAddr> = basis
        .report
        .leaked()
        .filter(|address| cidr.contains(address))
        .collect();
    let others = count_recorded(index, cidr, |address| {
        !used.contains(&address) && !leaked.contains(&address)
    });

    let objects = objects_in(basis.snapshot, cidr);
    let blocks = objects.iter().filter(|key| matches!(key, Key::Block(_))).count();
    Leftovers {
        blocks,
        affinities: objects.len() - blocks,
        in_use: used.len(),
        named,
        leaked: leaked.len(),
        others,
    }
}
