//! Worlds in which the plugin runs, or blocks are released. They promise nothing about undo and the lock of the
//! datastore, so their end is checked differently from that of commands.

use super::given::Given::{self, Block, Leak, NoHandle, Pending, Pod, Served};
use super::{
    ANY, BLOCK, Cluster, FIRST, FOUR, Faults, ONE, POD, Scenario, TWO, UNOWNED, large, plain, wanting,
};
use crate::actor::{Actor, Call, Program, add, claim_again, collect, del, disown, gc, release_empty};
use crate::invariants;

const SECOND: &str = "10.0.0.4/30";
const STRICT: Cluster = Cluster {
    strict_affinity: true,
    ..TWO
};

/// Starts a pod on each of two nodes.
fn two_pods() -> Vec<Actor> {
    vec![add("a5/p"), add("b55/q")]
}

/// Starts a pod on each of three nodes.
fn three_pods() -> Vec<Actor> {
    vec![add("a5/p"), add("b55/q"), add("c8/r")]
}

/// A node has begun to claim a block, which belongs to another node by now.
const STALE: &[Given] = &[Block(FIRST, "b55"), Pending(FIRST, "a5")];

/// A call for a pod of another CNI network.
fn of_other_network(pod: &str) -> Call {
    Call {
        network: "other-network",
        ..pod.into()
    }
}

/// A call for a pod on a node that keeps notes.
fn noting(pod: &str) -> Call {
    Call {
        keeps_notes: true,
        ..pod.into()
    }
}

/// A call whose lists show the state before the first step.
fn listing_beginning(pod: &str) -> Call {
    Call {
        lists_beginning: true,
        ..pod.into()
    }
}

/// A full block.
const FULL: &[Given] = &[Pod("a5/w"), Pod("a5/x"), Pod("a5/y"), Pod("a5/z")];

pub(super) fn all() -> Vec<Scenario> {
    let scenarios = [calls(), guards()].concat().into_iter();
    let scenarios = scenarios.map(|scenario| Scenario {
        end: invariants::at_the_end,
        ..scenario
    });
    scenarios.chain(notes()).collect()
}

fn calls() -> Vec<Scenario> {
    vec![
        // A pod wants an address, and no block is there.
        plain("one-add", ONE, &[], || vec![add("a5/p")]),
        // A pod wants an address of each family, and there is no IPv6 pool.
        plain("two-families", ONE, &[], || vec![add(Call::of_both("a5/p"))]),
        // Two pods of a node want an address, and no block is there.
        plain("two-adds-one-node", TWO, &[], || vec![add("a5/p"), add("a5/q")]),
        // Pods of two nodes want an address, and one block can be had.
        plain("two-adds-one-block", ONE, &[], two_pods),
        // Two pods ask for the same address.
        plain("same-address", TWO, &[], || {
            vec![add(wanting(1, "a5/p")), add(wanting(1, "b55/q"))]
        }),
        // Two pods ask for two addresses of a block.
        large("two-addresses", ONE, BLOCK, || {
            vec![add(wanting(1, "a5/p")), add(wanting(2, "b55/q"))]
        }),
        // Two pods of a node want an address, no block is there, and the second one does not see the first one's block.
        plain("old-lists-one-node", TWO, &[], || {
            vec![add(listing_beginning("a5/p")), add(listing_beginning("a5/q"))]
        }),
        // A pod sees the block of its node, which is given up and claimed by another node.
        large("old-lists-beside-give-up", TWO, BLOCK, || {
            vec![
                add(listing_beginning("a5/p")),
                release_empty(FIRST, "a5"),
                add("b55/q"),
            ]
        }),
        // The same, and blocks are not shared.
        large("old-lists-strict", STRICT, BLOCK, || {
            vec![
                add(listing_beginning("a5/p")),
                release_empty(FIRST, "a5"),
                add("b55/q"),
            ]
        }),
        // A pod starts while the only other one of its node stops.
        plain("add-beside-del", TWO, POD, || vec![add("a5/q"), del("a5/p")]),
        // A pod borrows from a block that has no owner while its last pod stops.
        plain("borrow-beside-del", ONE, UNOWNED, || {
            vec![add("b55/q"), del("a5/p")]
        }),
        // A pod starts while the empty block of its node is given up.
        large("add-beside-give-up", TWO, BLOCK, || {
            vec![add("a5/p"), release_empty(FIRST, "a5")]
        }),
        // A pod of another node claims the block that is given up.
        plain("claim-beside-give-up", ONE, BLOCK, || {
            vec![add("b55/p"), release_empty(FIRST, "a5")]
        }),
        // A node takes over an empty block whose owner wants an address from it.
        plain("reclaim-beside-add", ONE, BLOCK, two_pods),
        // The last pod of a block without an owner stops.
        plain("del-of-the-last", ONE, UNOWNED, || vec![del("a5/p")]),
        // Two DELs of one pod.
        plain("del-twice", ONE, POD, || vec![del("a5/p"), del("a5/p")]),
        // DEL of a pod whose handle is gone, while another pod of its node starts.
        plain(
            "del-without-handle",
            ONE,
            &[Pod("a5/w"), Pod("a5/p"), NoHandle("a5/p")],
            || vec![del("a5/p"), add("a5/q")],
        ),
        // GC of a node on which a pod starts and another is gone.
        plain("gc-beside-add", ONE, &[Pod("a5/gone")], || {
            vec![del("a5/gone"), gc("a5", &["p"]), add("a5/p")]
        }),
        // GC frees what a gone pod had beside one that runs, while a third starts on another node.
        large("gc-of-a-leak", ONE, &[Pod("a5/w"), Leak("a5/gone")], || {
            vec![gc("a5", &["w"]), add("b55/p")]
        }),
        // The collector releases what a gone pod had while another starts.
        large("collector-beside-add", ONE, &[Pod("a5/gone")], || {
            vec![del("a5/gone"), collect(), add("a5/p")]
        }),
        // A node has begun to claim a block that is another's by now.
        plain("stale-affinity", TWO, STALE, || {
            vec![add("a5/p"), release_empty(FIRST, "b55")]
        }),
        // A node gives up a block that is another's by now, whose pod wants an address from it.
        plain("give-up-of-another", TWO, STALE, || {
            vec![release_empty(FIRST, "a5"), add("b55/p")]
        }),
        // Two calls on different nodes count in one handle, whose number of addresses has no limit.
        plain("one-handle", TWO, &[], || vec![add("a5/p"), add("b55/p")]).without_faults(),
        // Two calls count in a handle that is there.
        plain("one-handle-again", TWO, &[Pod("c8/p")], || {
            vec![add("a5/p"), add("b55/p")]
        })
        .without_faults(),
        // Two DELs of a handle that has addresses in two blocks.
        large("del-twice-of-two", TWO, &[Pod("a5/p"), Pod("b55/p")], || {
            vec![del("a5/p"), del("b55/p")]
        }),
        // Pods of three nodes want an address, and two blocks can be had.
        large("three-adds", TWO, &[], three_pods),
        // Pods of three nodes want an address, and blocks are not shared.
        large("strict-affinity", STRICT, &[], three_pods),
        // A pod starts while the block of its node, in which others run, is given up, and blocks are not shared.
        large(
            "strict-affinity-beside-give-up",
            Cluster {
                strict_affinity: true,
                ..ONE
            },
            &[Pod("a5/w")],
            || vec![add("a5/p"), disown(FIRST, "a5")],
        ),
        // An address cools down while another pod wants one.
        plain(
            "cooldown",
            Cluster { cooldown: 30, ..ONE },
            &[Pod("a5/p"), Pod("a5/x"), Pod("a5/y"), Pod("a5/z")],
            || vec![del("a5/p"), add("a5/q")],
        )
        .with_jumps(),
        // A block was claimed a moment ago by a node that has not used it yet, and clocks jump.
        large("reclaim-in-time", ONE, &[], two_pods).with_jumps(),
        // Pods of two nodes on Kubernetes, which answers each read at its own time.
        plain("one-by-one", ONE, &[], || {
            let call = |pod: &str| Call {
                program: Program::OneByOne,
                ..pod.into()
            };
            vec![add(call("a5/p")), add(call("b55/q"))]
        }),
        // Pods of three nodes come and go, a collector and a node that loses its blocks.
        large(
            "large",
            FOUR,
            &[Pod("a5/p1"), Pod("b55/p2"), Block("10.0.0.8/30", "c8")],
            || {
                vec![
                    add("a5/q1"),
                    add("b55/q2"),
                    add("c8/q3"),
                    del("a5/p1"),
                    del("b55/p2"),
                    release_empty("10.0.0.8/30", "c8"),
                    collect(),
                ]
            },
        ),
    ]
}

/// Worlds that each test one guard. Without the guard, an invariant breaks after a few steps.
fn guards() -> Vec<Scenario> {
    vec![
        // Pods of two nodes ask for the same address of a block that is there.
        plain("same-address-of-a-block", ONE, BLOCK, || {
            vec![add(wanting(1, "a5/p")), add(wanting(1, "b55/q"))]
        }),
        // A node takes over an empty block while a pod of its owner asks for an address of it.
        large("reclaim-beside-address", ONE, BLOCK, || {
            vec![add(wanting(1, "a5/p")), add("b55/q")]
        }),
        // A node takes over an empty block that its owner gives up and claims again.
        large("reclaim-beside-claim", ONE, BLOCK, || {
            vec![claim_again(FIRST, "a5"), add("b55/q")]
        }),
        // A node takes over a block whose owner had been killed before it confirmed its affinity, and goes on now.
        large(
            "revive-beside-reclaim",
            ONE,
            &[Block(FIRST, "a5"), Pending(FIRST, "a5")],
            || vec![add("a5/p"), add("b55/q")],
        ),
        // A node wants an address from its empty block, which is given up, while it could claim another.
        large("revive-beside-give-up", TWO, &[Block(SECOND, "a5")], || {
            vec![add("a5/p"), release_empty(SECOND, "a5")]
        }),
        // GC and DEL release a handle that has addresses in two blocks.
        large(
            "gc-beside-del-of-two",
            TWO,
            &[Leak("a5/p"), Leak("b55/p")],
            || vec![gc("a5", &[]), del("b55/p")],
        ),
        // GC of a network on a node that has a pod of another network.
        plain(
            "gc-of-one-network",
            ONE,
            &[Served(|| of_other_network("a5/p"))],
            || vec![gc("a5", &[]), add(of_other_network("a5/q"))],
        ),
    ]
}

/// Worlds in which nodes keep notes about full blocks. The notes may be lost or outdated.
fn notes() -> [Scenario; 3] {
    let scenarios = [
        // Pods want an address of the only block, which is full until one of another node stops.
        large("notes-of-a-full-block", ONE, FULL, || {
            vec![add(noting("b55/p")), del("a5/w"), add(noting("b55/q"))]
        }),
        // A pod wants an address of the only block, which is full until one of its own node stops.
        plain("notes-of-the-own-node", ONE, FULL, || {
            vec![add(noting("a5/p")), del(noting("a5/w"))]
        }),
        // Pods want an address where one block is full and the other one is given up.
        large(
            "notes-beside-give-up",
            TWO,
            &[
                Pod("a5/w"),
                Pod("a5/x"),
                Pod("a5/y"),
                Pod("a5/z"),
                Block(SECOND, "c8"),
            ],
            || vec![add(noting("b55/p")), release_empty(SECOND, "c8"), del("a5/w")],
        ),
    ];
    let with_notes = |scenario: Scenario| Scenario {
        end: invariants::notes_hide_nothing,
        kinds: Faults { notes: true, ..ANY },
        ..scenario
    };
    scenarios.map(with_notes)
}
