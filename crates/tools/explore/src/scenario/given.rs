//! The states in which the actors start.

use calipam_assign::{Allocator, InUse, Record};
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::key::RESOURCE_PREFIX;
use calipam_testkit::operator::claim_affinity;
use futures_util::FutureExt as _;

use super::wanting;
use crate::actor::{Call, cidr, give, served};
use crate::world::World;

/// A step towards the state in which the actors start. Nodes and handles are named, pods are named after their nodes as
/// in `a5/p`, and blocks have their CIDRs.
pub(super) enum Given {
    /// A pod has an IPv4 address.
    Pod(&'static str),
    /// A pod has an address of each family.
    Both(&'static str),
    /// A pod has the address 10.0.0.N.
    At(u8, &'static str),
    /// The call for a pod was served.
    Served(fn() -> Call),
    /// A pod was deleted, and its address is still recorded.
    Leak(&'static str),
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
        let data = &world.data;
        let truth = &world.truth;
        let allocator = Allocator::new(&world.data);
        let serve = |call: Call| {
            truth.begin(&call.handle(), &call.node);
            give(world, &call, &served(data, &call));
            call
        };
        let damage = |pod: &str, path: &str| {
            data.remove(path);
            truth.update(&Call::from(pod).handle(), |pod| pod.is_damaged = true);
        };
        match *self {
            Self::Pod(pod) => drop(serve(pod.into())),
            Self::Both(pod) => drop(serve(Call::of_both(pod))),
            Self::At(last, pod) => drop(serve(wanting(last, pod))),
            Self::Served(call) => drop(serve(call())),
            Self::Leak(pod) => {
                let call = serve(pod.into());
                data.remove(&call.endpoint());
                truth.remove_pod(&call.handle());
            }
            Self::Gone(handle) => {
                truth.begin(handle, "a5");
                truth.remove_pod(handle);
            }
            Self::NoHandle(pod) => {
                damage(
                    pod,
                    &format!("/calico/ipam/v2/handle/{}", Call::from(pod).handle()),
                );
            }
            Self::NoValue(pod, path) => damage(pod, path),
            Self::NoNode(node) => drop(data.remove(&format!("{RESOURCE_PREFIX}nodes/{node}"))),
            Self::Block(block, node) => {
                drop(claim_affinity(&allocator, cidr(block), AffinityType::Host, node).now_or_never());
            }
            Self::Pending(block, node) => {
                let key = AffinityKey {
                    kind: AffinityType::Host,
                    node: node.to_owned(),
                    cidr: cidr(block),
                };
                let record = Record::Affinity(Affinity::new(key, AffinityState::Pending));
                data.put(&record.key().to_string(), record.encode().unwrap_or_default());
            }
            Self::Unowned(block, node) => {
                drop(
                    allocator
                        .release_affinity(cidr(block), node, InUse::Release)
                        .now_or_never(),
                );
            }
        }
    }
}
