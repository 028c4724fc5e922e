//! GC: releases the addresses of containers that no longer exist on a node.

use std::collections::BTreeSet;

use calipam_model::block::Block;
use calipam_model::handle::clean_id;

use super::{Failure, Host, OPERATION, Plugin};
use crate::error::Error;
use crate::family::Family;
use crate::record::Record;
use crate::store::{Query, Store};

/// A call of GC for a node.
#[derive(Clone, Debug)]
pub struct Gc {
    pub node: String,
    pub network: String,
    /// The IDs of containers that are alive.
    pub valid: BTreeSet<String>,
}

impl<S: Store, H: Host> Plugin<'_, S, H> {
    /// Releases the node's handles `<network>.<container>` whose containers are not alive. Does not touch the handles
    /// of machines, other nodes and other networks, or a handle whose container ID contains a dot, since it is then
    /// uncertain where the network name ends.
    ///
    /// # Errors
    /// If the blocks cannot be read, a handle cannot be released (the others still are), or time runs out.
    pub async fn gc(&self, gc: &Gc) -> Result<(), Failure<H::Error>> {
        // Reading all blocks of a large cluster takes a long time, so it is done without the lock.
        let stale = self.within(OPERATION, self.stale(gc)).await??;
        let _held = self.host.lock().await;
        self.within(OPERATION, async {
            let mut result = Ok(());
            for handle in stale {
                result = result.and(self.release_handle(&handle, &gc.node, &[]).await);
            }
            result
        })
        .await??;
        Ok(())
    }

    /// The handles of this network and node whose containers are not alive.
    async fn stale(&self, gc: &Gc) -> Result<BTreeSet<String>, Error> {
        let found = self.allocator.read(Family::BOTH.map(Query::Blocks)).await?;
        let mut stale = BTreeSet::new();
        for entry in found.into_iter().flatten() {
            if let Record::Block(block) = entry.record {
                stale.extend(gc.stale_in(&block));
            }
        }
        Ok(stale)
    }
}

impl Gc {
    /// Returns the IDs of the handles in a block whose containers are not alive. Leaves out the handles of other nodes
    /// and networks. An ID can occur several times.
    fn stale_in(&self, block: &Block) -> Vec<String> {
        let mut stale = Vec::new();
        for record in block.attributes() {
            let is_on_node = record.get("node").is_some_and(|node| node == *self.node);
            if !is_on_node {
                continue;
            }
            let Some(handle) = record.handle() else {
                continue;
            };
            let handle = handle.to_string();
            let id = clean_id(&handle);
            if let Some(container) = self.container_of(id)
                && !self.valid.contains(container)
            {
                stale.push(id.to_owned());
            }
        }
        stale
    }

    /// The container ID in a handle; `None` if the ID is uncertain, or the handle belongs to another network.
    fn container_of<'h>(&self, handle: &'h str) -> Option<&'h str> {
        let container = handle.strip_prefix(&self.network)?.strip_prefix('.')?;
        if container.is_empty() || container.contains('.') {
            return None;
        }
        Some(container)
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::attributes::Attribute;

    use super::*;

    #[test]
    fn only_containers_of_this_node_and_network_are_stale() {
        let mut block =
            Block::new("10.0.0.0/28".parse().unwrap(), None, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let held = [
            ("net.gone", "a"),
            ("net.alive", "a"),
            ("net.elsewhere", "b"),
            ("net.vmi.ns.vm", "a"),
            ("net.other.gone", "a"),
            ("other.gone", "a"),
            ("net.", "a"),
            ("ipip-tunnel-addr-a", "a"),
            ("net.migrated\r\neth0", "a"),
        ];
        for (ordinal, (handle, node)) in held.into_iter().enumerate() {
            let record = Attribute::new(Some(handle), [("node", node)]);
            block
                .update(|update| update.assign(ordinal as u32, &record))
                .unwrap();
        }
        let valid = BTreeSet::from(["alive".to_owned()]);
        let gc = Gc {
            node: "a".into(),
            network: "net".into(),
            valid,
        };
        assert_eq!(gc.stale_in(&block), ["net.gone", "net.migrated"]);
    }
}
