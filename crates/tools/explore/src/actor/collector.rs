//! Releases of unused addresses and blocks, other operations of the allocator that no pod triggers, and edits by people
//! with calicoctl.

use std::sync::Arc;

use calipam_assign::{Allocator, Error, InUse};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_testkit::memory::MemoryStore;
use calipam_testkit::operator::claim_affinity;

use super::Actor;
use crate::calico::Calico;
use crate::world::{Client, Footprint, World};

/// Runs the collector of kube-controllers, from the first read that shows a leak to the end of the grace period.
pub fn collect() -> Actor {
    Actor::new("Calico's collector", |world, actor| async move {
        let _ = Calico::new(Client::new(&world, actor)).collect().await;
    })
}

/// Runs an operation of the allocator, which must succeed if nothing disturbs it.
pub fn operate<F: Future<Output = Result<(), Error>> + 'static>(
    name: impl Into<String>,
    operation: impl Fn(Arc<World>, Allocator<Client>) -> F + 'static,
) -> Actor {
    let name = name.into();
    Actor::new(name.clone(), move |world: Arc<World>, actor| {
        let done = operation(Arc::clone(&world), Allocator::new(Client::new(&world, actor)));
        let name = name.clone();
        async move {
            if let Err(error) = done.await
                && world.audit().is_undisturbed()
            {
                world
                    .truth
                    .violated(format!("{name} was not disturbed, but fails: {error}"));
            }
        }
    })
}

pub(crate) fn cidr(text: &str) -> IpNet {
    text.parse().expect("the text of a CIDR")
}

/// Releases an empty block of a node.
pub fn release_empty(block: &'static str, node: &'static str) -> Actor {
    operate(
        format!("gives up {block} of {node} if it is empty"),
        move |_, allocator| async move {
            allocator.store().be_careful();
            allocator.release_affinity(cidr(block), node, InUse::Refuse).await
        },
    )
}

/// Removes a node's affinity for a block, even if the block is in use.
pub fn disown(block: &'static str, node: &'static str) -> Actor {
    operate(
        format!("gives up {block} of {node}"),
        move |_, allocator| async move {
            allocator
                .release_affinity(cidr(block), node, InUse::Release)
                .await
        },
    )
}

/// Claims all blocks of a network for a node.
pub fn claim(network: &'static str, node: &'static str) -> Actor {
    operate(
        format!("{node} claims {network}"),
        move |_, allocator| async move {
            let claimed = claim_affinity(&allocator, cidr(network), AffinityType::Host, node).await;
            claimed.map(drop).map_err(|partly| partly.error)
        },
    )
}

/// Makes a node release its empty block and claim it again.
pub fn claim_again(block: &'static str, node: &'static str) -> Actor {
    operate(
        format!("{node} gives up {block} and claims it"),
        move |_, allocator| async move {
            allocator
                .release_affinity(cidr(block), node, InUse::Refuse)
                .await?;
            let claimed = claim_affinity(&allocator, cidr(block), AffinityType::Host, node).await;
            claimed.map(drop).map_err(|partly| partly.error)
        },
    )
}

/// Creates an actor that reads a value and then replaces it only if its version is still the same, like `calicoctl
/// apply`.
pub fn edit(name: &'static str, path: &'static str, edit: fn(&str) -> String) -> Actor {
    Actor::new(name, move |world: Arc<World>, actor| async move {
        let read = world.turn(actor, format!("read {path}"), Footprint::default().read(path));
        let (Ok(()), Some(found)) = (read.answered().await, world.data.value_at(path)) else {
            return;
        };
        world.record_answer(actor, &found);
        let (value, revision) = found;
        let after = edit(&String::from_utf8_lossy(&value));
        let write = move |store: &MemoryStore| {
            if store.value_at(path).is_some_and(|(_, now)| now == revision) {
                store.put(path, after.clone());
            }
        };
        let turn = world.turn(actor, format!("write {path}"), Footprint::default().write(path));
        let _ = turn.executed(write).await;
    })
}
