//! Releases of unused addresses and blocks.

use std::sync::Arc;

use calipam_assign::{Allocator, InUse};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_testkit::operator::Operator as _;

use super::Actor;
use crate::calico::Collector;
use crate::invariants;
use crate::world::{Client, World};

/// Runs the collector of kube-controllers, from the first sight of a leak to the end of the grace period.
pub fn collect() -> Actor {
    Actor::new("Calico's collector", |world, actor| async move {
        Collector::new(Client::new(&world, actor)).collect().await;
    })
}

/// Releases an empty block of a node.
pub fn release_empty(block: IpNet, node: &str) -> Actor {
    release(block, node, InUse::Refuse)
}

/// Takes a block from a node, even if it is in use.
pub fn disown(block: IpNet, node: &str) -> Actor {
    release(block, node, InUse::Release)
}

/// A node releases its empty block and claims it again.
pub fn claim_again(block: IpNet, node: &str) -> Actor {
    let node = node.to_owned();
    Actor::new(format!("{node} gives up {block} and claims it"), move |world: Arc<World>, actor| {
        let node = node.clone();
        async move {
            let allocator = Allocator::new(Client::new(&world, actor));
            if allocator.release_affinity(block, &node, InUse::Refuse).await.is_ok() {
                drop(allocator.claim_affinity(block, AffinityType::Host, &node).await);
            }
        }
    })
}

fn release(block: IpNet, node: &str, in_use: InUse) -> Actor {
    let node = node.to_owned();
    Actor::new(format!("gives up {block} of {node}"), move |world: Arc<World>, actor| {
        let node = node.clone();
        async move {
            let allocator = Allocator::new(Client::new(&world, actor));
            let released = allocator.release_affinity(block, &node, in_use).await;
            if released.is_ok() && in_use == InUse::Refuse && invariants::is_ownerless(&world, block) {
                world.truth.violated(format!("{block}, which is in use, is given up as empty"));
            }
        }
    })
}
