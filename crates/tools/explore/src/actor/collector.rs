//! The collector of kube-controllers (facts 3.12, 3.17).

use std::sync::Arc;

use calipam_assign::{Allocator, Family, InUse, Query, Record, Release, Store};
use calipam_model::IpNet;
use calipam_model::block::Block;

use super::Actor;
use crate::world::{Client, World};

/// Releases what records of pods hold that Kubernetes has no more. What it knows of pods was true before it looked at the
/// blocks: it works from caches.
pub fn collect() -> Actor {
    Actor::new("collector", |world, actor| async move {
        let client = Client::new(&world, actor);
        let pods = client.pods().await;
        let allocator = Allocator::new(client);
        for block in blocks(&allocator).await {
            let leaks: Vec<Release> = block
                .allocations()
                .filter_map(|held| {
                    let handle = held.attribute.handle()?.to_string();
                    let is_leaked = pods.get(&handle).is_some_and(|pod| !pod.exists);
                    let release = Release {
                        address: held.address,
                        handle: Some(handle),
                        sequence: Some(held.sequence),
                    };
                    is_leaked.then_some(release)
                })
                .collect();
            // What others have changed meanwhile is left to the next look.
            drop(allocator.release_ips(&leaks).await);
        }
    })
}

/// Gives up a block of a node that has stood empty for long.
pub fn give_up_empty(block: IpNet, node: &str) -> Actor {
    let node = node.to_owned();
    Actor::new(format!("gives up {block} of {node}"), move |world: Arc<World>, actor| {
        let node = node.clone();
        async move {
            let allocator = Allocator::new(Client::new(&world, actor));
            drop(allocator.release_affinity(block, &node, InUse::Refuse).await);
        }
    })
}

async fn blocks(allocator: &Allocator<Client>) -> Vec<Block> {
    let Ok(found) = allocator.store().read(&[Query::Blocks(Family::V4)]).await else { return Vec::new() };
    let blocks = found.into_iter().flatten().filter_map(|entry| match entry.record {
        Record::Block(block) => Some(Arc::unwrap_or_clone(block)),
        _ => None,
    });
    blocks.collect()
}
