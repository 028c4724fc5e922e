//! Worlds with the Kubernetes datastore, where each object is written by its own request.

use super::given::Given::{Leak, NoHandle, Pod};
use super::{
    BLOCK, BY_HAND_ONLY, Cluster, LEAK, LEAKED, ONE, POD, POD_AND_LEAK, Scenario, TWO, UNCOUNTED, UNOWNED,
    assign, large, slow, wanting,
};
use crate::actor::Command::{Rebuild, Release, ReleaseAddress, Split};
use crate::actor::{Call, Program, add, again, calipam, del, undone};

const KUBERNETES: Cluster = Cluster { page: Some(0), ..TWO };

/// A slow call that calipam's plugin serves with an API server.
fn call(pod: &str) -> Call {
    Call {
        program: Program::OnKubernetes,
        ..slow(pod)
    }
}

pub(super) fn all() -> Vec<Scenario> {
    vec![
        // A leaked address is released on Kubernetes, object by object, and that is undone.
        large("kubernetes-release-and-undo", KUBERNETES, POD_AND_LEAK, || {
            vec![undone(Release)]
        }),
        // Two people release the same on Kubernetes, one of them with the datastore locked.
        large("kubernetes-two-releases", KUBERNETES, LEAKED, || {
            vec![again(Release), calipam(true, &[Release], &[Release])]
        }),
        // A pool is split on Kubernetes, pool by pool, and that is undone. There are no faults, since the objects of a
        // killed split may be deleted after the undo compares them and before it writes.
        large("kubernetes-split-and-undo", KUBERNETES, POD, || {
            vec![undone(Split("pool"))]
        })
        .up_to(0),
        // A handle is gone, and an address is leaked.
        large(
            "kubernetes-rebuild",
            KUBERNETES,
            &[Pod("a5/p"), Leak("a5/gone"), NoHandle("a5/p")],
            || vec![again(Rebuild)],
        ),
        // An address is assigned and taken back on Kubernetes.
        large("kubernetes-assign-and-undo", KUBERNETES, BY_HAND_ONLY, || {
            vec![undone(assign())]
        }),
        // Pods of two nodes want an address of one block, by calipam's own client of Kubernetes.
        large("kubernetes-add-beside-add", KUBERNETES, BLOCK, || {
            vec![add(wanting(0, call("a5/p"))), add(wanting(0, call("b55/q")))]
        }),
        // A pod starts while the other one of its node stops.
        large("kubernetes-add-beside-del", KUBERNETES, POD, || {
            vec![add(call("a5/q")), del(call("a5/p"))]
        }),
        // The last pod of a block without an owner stops while a pod of another node claims the block.
        large(
            "kubernetes-claim-beside-del",
            Cluster { page: Some(0), ..ONE },
            UNOWNED,
            || vec![add(call("b55/q")), del(call("a5/p"))],
        ),
        // A leaked address is released while a pod wants one.
        large("kubernetes-release-beside-add", KUBERNETES, LEAKED, || {
            vec![again(Release), add(call("a5/p"))]
        }),
        // An address is released by its name while its pod stops.
        large("kubernetes-release-beside-del", KUBERNETES, POD, || {
            vec![again(ReleaseAddress(LEAK)), del(call("a5/p"))]
        }),
        // A block without its handle is repaired while a pod wants an address.
        large("kubernetes-rebuild-beside-add", KUBERNETES, UNCOUNTED, || {
            vec![again(Rebuild), add(call("a5/p"))]
        }),
        // A leaked address is released where each list comes in pages of one object, whose revision may be gone.
        large(
            "kubernetes-pages",
            Cluster {
                page: Some(1),
                ..KUBERNETES
            },
            POD_AND_LEAK,
            || vec![again(Release)],
        ),
    ]
}
