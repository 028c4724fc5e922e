//! Addresses held by a node other than the one that owns their block.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use crate::claim::{Claim, describe};
use crate::index::Record;
use crate::{Context, Options, Scope};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowedList {
    /// The addresses, ascending.
    pub addresses: Vec<BorrowedAddress>,
    /// The number of allocations that name no node, as before Calico 3.6, and that could be borrowed. Service addresses
    /// belong to no node and do not count.
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
    let mut list = BorrowedList {
        addresses: Vec::new(),
        unknown: 0,
    };
    for Record { block, allocation } in context.index.records() {
        let address = allocation.address;
        let attribute = allocation.attribute;
        let node = attribute.get("node");
        // Owners hold nearly all addresses of their blocks, so an owner's addresses are skipped before their records
        // are decoded.
        if let Some(host) = block.host()
            && node.is_some_and(|node| node == *host)
        {
            continue;
        }
        let is_of_services = matches!(block.owner, Some(BlockOwner::Virtual(_)));
        if is_of_services || !scope.has_network(address.into()) {
            continue;
        }
        let claim = Claim::of(&attribute);
        if matches!(claim, Claim::Cooling | Claim::WindowsReserved | Claim::Service) {
            continue;
        }
        let lends = scope.has_owner(block.owner);
        let Some(node) = node.map(|node| node.to_string()) else {
            if lends {
                list.unknown += 1;
            }
            continue;
        };
        if lends || scope.has_node(&node) {
            let (kind, allocated_to) = describe(&claim, &attribute);
            list.addresses.push(BorrowedAddress {
                address,
                node,
                block: block.key,
                block_owner: block.owner.cloned(),
                kind,
                allocated_to,
            });
        }
    }
    list.addresses
        .sort_by_key(|borrowed| (borrowed.address, borrowed.block));
    list
}
