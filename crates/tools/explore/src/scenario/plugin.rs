//! Worlds in which the plugin runs, or blocks are released.

use calipam_assign::plugin::Wanted;

use super::{Cluster, FIRST, FOUR_BLOCKS, ONE_BLOCK, Scenario, TWO_BLOCKS, cidr, large, plain, repairs};
use crate::actor::{Call, add, collect, del, disown, gc, release_empty};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        plain(
            "one-add",
            "a pod wants an address, and no block is there",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p"))],
        ),
        plain(
            "two-families",
            "a pod wants an address of each family, and there is no IPv6 pool",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::of_both("a", "p"))],
        ),
        plain(
            "two-adds-one-node",
            "two pods of a node want an address, and no block is there",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("a", "q"))],
        ),
        plain(
            "two-adds-one-block",
            "pods of two nodes want an address, and one block can be had",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        ),
        plain(
            "same-address",
            "two pods ask for the same address",
            TWO_BLOCKS,
            |_| {},
            || {
                let wanted = Wanted::Address([10, 0, 0, 1].into());
                let call = |node, pod| Call { wanted: wanted.clone(), ..Call::new(node, pod) };
                vec![add(call("a", "p")), add(call("b", "q"))]
            },
        ),
        large(
            "two-addresses",
            "two pods ask for two addresses of a block",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || {
                let call = |node, pod, last| {
                    let wanted = Wanted::Address([10, 0, 0, last].into());
                    Call { wanted, ..Call::new(node, pod) }
                };
                vec![add(call("a", "p", 1)), add(call("b", "q", 2))]
            },
        ),
        plain(
            "add-beside-del",
            "a pod starts while the only other one of its node stops",
            TWO_BLOCKS,
            |before| before.pod("a", "p"),
            || vec![add(Call::new("a", "q")), del(Call::new("a", "p"))],
        ),
        plain(
            "borrow-beside-del",
            "a pod borrows from a block that has no owner while its last pod stops",
            ONE_BLOCK,
            |before| before.pod_in_unowned("a", "p"),
            || vec![add(Call::new("b", "q")), del(Call::new("a", "p"))],
        ),
        large(
            "add-beside-give-up",
            "a pod starts while the empty block of its node is given up",
            TWO_BLOCKS,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("a", "p")), release_empty(cidr(FIRST), "a")],
        ),
        plain(
            "claim-beside-give-up",
            "a pod of another node claims the block that is given up",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("b", "p")), release_empty(cidr(FIRST), "a")],
        ),
        plain(
            "reclaim-beside-add",
            "a node takes over an empty block whose owner wants an address from it",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        ),
        plain(
            "del-of-the-last",
            "the last pod of a block without an owner stops",
            ONE_BLOCK,
            |before| before.pod_in_unowned("a", "p"),
            || vec![del(Call::new("a", "p"))],
        ),
        plain(
            "del-twice",
            "two DELs of one pod",
            ONE_BLOCK,
            |before| before.pod("a", "p"),
            || vec![del(Call::new("a", "p")), del(Call::new("a", "p"))],
        ),
        plain(
            "del-without-handle",
            "DEL of a pod whose handle is gone, while another pod of its node starts",
            ONE_BLOCK,
            |before| {
                before.pod("a", "w");
                before.pod("a", "p");
                before.damage("p", &repairs::handle_path("p"));
            },
            || vec![del(Call::new("a", "p")), add(Call::new("a", "q"))],
        ),
        plain(
            "gc-beside-add",
            "GC of a node on which a pod starts and another is gone",
            ONE_BLOCK,
            |before| before.pod("a", "gone"),
            || vec![del(Call::new("a", "gone")), gc("a", &["p"]), add(Call::new("a", "p"))],
        ),
        large(
            "gc-of-a-leak",
            "GC frees what a gone pod had beside one that runs, while a third starts on another node",
            ONE_BLOCK,
            |before| {
                before.pod("a", "w");
                before.leak("a", "gone");
            },
            || vec![gc("a", &["w"]), add(Call::new("b", "p"))],
        ),
        large(
            "collector-beside-add",
            "the collector releases what a gone pod had while another starts",
            ONE_BLOCK,
            |before| before.pod("a", "gone"),
            || vec![del(Call::new("a", "gone")), collect(), add(Call::new("a", "p"))],
        ),
        plain(
            "stale-affinity",
            "a node has begun to claim a block that is another's by now",
            TWO_BLOCKS,
            |before| {
                before.block(FIRST, "b");
                before.pending(FIRST, "a");
            },
            || vec![add(Call::new("a", "p")), release_empty(cidr(FIRST), "b")],
        ),
        plain(
            "give-up-of-another",
            "a node gives up a block that is another's by now, whose pod wants an address from it",
            TWO_BLOCKS,
            |before| {
                before.block(FIRST, "b");
                before.pending(FIRST, "a");
            },
            || vec![release_empty(cidr(FIRST), "a"), add(Call::new("b", "p"))],
        ),
        plain(
            "one-handle",
            "two calls on different nodes count in one handle, whose number of addresses has no limit",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "p"))],
        )
        .without_faults(),
        plain(
            "one-handle-again",
            "two calls count in a handle that is there",
            TWO_BLOCKS,
            |before| before.pod("c", "p"),
            || vec![add(Call::new("a", "p")), add(Call::new("b", "p"))],
        )
        .without_faults(),
        large(
            "del-twice-of-two",
            "two DELs of a handle that has addresses in two blocks",
            TWO_BLOCKS,
            |before| ["a", "b"].into_iter().for_each(|node| before.pod(node, "p")),
            || vec![del(Call::new("a", "p")), del(Call::new("b", "p"))],
        ),
        large(
            "three-adds",
            "pods of three nodes want an address, and two blocks can be had",
            TWO_BLOCKS,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q")), add(Call::new("c", "r"))],
        ),
        large(
            "strict-affinity",
            "pods of three nodes want an address, and blocks are not shared",
            Cluster { strict_affinity: true, ..TWO_BLOCKS },
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q")), add(Call::new("c", "r"))],
        ),
        large(
            "strict-affinity-beside-give-up",
            "a pod starts while the block of its node, in which others run, is given up, and blocks are not shared",
            Cluster { strict_affinity: true, ..ONE_BLOCK },
            |before| before.pod("a", "w"),
            || vec![add(Call::new("a", "p")), disown(cidr(FIRST), "a")],
        ),
        plain(
            "cooldown",
            "an address cools down while another pod wants one",
            Cluster { cooldown: 30, ..ONE_BLOCK },
            |before| ["p", "x", "y", "z"].into_iter().for_each(|pod| before.pod("a", pod)),
            || vec![del(Call::new("a", "p")), add(Call::new("a", "q"))],
        )
        .with_jumps(),
        large(
            "reclaim-in-time",
            "a block was claimed a moment ago by a node that has not used it yet, and clocks jump",
            ONE_BLOCK,
            |_| {},
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        )
        .with_jumps(),
        plain(
            "one-by-one",
            "pods of two nodes on Kubernetes, which answers each read at its own time",
            ONE_BLOCK,
            |_| {},
            || {
                let call = |node, pod| Call { one_by_one: true, ..Call::new(node, pod) };
                vec![add(call("a", "p")), add(call("b", "q"))]
            },
        ),
        large(
            "large",
            "pods of three nodes come and go, a collector and a node that loses its blocks",
            FOUR_BLOCKS,
            |before| {
                before.pod("a", "p1");
                before.pod("b", "p2");
                before.block("10.0.0.8/30", "c");
            },
            || {
                vec![
                    add(Call::new("a", "q1")),
                    add(Call::new("b", "q2")),
                    add(Call::new("c", "q3")),
                    del(Call::new("a", "p1")),
                    del(Call::new("b", "p2")),
                    release_empty(cidr("10.0.0.8/30"), "c"),
                    collect(),
                ]
            },
        ),
    ]
}
