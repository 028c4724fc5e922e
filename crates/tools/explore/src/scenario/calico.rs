//! Worlds in which Calico's own plugin and collector write at the same time as calipam's.

use super::given::Given::{Block, Leak, NoHandle, NoNode, Pod};
use super::{
    BLOCK, BLOCK_AND_BY_HAND, Cluster, FIRST, LEAK, LEAKED, ONE, POD, POD_AND_LEAK, POD_AND_UNCOUNTED,
    Scenario, TWO, UNCOUNTED, UNOWNED, assign, large, plain, slow, wanting,
};
use crate::actor::Command::{Rebuild, Release, ReleaseAddress, Split, Undo};
use crate::actor::{Call, Program, add, again, calipam, collect, del, release_empty, undone};

/// A call for a pod that Calico's plugin serves.
fn calico(pod: &str) -> Call {
    Call {
        program: Program::Calico,
        ..pod.into()
    }
}

/// A slow call that Calico's plugin serves.
fn slow_calico(pod: &str) -> Call {
    Call {
        program: Program::Calico,
        ..slow(pod)
    }
}

pub(super) fn all() -> Vec<Scenario> {
    vec![
        // Pods of two nodes, one with Calico's plugin, want an address, and one block can be had.
        plain("calico-add-beside-add", ONE, &[], || {
            vec![add(calico("a5/p")), add("b55/q")]
        }),
        // Both plugins are called on a node, as while one takes the place of the other.
        plain("calico-add-beside-add-one-node", TWO, &[], || {
            vec![add(calico("a5/p")), add("a5/q")]
        }),
        // Two pods ask for the same address, one of Calico's plugin.
        plain("calico-same-address", TWO, &[], || {
            vec![add(wanting(0, calico("a5/p"))), add(wanting(0, "b55/q"))]
        }),
        // A pod of Calico's plugin borrows from a block that has no owner while its last pod stops.
        plain("calico-add-beside-del", ONE, UNOWNED, || {
            vec![add(calico("b55/q")), del("a5/p")]
        }),
        // A pod borrows from a block that has no owner while Calico's plugin stops its last pod.
        plain("add-beside-calico-del", ONE, UNOWNED, || {
            vec![add("b55/q"), del(calico("a5/p"))]
        }),
        // Calico's plugin takes over an empty block whose owner wants an address from it.
        large("calico-reclaim-beside-add", ONE, BLOCK, || {
            vec![add("a5/p"), add(calico("b55/q"))]
        }),
        // A node takes over an empty block whose owner wants an address from it by Calico's plugin.
        large("reclaim-beside-calico-add", ONE, BLOCK, || {
            vec![add(calico("a5/p")), add("b55/q")]
        }),
        // A pod of Calico's plugin starts while the empty block of its node is given up.
        large("calico-add-beside-give-up", TWO, BLOCK, || {
            vec![add(calico("a5/p")), release_empty(FIRST, "a5")]
        }),
        // Both plugins stop one pod.
        plain("calico-del-twice", ONE, POD, || {
            vec![del(calico("a5/p")), del("a5/p")]
        }),
        // A node is gone: the collector takes its blocks while a pod of another node wants an address.
        large(
            "collector-of-a-gone-node",
            ONE,
            &[Leak("b55/gone"), NoNode("b55")],
            || vec![collect(), add("a5/p")],
        ),
        // The collector takes the second, empty block of a node that wants an address.
        large(
            "collector-of-an-empty-block",
            TWO,
            &[
                Pod("a5/w"),
                Pod("a5/x"),
                Pod("a5/y"),
                Pod("a5/z"),
                Block("10.0.0.4/30", "a5"),
            ],
            || vec![collect(), add("a5/p")],
        ),
        // The collector releases what a gone pod had while another pod stops, and addresses cool down.
        large(
            "collector-beside-cooldown",
            Cluster { cooldown: 30, ..ONE },
            POD_AND_LEAK,
            || vec![collect(), del("a5/p")],
        ),
        // A leaked address is released while a pod of Calico's plugin asks for it.
        plain("calico-add-beside-release", ONE, LEAKED, || {
            vec![again(Release), add(wanting(0, slow_calico("a5/p")))]
        }),
        // An address is released by its name while Calico's plugin stops its pod.
        plain("calico-del-beside-release", ONE, POD, || {
            vec![again(ReleaseAddress(LEAK)), del(slow_calico("a5/p"))]
        }),
        // A block without its handle is repaired while a pod of Calico's plugin wants an address.
        large("calico-add-beside-rebuild", ONE, UNCOUNTED, || {
            vec![again(Rebuild), add(slow_calico("a5/p"))]
        }),
        // A handle is repaired while Calico's plugin, which needs it, stops the pod.
        plain(
            "calico-del-beside-rebuild",
            ONE,
            &[Pod("a5/p"), NoHandle("a5/p")],
            || vec![again(Rebuild), del(slow_calico("a5/p"))],
        ),
        // An address is assigned that a pod of Calico's plugin asks for.
        plain("calico-add-beside-assign", ONE, BLOCK_AND_BY_HAND, || {
            vec![
                calipam(false, &[assign()], &[Undo]),
                add(wanting(0, slow_calico("a5/p"))),
            ]
        }),
        // A pool is split and made whole while a pod of Calico's plugin wants an address.
        large("calico-add-beside-split", TWO, &[], || {
            vec![undone(Split("pool")), add(slow_calico("a5/p"))]
        }),
        // A leaked address without its handle is released by the collector and by a rebuild.
        plain("collector-beside-rebuild", ONE, POD_AND_UNCOUNTED, || {
            vec![again(Rebuild), collect()]
        }),
        // A release is undone while the collector looks.
        large("collector-beside-undo", ONE, LEAKED, || {
            vec![calipam(true, &[Release, Undo], &[Undo]), collect()]
        }),
    ]
}
