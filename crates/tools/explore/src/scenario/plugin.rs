//! Worlds in which the plugin runs, or blocks are released.

use super::given::Given::{self, Block, Leak, NoHandle, Pending, Pod};
use super::{BLOCK, Cluster, FIRST, FOUR, ONE, POD, Scenario, TWO, UNOWNED, call, large, plain, wanting};
use crate::actor::{Actor, Call, add, collect, del, disown, gc, release_empty};

const STRICT: Cluster = Cluster { strict_affinity: true, ..TWO };

/// Starts a pod on each of two nodes.
fn two_pods() -> Vec<Actor> {
    vec![add(call("a", "p")), add(call("b", "q"))]
}

/// Starts a pod on each of three nodes.
fn three_pods() -> Vec<Actor> {
    vec![add(call("a", "p")), add(call("b", "q")), add(call("c", "r"))]
}

/// A node has begun to claim a block, which belongs to another node by now.
const STALE: &[Given] = &[Block(FIRST, "b"), Pending(FIRST, "a")];

pub(super) fn all() -> Vec<Scenario> {
    vec![
        // A pod wants an address, and no block is there.
        plain("one-add", ONE, &[], || vec![add(call("a", "p"))]),
        // A pod wants an address of each family, and there is no IPv6 pool.
        plain("two-families", ONE, &[], || vec![add(Call::of_both("a", "p"))]),
        // Two pods of a node want an address, and no block is there.
        plain("two-adds-one-node", TWO, &[], || vec![add(call("a", "p")), add(call("a", "q"))]),
        // Pods of two nodes want an address, and one block can be had.
        plain("two-adds-one-block", ONE, &[], two_pods),
        // Two pods ask for the same address.
        plain("same-address", TWO, &[], || {
            vec![add(wanting(1, call("a", "p"))), add(wanting(1, call("b", "q")))]
        }),
        // Two pods ask for two addresses of a block.
        large("two-addresses", ONE, BLOCK, || {
            vec![add(wanting(1, call("a", "p"))), add(wanting(2, call("b", "q")))]
        }),
        // A pod starts while the only other one of its node stops.
        plain("add-beside-del", TWO, POD, || vec![add(call("a", "q")), del(call("a", "p"))]),
        // A pod borrows from a block that has no owner while its last pod stops.
        plain("borrow-beside-del", ONE, UNOWNED, || vec![add(call("b", "q")), del(call("a", "p"))]),
        // A pod starts while the empty block of its node is given up.
        large("add-beside-give-up", TWO, BLOCK, || vec![add(call("a", "p")), release_empty(FIRST, "a")]),
        // A pod of another node claims the block that is given up.
        plain("claim-beside-give-up", ONE, BLOCK, || vec![add(call("b", "p")), release_empty(FIRST, "a")]),
        // A node takes over an empty block whose owner wants an address from it.
        plain("reclaim-beside-add", ONE, BLOCK, two_pods),
        // The last pod of a block without an owner stops.
        plain("del-of-the-last", ONE, UNOWNED, || vec![del(call("a", "p"))]),
        // Two DELs of one pod.
        plain("del-twice", ONE, POD, || vec![del(call("a", "p")), del(call("a", "p"))]),
        // DEL of a pod whose handle is gone, while another pod of its node starts.
        plain("del-without-handle", ONE, &[Pod("a", "w"), Pod("a", "p"), NoHandle("p")], || {
            vec![del(call("a", "p")), add(call("a", "q"))]
        }),
        // GC of a node on which a pod starts and another is gone.
        plain("gc-beside-add", ONE, &[Pod("a", "gone")], || {
            vec![del(call("a", "gone")), gc("a", &["p"]), add(call("a", "p"))]
        }),
        // GC frees what a gone pod had beside one that runs, while a third starts on another node.
        large("gc-of-a-leak", ONE, &[Pod("a", "w"), Leak("a", "gone")], || {
            vec![gc("a", &["w"]), add(call("b", "p"))]
        }),
        // The collector releases what a gone pod had while another starts.
        large("collector-beside-add", ONE, &[Pod("a", "gone")], || {
            vec![del(call("a", "gone")), collect(), add(call("a", "p"))]
        }),
        // A node has begun to claim a block that is another's by now.
        plain("stale-affinity", TWO, STALE, || vec![add(call("a", "p")), release_empty(FIRST, "b")]),
        // A node gives up a block that is another's by now, whose pod wants an address from it.
        plain("give-up-of-another", TWO, STALE, || vec![release_empty(FIRST, "a"), add(call("b", "p"))]),
        // Two calls on different nodes count in one handle, whose number of addresses has no limit.
        plain("one-handle", TWO, &[], || vec![add(call("a", "p")), add(call("b", "p"))]).without_faults(),
        // Two calls count in a handle that is there.
        plain("one-handle-again", TWO, &[Pod("c", "p")], || vec![add(call("a", "p")), add(call("b", "p"))])
            .without_faults(),
        // Two DELs of a handle that has addresses in two blocks.
        large("del-twice-of-two", TWO, &[Pod("a", "p"), Pod("b", "p")], || {
            vec![del(call("a", "p")), del(call("b", "p"))]
        }),
        // Pods of three nodes want an address, and two blocks can be had.
        large("three-adds", TWO, &[], three_pods),
        // Pods of three nodes want an address, and blocks are not shared.
        large("strict-affinity", STRICT, &[], three_pods),
        // A pod starts while the block of its node, in which others run, is given up, and blocks are not shared.
        large(
            "strict-affinity-beside-give-up",
            Cluster { strict_affinity: true, ..ONE },
            &[Pod("a", "w")],
            || vec![add(call("a", "p")), disown(FIRST, "a")],
        ),
        // An address cools down while another pod wants one.
        plain(
            "cooldown",
            Cluster { cooldown: 30, ..ONE },
            &[Pod("a", "p"), Pod("a", "x"), Pod("a", "y"), Pod("a", "z")],
            || vec![del(call("a", "p")), add(call("a", "q"))],
        )
        .with_jumps(),
        // A block was claimed a moment ago by a node that has not used it yet, and clocks jump.
        large("reclaim-in-time", ONE, &[], two_pods).with_jumps(),
        // Pods of two nodes on Kubernetes, which answers each read at its own time.
        plain("one-by-one", ONE, &[], || {
            let call = |node, pod| Call { one_by_one: true, ..call(node, pod) };
            vec![add(call("a", "p")), add(call("b", "q"))]
        }),
        // Pods of three nodes come and go, a collector and a node that loses its blocks.
        large("large", FOUR, &[Pod("a", "p1"), Pod("b", "p2"), Block("10.0.0.8/30", "c")], || {
            vec![
                add(call("a", "q1")),
                add(call("b", "q2")),
                add(call("c", "q3")),
                del(call("a", "p1")),
                del(call("b", "p2")),
                release_empty("10.0.0.8/30", "c"),
                collect(),
            ]
        }),
    ]
}
