//! What the allocator finds for the users of the old pool once that is disabled: by its own code, node by node, on the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calipam_assign::{Allocator, AutoAssign, Event, Family, SnapshotStore, without_waiting};
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{Revision, Snapshot, Versioned};
use serde::Serialize;

use super::{Migration, User, UserKind};

/// What a node finds without the old pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCapacity {
    pub node: String,
    /// Addresses of the old pool that are in use on the node: of pods, endpoints and tunnels.
    pub needed: u32,
    /// How many of them the allocator finds in other pools.
    pub found: u32,
    /// Blocks that the node claims for them.
    pub new_blocks: usize,
    /// Why there are not more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Lets the allocator assign an address to each user of the old pool, with the old pool disabled and the new one there. Nothing is kept: the
/// snapshot is afterwards as it was.
pub fn capacity(snapshot: &mut Snapshot, migration: &Migration, users: &[User]) -> Vec<NodeCapacity> {
    let mut demand: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for user in users {
        match user.kind {
            UserKind::Pod | UserKind::Endpoint => demand.entry(&user.node).or_default().0 += 1,
            UserKind::Tunnel => demand.entry(&user.node).or_default().1 += 1,
            UserKind::Service => {}
        }
    }

    let before = snapshot.pools.clone();
    for pool in &mut snapshot.pools {
        pool.value.disabled |= pool.value.name == migration.old.name;
    }
    if let Some(new) = migration.new.clone().filter(|_| migration.creates) {
        snapshot.pools.push(Versioned { value: new, revision: Revision::Etcd(0) });
    }

    let claimed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&claimed);
    let count = move |event| {
        if matches!(event, Event::Claimed(_) | Event::Reclaimed(_)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    let store = SnapshotStore::new(snapshot);
    let allocator = Allocator::new(&store).observed_by(Arc::new(count));
    let family = Family::of(migration.old.cidr);
    let of_node = |(node, (workloads, tunnels)): (&str, (u32, u32))| {
        let (mut found, mut reason) = (0, None);
        let windows = snapshot.nodes.iter().any(|other| other.value.name == node && other.value.is_windows());
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
    let capacity = demand.into_iter().map(of_node).collect();

    drop(allocator);
    drop(store);
    snapshot.pools = before;
    capacity
}
