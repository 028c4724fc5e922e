//! Worlds that each test one guard. Without the guard, an invariant breaks after a few steps.

use calipam_assign::plugin::Wanted;

use super::{FIRST, ONE_BLOCK, Scenario, TWO_BLOCKS, cidr, large, plain};
use crate::actor::{Call, add, claim_again, del, gc, release_empty};

const SECOND: &str = "10.0.0.4/30";

/// A call for a pod that wants the second address of the first block.
fn given(node: &str, pod: &str) -> Call {
    Call { wanted: Wanted::Address([10, 0, 0, 1].into()), ..Call::new(node, pod) }
}

/// A call for a pod of another CNI network.
fn of_other_network(node: &str, pod: &str) -> Call {
    Call { network: "other-network", ..Call::new(node, pod) }
}

pub(super) fn all() -> Vec<Scenario> {
    vec![
        plain(
            "same-address-of-a-block",
            "pods of two nodes ask for the same address of a block that is there",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(given("a", "p")), add(given("b", "q"))],
        ),
        large(
            "reclaim-beside-address",
            "a node takes over an empty block while a pod of its owner asks for an address of it",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![add(given("a", "p")), add(Call::new("b", "q"))],
        ),
        large(
            "reclaim-beside-claim",
            "a node takes over an empty block that its owner gives up and claims again",
            ONE_BLOCK,
            |before| before.block(FIRST, "a"),
            || vec![claim_again(cidr(FIRST), "a"), add(Call::new("b", "q"))],
        ),
        large(
            "revive-beside-reclaim",
            "a node takes over a block whose owner had been killed before it confirmed its affinity, and goes on now",
            ONE_BLOCK,
            |before| {
                before.block(FIRST, "a");
                before.pending(FIRST, "a");
            },
            || vec![add(Call::new("a", "p")), add(Call::new("b", "q"))],
        ),
        large(
            "revive-beside-give-up",
            "a node wants an address from its empty block, which is given up, while it could claim another",
            TWO_BLOCKS,
            |before| before.block(SECOND, "a"),
            || vec![add(Call::new("a", "p")), release_empty(cidr(SECOND), "a")],
        ),
        large(
            "gc-beside-del-of-two",
            "GC and DEL release a handle that has addresses in two blocks",
            TWO_BLOCKS,
            |before| ["a", "b"].into_iter().for_each(|node| before.leak(node, "p")),
            || vec![gc("a", &[]), del(Call::new("b", "p"))],
        ),
        plain(
            "gc-of-one-network",
            "GC of a network on a node that has a pod of another network",
            ONE_BLOCK,
            |before| before.served(&of_other_network("a", "p")),
            || vec![gc("a", &[]), add(of_other_network("a", "q"))],
        ),
    ]
}
