//! The collector of kube-controllers (facts 3.12, 3.17).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_assign::Release;
use calipam_model::IpNet;
use calipam_model::block::{Allocation, Block, BlockOwner};

use super::{Calico, Result};
use crate::truth::Pod;

/// The contents of the collector's caches. Pods and nodes were read before blocks.
struct Look {
    pods: BTreeMap<String, Pod>,
    nodes: BTreeSet<String>,
    blocks: Vec<Block>,
    /// False if the datastore is locked.
    is_ready: bool,
}

/// An address under a handle, with the sequence number of its allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Assignment {
    handle: String,
    address: IpAddr,
    sequence: u64,
    node: String,
    /// True if the address belongs to a pod or a tunnel. The collector ignores all other addresses.
    is_known: bool,
}

impl Assignment {
    fn of(found: Allocation<'_>) -> Option<Self> {
        let record = found.attribute.to_attribute();
        let owner = record.owner.unwrap_or_default();
        let text = |key: &str| owner.get(key).cloned().unwrap_or_default();
        Some(Self {
            handle: record.handle?,
            address: found.address,
            sequence: found.sequence,
            node: text("node"),
            is_known: !text("pod").is_empty() && !text("namespace").is_empty(),
        })
    }

    /// True if the pod has the address, or if its object contains no addresses yet.
    fn is_used_by(&self, pod: Option<&Pod>) -> bool {
        let has = |pod: &Pod| pod.addresses.is_empty() || pod.addresses.contains(&self.address);
        !self.is_known || pod.is_some_and(|pod| pod.exists && has(pod))
    }
}

impl Look {
    fn held(&self) -> impl Iterator<Item = Assignment> {
        self.blocks
            .iter()
            .flat_map(Block::allocations)
            .filter_map(Assignment::of)
    }

    fn leaks(&self) -> BTreeSet<Assignment> {
        self.held()
            .filter(|held| !held.is_used_by(self.pods.get(&held.handle)))
            .collect()
    }

    /// The empty blocks of nodes with more than one block.
    fn empty(&self) -> BTreeMap<IpNet, String> {
        let host = |block: &Block| block.owner().and_then(BlockOwner::host).map(str::to_owned);
        let has_more = |node: &String| {
            self.blocks
                .iter()
                .filter(|block| host(block).as_ref() == Some(node))
                .count()
                > 1
        };
        let empty = self
            .blocks
            .iter()
            .filter(|block| block.allocations().next().is_none());
        let owned = empty.filter_map(|block| Some((block.cidr(), host(block).filter(has_more)?)));
        owned.collect()
    }

    /// Deleted nodes that still have addresses or blocks.
    fn gone_nodes(&self) -> BTreeSet<String> {
        let owners = self
            .blocks
            .iter()
            .filter_map(|block| block.owner().and_then(BlockOwner::host));
        let nodes = owners.map(str::to_owned).chain(self.held().map(|held| held.node));
        nodes
            .filter(|node| !node.is_empty() && !self.nodes.contains(node))
            .collect()
    }
}

impl Calico {
    /// Runs one round of the collector, from the first read that finds a leak to the end of the grace period. The next
    /// round handles errors.
    pub(crate) async fn collect(&self) -> Result<()> {
        let first = self.look().await?;
        if first.leaks().is_empty() && first.empty().is_empty() && first.gone_nodes().is_empty() {
            return Ok(());
        }
        let second = self.look().await?;
        if !second.is_ready {
            return Ok(());
        }
        let confirmed = self.confirmed(&first, &second).await?;
        // The collector releases the addresses of a handle only if all of them have leaked.
        let is_whole = |handle: &String| {
            second
                .held()
                .filter(|held| held.handle == *handle)
                .all(|held| confirmed.contains(&held))
        };
        let request = |held: &Assignment| Release {
            address: held.address,
            handle: Some(held.handle.clone()),
            sequence: Some(held.sequence),
        };
        let leaks: Vec<Release> = confirmed
            .iter()
            .filter(|held| is_whole(&held.handle))
            .map(request)
            .collect();
        if !leaks.is_empty() {
            self.release_ips(&leaks).await?;
        }

        let before = first.empty();
        // Releases only one block at a time, so that the node keeps one.
        if let Some((block, node)) = second
            .empty()
            .into_iter()
            .find(|(block, _)| before.contains_key(block))
        {
            let _ = self.release_empty(block, &node).await;
        }
        for node in second.gone_nodes() {
            let mut of_node = second.held().filter(|held| held.node == node);
            if of_node.all(|held| confirmed.contains(&held)) {
                let _ = self.release_all(&node).await;
            }
        }
        Ok(())
    }

    /// The leaks that both reads found, and the leaks of deleted nodes. If a leak's node exists, its pod is read once
    /// more.
    async fn confirmed(&self, first: &Look, second: &Look) -> Result<BTreeSet<Assignment>> {
        let candidates = first.leaks();
        let mut confirmed = BTreeSet::new();
        for held in second.leaks() {
            let is_node_gone = !second.nodes.contains(&held.node);
            if !is_node_gone && !candidates.contains(&held) {
                continue;
            }
            if !is_node_gone && held.is_used_by(self.store.pod(&held.handle).await?.as_ref()) {
                continue;
            }
            confirmed.insert(held);
        }
        Ok(confirmed)
    }

    async fn look(&self) -> Result<Look> {
        let (pods, nodes) = self.store.cluster().await?;
        let blocks = self
            .blocks()
            .await?
            .into_iter()
            .map(|block| block.value)
            .collect();
        let is_ready = self.store.is_ready().await?;
        Ok(Look {
            pods,
            nodes,
            blocks,
            is_ready,
        })
    }
}
