//! Worlds that each test one guard. Without the guard, an invariant breaks after a few steps.

use super::{FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, block, call, cidr, large, plain, wanting};
use crate::actor::{Call, add, claim_again, del, gc, release_empty};

const SECOND: &str = "10.0.0.4/30";

/// A call for a pod of another CNI network.
fn of_other_network(node: &str, pod: &str) -> Call {
    Call { network: "other-network", ..call(node, pod) }
}

pub(super) fn all() -> Vec<Scenario> {
    vec![
        // Pods of two nodes ask for the same address of a block that is there.
        plain("same-address-of-a-block", ONE_BLOCK, block, || {
            vec![add(wanting(1, call("a", "p"))), add(wanting(1, call("b", "q")))]
        }),
        // A node takes over an empty block while a pod of its owner asks for an address of it.
        large("reclaim-beside-address", ONE_BLOCK, block, || {
            vec![add(wanting(1, call("a", "p"))), add(call("b", "q"))]
        }),
        // A node takes over an empty block that its owner gives up and claims again.
        large("reclaim-beside-claim", ONE_BLOCK, block, || {
            vec![claim_again(cidr(FIRST), "a"), add(call("b", "q"))]
        }),
        // A node takes over a block whose owner had been killed before it confirmed its affinity, and goes on now.
        large(
            "revive-beside-reclaim",
            ONE_BLOCK,
            |before| {
                before.block(FIRST, "a");
                before.pending(FIRST, "a");
            },
            || vec![add(call("a", "p")), add(call("b", "q"))],
        ),
        // A node wants an address from its empty block, which is given up, while it could claim another.
        large(
            "revive-beside-give-up",
            TWO_BLOCKS,
            |before| before.block(SECOND, "a"),
            || vec![add(call("a", "p")), release_empty(cidr(SECOND), "a")],
        ),
        // GC and DEL release a handle that has addresses in two blocks.
        large(
            "gc-beside-del-of-two",
            TWO_BLOCKS,
            |before| ["a", "b"].into_iter().for_each(|node| before.leak(node, "p")),
            || vec![gc("a", &[]), del(call("b", "p"))],
        ),
        // GC of a network on a node that has a pod of another network.
        plain(
            "gc-of-one-network",
            ONE_BLOCK,
            |before| before.served(&of_other_network("a", "p")),
            || vec![gc("a", &[]), add(of_other_network("a", "q"))],
        ),
    ]
}
