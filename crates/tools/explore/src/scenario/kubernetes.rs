//! Worlds with the Kubernetes datastore, where each object is written by its own request.

use super::{
    Cluster, LEAK, ONE_BLOCK, Scenario, TWO_BLOCKS, assign, block, by_hand, large, leak, leak_without_handle,
    pod, pod_and_leak, pod_in_unowned, slow, wanting,
};
use crate::actor::Command::{Rebuild, Release, ReleaseAddress, Split};
use crate::actor::{Call, Program, add, again, calipam, del, undone};

const KUBERNETES: Cluster = Cluster { is_kubernetes: true, ..TWO_BLOCKS };

/// A slow call that calipam's plugin serves with an API server.
fn call(node: &str, pod: &str) -> Call {
    slow(node, pod).by(Program::OnKubernetes)
}

pub(super) fn all() -> Vec<Scenario> {
    vec![
        // A leaked address is released on Kubernetes, object by object, and that is undone.
        large("kubernetes-release-and-undo", KUBERNETES, pod_and_leak, || vec![undone(Release)]),
        // Two people release the same on Kubernetes, one of them with the datastore locked.
        large("kubernetes-two-releases", KUBERNETES, leak, || {
            vec![again(Release), calipam(true, &[Release], &[Release])]
        }),
        // A pool is split on Kubernetes, pool by pool, and that is undone. There are no faults, since the objects of a
        // killed split may be deleted after the undo compares them and before it writes.
        large("kubernetes-split-and-undo", KUBERNETES, pod, || vec![undone(Split("pool"))]).up_to(0),
        // A handle is gone, and an address is leaked.
        large(
            "kubernetes-rebuild",
            KUBERNETES,
            |before| {
                pod_and_leak(before);
                before.damage_handle("p");
            },
            || vec![again(Rebuild)],
        ),
        // An address is assigned and taken back on Kubernetes.
        large("kubernetes-assign-and-undo", KUBERNETES, by_hand, || vec![undone(assign())]),
        // Pods of two nodes want an address of one block, by calipam's own client of Kubernetes.
        large("kubernetes-add-beside-add", KUBERNETES, block, || {
            vec![add(wanting(0, call("a", "p"))), add(wanting(0, call("b", "q")))]
        }),
        // A pod starts while the other one of its node stops.
        large("kubernetes-add-beside-del", KUBERNETES, pod, || {
            vec![add(call("a", "q")), del(call("a", "p"))]
        }),
        // The last pod of a block without owner stops while a pod of another node claims the block anew.
        large(
            "kubernetes-claim-beside-del",
            Cluster { is_kubernetes: true, ..ONE_BLOCK },
            pod_in_unowned,
            || vec![add(call("b", "q")), del(call("a", "p"))],
        ),
        // A leaked address is released while a pod wants one.
        large("kubernetes-release-beside-add", KUBERNETES, leak, || {
            vec![again(Release), add(call("a", "p"))]
        }),
        // An address is released by its name while its pod stops.
        large("kubernetes-release-beside-del", KUBERNETES, pod, || {
            vec![again(ReleaseAddress(LEAK)), del(call("a", "p"))]
        }),
        // A block without its handle is repaired while a pod wants an address.
        large("kubernetes-rebuild-beside-add", KUBERNETES, leak_without_handle, || {
            vec![again(Rebuild), add(call("a", "p"))]
        }),
        // A leaked address is released where each list comes in pages of one object, whose revision may be gone.
        large("kubernetes-pages", Cluster { page: 1, ..KUBERNETES }, pod_and_leak, || vec![again(Release)]),
    ]
}
