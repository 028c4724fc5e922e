//! Worlds in which the plugin runs, or blocks are released. They promise nothing about undo and the lock of the
//! datastore, so their end is checked differently from that of commands.

use super::given::Given::{self, Block, Leak, NoHandle, Pending, Pod, Served};
use super::{
    ANY, BLOCK, Cluster, FIRST, FOUR, Faults, ONE, POD, Scenario, TWO, UNOWNED, large, plain, wanting,
};
use crate::actor::{Actor, Call, Program, add, claim_again, collect, del, disown, gc, release_empty};
use crate::invariants;

const SECOND: &str = "10.0.0.4/30";
const STRICT: Cluster = Cluster { strict_affinity: true, ..TWO };

/// Starts a pod on each of two nodes.
fn two_pods() -> Vec<Actor> {
    vec![add("a/p"), add("b/q")]
}

/// Starts a pod on each of three nodes.
fn three_pods() -> Vec<Actor> {
    vec![add("a/p"), add("b/q"), add("c/r")]
}

/// A node has begun to claim a block, which belongs to another node by now.
const STALE: &[Given] = &[Block(FIRST, "b"), Pending(FIRST, "a")];

/// A call for a pod of another CNI network.
fn of_other_network(pod: &str) -> Call {
    Call { network: "other-network", ..pod.into() }
}

/// A call for a pod on a node that keeps notes.
fn noting(pod: &str) -> Call {
    Call { keeps_notes: true, ..pod.into() }
}

/// A full block.
const FULL: &[Given] = &[Pod("a/w"), Pod("a/x"), Pod("a/y"), Pod("a/z")];

pub(super) fn all() -> Vec<Scenario> {
    let scenarios = [calls(), guards()].concat().into_iter();
    let scenarios = scenarios.map(|scenario| Scenario { end: invariants::at_the_end, ..scenario });
    scenarios.chain(notes()).collect()
}

fn calls() -> Vec<Scenario> {
    vec![
        // A pod wants an address, and no block is there.
        plain("one-add", ONE, &[], || vec![add("a/p")]),
        // A pod wants an address of each family, and there is no IPv6 pool.
        plain("two-families", ONE, &[], || vec![add(Call::of_both("a/p"))]),
        // Two pods of a node want an address, and no block is there.
        plain("two-adds-one-node", TWO, &[], || vec![add("a/p"), add("a/q")]),
        // Pods of two nodes want an address, and one block can be had.
        plain("two-adds-one-block", ONE, &[], two_pods),
        // Two pods ask for the same address.
        plain("same-address", TWO, &[], || vec![add(wanting(1, "a/p")), add(wanting(1, "b/q"))]),
        // Two pods ask for two addresses of a block.
        large("two-addresses", ONE, BLOCK, || vec![add(wanting(1, "a/p")), add(wanting(2, "b/q"))]),
        // A pod starts while the only other one of its node stops.
        plain("add-beside-del", TWO, POD, || vec![add("a/q"), del("a/p")]),
        // A pod borrows from a block that has no owner while its last pod stops.
        plain("borrow-beside-del", ONE, UNOWNED, || vec![add("b/q"), del("a/p")]),
        // A pod starts while the empty block of its node is given up.
        large("add-beside-give-up", TWO, BLOCK, || vec![add("a/p"), release_empty(FIRST, "a")]),
        // A pod of another node claims the block that is given up.
        plain("claim-beside-give-up", ONE, BLOCK, || vec![add("b/p"), release_empty(FIRST, "a")]),
        // A node takes over an empty block whose owner wants an address from it.
        plain("reclaim-beside-add", ONE, BLOCK, two_pods),
        // The last pod of a block without an owner stops.
        plain("del-of-the-last", ONE, UNOWNED, || vec![del("a/p")]),
        // Two DELs of one pod.
        plain("del-twice", ONE, POD, || vec![del("a/p"), del("a/p")]),
        // DEL of a pod whose handle is gone, while another pod of its node starts.
        plain("del-without-handle", ONE, &[Pod("a/w"), Pod("a/p"), NoHandle("a/p")], || {
            vec![del("a/p"), add("a/q")]
        }),
        // GC of a node on which a pod starts and another is gone.
        plain("gc-beside-add", ONE, &[Pod("a/gone")], || vec![del("a/gone"), gc("a", &["p"]), add("a/p")]),
        // GC frees what a gone pod had beside one that runs, while a third starts on another node.
        large("gc-of-a-leak", ONE, &[Pod("a/w"), Leak("a/gone")], || vec![gc("a", &["w"]), add("b/p")]),
        // The collector releases what a gone pod had while another starts.
        large("collector-beside-add", ONE, &[Pod("a/gone")], || vec![del("a/gone"), collect(), add("a/p")]),
        // A node has begun to claim a block that is another's by now.
        plain("stale-affinity", TWO, STALE, || vec![add("a/p"), release_empty(FIRST, "b")]),
        // A node gives up a block that is another's by now, whose pod wants an address from it.
        plain("give-up-of-another", TWO, STALE, || vec![release_empty(FIRST, "a"), add("b/p")]),
        // Two calls on different nodes count in one handle, whose number of addresses has no limit.
        plain("one-handle", TWO, &[], || vec![add("a/p"), add("b/p")]).without_faults(),
        // Two calls count in a handle that is there.
        plain("one-handle-again", TWO, &[Pod("c/p")], || vec![add("a/p"), add("b/p")]).without_faults(),
        // Two DELs of a handle that has addresses in two blocks.
        large("del-twice-of-two", TWO, &[Pod("a/p"), Pod("b/p")], || vec![del("a/p"), del("b/p")]),
        // Pods of three nodes want an address, and two blocks can be had.
        large("three-adds", TWO, &[], three_pods),
        // Pods of three nodes want an address, and blocks are not shared.
        large("strict-affinity", STRICT, &[], three_pods),
        // A pod starts while the block of its node, in which others run, is given up, and blocks are not shared.
        large(
            "strict-affinity-beside-give-up",
            Cluster { strict_affinity: true, ..ONE },
            &[Pod("a/w")],
            || vec![add("a/p"), disown(FIRST, "a")],
        ),
        // An address cools down while another pod wants one.
        plain(
            "cooldown",
            Cluster { cooldown: 30, ..ONE },
            &[Pod("a/p"), Pod("a/x"), Pod("a/y"), Pod("a/z")],
            || vec![del("a/p"), add("a/q")],
        )
        .with_jumps(),
        // A block was claimed a moment ago by a node that has not used it yet, and clocks jump.
        large("reclaim-in-time", ONE, &[], two_pods).with_jumps(),
        // Pods of two nodes on Kubernetes, which answers each read at its own time.
        plain("one-by-one", ONE, &[], || {
            let call = |pod: &str| Call { program: Program::OneByOne, ..pod.into() };
            vec![add(call("a/p")), add(call("b/q"))]
        }),
        // Pods of three nodes come and go, a collector and a node that loses its blocks.
        large("large", FOUR, &[Pod("a/p1"), Pod("b/p2"), Block("10.0.0.8/30", "c")], || {
            vec![
                add("a/q1"),
                add("b/q2"),
                add("c/q3"),
                del("a/p1"),
                del("b/p2"),
                release_empty("10.0.0.8/30", "c"),
                collect(),
            ]
        }),
    ]
}

/// Worlds that each test one guard. Without the guard, an invariant breaks after a few steps.
fn guards() -> Vec<Scenario> {
    vec![
        // Pods of two nodes ask for the same address of a block that is there.
        plain("same-address-of-a-block", ONE, BLOCK, || vec![add(wanting(1, "a/p")), add(wanting(1, "b/q"))]),
        // A node takes over an empty block while a pod of its owner asks for an address of it.
        large("reclaim-beside-address", ONE, BLOCK, || vec![add(wanting(1, "a/p")), add("b/q")]),
        // A node takes over an empty block that its owner gives up and claims again.
        large("reclaim-beside-claim", ONE, BLOCK, || vec![claim_again(FIRST, "a"), add("b/q")]),
        // A node takes over a block whose owner had been killed before it confirmed its affinity, and goes on now.
        large("revive-beside-reclaim", ONE, &[Block(FIRST, "a"), Pending(FIRST, "a")], || {
            vec![add("a/p"), add("b/q")]
        }),
        // A node wants an address from its empty block, which is given up, while it could claim another.
        large("revive-beside-give-up", TWO, &[Block(SECOND, "a")], || {
            vec![add("a/p"), release_empty(SECOND, "a")]
        }),
        // GC and DEL release a handle that has addresses in two blocks.
        large("gc-beside-del-of-two", TWO, &[Leak("a/p"), Leak("b/p")], || vec![gc("a", &[]), del("b/p")]),
        // GC of a network on a node that has a pod of another network.
        plain("gc-of-one-network", ONE, &[Served(|| of_other_network("a/p"))], || {
            vec![gc("a", &[]), add(of_other_network("a/q"))]
        }),
    ]
}

/// Worlds in which nodes keep notes about full blocks. The notes may be lost or outdated.
fn notes() -> [Scenario; 3] {
    let scenarios = [
        // Pods want an address of the only block, which is full until one of another node stops.
        large("notes-of-a-full-block", ONE, FULL, || {
            vec![add(noting("b/p")), del("a/w"), add(noting("b/q"))]
        }),
        // A pod wants an address of the only block, which is full until one of its own node stops.
        plain("notes-of-the-own-node", ONE, FULL, || vec![add(noting("a/p")), del(noting("a/w"))]),
        // Pods want an address where one block is full and the other one is given up.
        large(
            "notes-beside-give-up",
            TWO,
            &[Pod("a/w"), Pod("a/x"), Pod("a/y"), Pod("a/z"), Block(SECOND, "c")],
            || vec![add(noting("b/p")), release_empty(SECOND, "c"), del("a/w")],
        ),
    ];
    let with_notes = |scenario: Scenario| Scenario {
        end: invariants::notes_hide_nothing,
        kinds: Faults { notes: true, ..ANY },
        ..scenario
    };
    scenarios.map(with_notes)
}
