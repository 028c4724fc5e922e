//! Addresses held by a node other than the one that owns their block.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use crate::claim::{Claim, describe};
use crate::{Context, Options, Scope};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowedList {
    /// The addresses, block by block, ascending within each.
    pub addresses: Vec<BorrowedAddress>,
    /// The number of allocations that name no node and could be borrowed (before Calico 3.6). Service addresses belong
    /// to no node and do not count.
    pub unknown: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowedAddress {
    pub address: IpAddr,
    /// The node that holds the address.
    pub node: String,
    pub block: IpNet,
    /// The owner of the block; `None` if it has none.
    pub block_owner: Option<BlockOwner>,
    /// `pod`, `virtual machine`, `tunnel`, or `other`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `namespace/name`, the kind of tunnel, or the handle.
    pub allocated_to: String,
}

/// Returns the addresses that a node in the scope borrows or lends. A block without an owner lends to everybody.
pub fn borrowed(snapshot: &Snapshot, scope: &Scope) -> BorrowedList {
    let context = Context::new(snapshot, &Options::default());
    let mut list = BorrowedList { addresses: Vec::new(), unknown: 0 };
    for (indexed, block) in context.index.blocks.iter().filter_map(|b| Some((b, b.usable?))) {
        if matches!(indexed.owner, Some(BlockOwner::Virtual(_))) {
            continue;
        }
        let host = indexed.owner.and_then(|o| o.host());
        let lends = scope.has_owner(indexed.owner);
        for allocation in
            block.allocations().filter(|allocation| scope.has_network(allocation.address.into()))
        {
            let attribute = allocation.attribute;
            let node = attribute.get("node");
            // Owners hold nearly all addresses of their blocks, so these are skipped before their records are read.
            if node.is_some_and(|node| host.is_some_and(|host| node == *host)) {
                continue;
            }
            let claim = Claim::of(&attribute);
            if matches!(claim, Claim::Cooling | Claim::WindowsReserved | Claim::Service) {
                continue;
            }
            let Some(node) = node else {
                list.unknown += usize::from(lends);
                continue;
            };
            let node = node.to_string();
            if !(lends || scope.has_node(&node)) {
                continue;
            }
            let (kind, allocated_to) = describe(&claim, &attribute);
            list.addresses.push(BorrowedAddress {
                address: allocation.address,
                node,
                block: indexed.key,
                block_owner: indexed.owner.cloned(),
                kind,
                allocated_to,
            });
        }
    }
    list
}
