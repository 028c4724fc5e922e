//! Worlds that each test one guard. Without the guard, an invariant breaks after a few steps.

use super::given::Given::{Block, Leak, Pending, Served};
use super::{BLOCK, FIRST, ONE, Scenario, TWO, large, plain, wanting};
use crate::actor::{Call, add, claim_again, del, gc, release_empty};

const SECOND: &str = "10.0.0.4/30";

/// A call for a pod of another CNI network.
fn of_other_network(pod: &str) -> Call {
    Call { network: "other-network", ..pod.into() }
}

pub(super) fn all() -> Vec<Scenario> {
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
