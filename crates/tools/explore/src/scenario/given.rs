//! The states in which the actors start.

use calipam_assign::{Allocator, InUse, Record};
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::key::RESOURCE_PREFIX;
use calipam_testkit::operator::claim_affinity;

use super::{call, wanting};
use crate::actor::{Call, cidr, give, served};
use crate::world::{World, at_once};

/// A step towards the state in which the actors start. Nodes, pods and handles are named, blocks have their CIDRs.
pub(super) enum Given {
    /// A pod of a node has an IPv4 address.
    Pod(&'static str, &'static str),
    /// A pod of a node has an address of each family.
    Both(&'static str, &'static str),
    /// A pod of a node has the address 10.0.0.N.
    At(u8, &'static str, &'static str),
    /// The call for a pod was served.
    Served(fn() -> Call),
    /// A pod of a node was deleted, and its address is still recorded.
    Leak(&'static str, &'static str),
    /// A handle has no pod any more. Addresses may be recorded for it later.
    Gone(&'static str),
    /// The handle of a pod is missing.
    NoHandle(&'static str),
    /// A key that records a pod's addresses is missing.
    NoValue(&'static str, &'static str),
    /// A node was removed.
    NoNode(&'static str),
    /// A block belongs to a node.
    Block(&'static str, &'static str),
    /// A node has the pending affinity of an interrupted claim. It may already own the block.
    Pending(&'static str, &'static str),
    /// A node has given up a block, even if its addresses are in use.
    Unowned(&'static str, &'static str),
}

impl Given {
    pub(super) fn add_to(&self, world: &World) {
        let (data, truth) = (world.data(), &world.truth);
        let serve = |call: &Call| {
            truth.begin(&call.handle(), &call.node);
            give(world, call, &served(data, call));
        };
        let damage = |pod: &str, path: &str| {
            data.remove(path);
            truth.update(&call("", pod).handle(), |pod| pod.is_damaged = true);
        };
        let allocator = Allocator::new(data);
        match *self {
            Self::Pod(node, pod) => serve(&call(node, pod)),
            Self::Both(node, pod) => serve(&Call::of_both(node, pod)),
            Self::At(last, node, pod) => serve(&wanting(last, call(node, pod))),
            Self::Served(call) => serve(&call()),
            Self::Leak(node, pod) => {
                let call = call(node, pod);
                serve(&call);
                data.remove(&call.endpoint());
                truth.remove_pod(&call.handle());
            }
            Self::Gone(handle) => {
                truth.begin(handle, "a");
                truth.remove_pod(handle);
            }
            Self::NoHandle(pod) => {
                damage(pod, &format!("/calico/ipam/v2/handle/{}", call("", pod).handle()));
            }
            Self::NoValue(pod, path) => damage(pod, path),
            Self::NoNode(node) => {
                data.remove(&format!("{RESOURCE_PREFIX}nodes/{node}"));
            }
            Self::Block(block, node) => {
                drop(at_once(claim_affinity(&allocator, cidr(block), AffinityType::Host, node)));
            }
            Self::Pending(block, node) => {
                let key = AffinityKey { kind: AffinityType::Host, node: node.to_owned(), cidr: cidr(block) };
                let record = Record::Affinity(Affinity::new(key, AffinityState::Pending));
                data.put(&record.key().to_string(), record.encode().unwrap_or_default());
            }
            Self::Unowned(block, node) => {
                drop(at_once(allocator.release_affinity(cidr(block), node, InUse::Release)));
            }
        }
    }
}
