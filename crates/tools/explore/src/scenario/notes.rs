//! Worlds in which nodes keep notes about full blocks. The notes may be lost or outdated.

use super::{Before, ONE_BLOCK, Scenario, TWO_BLOCKS, cidr, large, plain};
use crate::actor::{Call, add, del, release_empty};
use crate::invariants;

/// A call for a pod on a node that keeps notes.
fn call(node: &str, pod: &str) -> Call {
    Call { keeps_notes: true, ..Call::new(node, pod) }
}

/// Fills a block.
fn full(before: &Before<'_>) {
    ["w", "x", "y", "z"].into_iter().for_each(|pod| before.pod("a", pod));
}

pub(super) fn all() -> Vec<Scenario> {
    let scenarios = vec![
        large(
            "notes-of-a-full-block",
            "pods want an address of the only block, which is full until one of another node stops",
            ONE_BLOCK,
            full,
            || vec![add(call("b", "p")), del(Call::new("a", "w")), add(call("b", "q"))],
        ),
        plain(
            "notes-of-the-own-node",
            "a pod wants an address of the only block, which is full until one of its own node stops",
            ONE_BLOCK,
            full,
            || vec![add(call("a", "p")), del(call("a", "w"))],
        ),
        large(
            "notes-beside-give-up",
            "pods want an address where one block is full and the other one is given up",
            TWO_BLOCKS,
            |before| {
                full(before);
                before.block("10.0.0.4/30", "c");
            },
            || vec![add(call("b", "p")), release_empty(cidr("10.0.0.4/30"), "c"), del(Call::new("a", "w"))],
        ),
    ];
    let with_notes = |scenario: Scenario| Scenario {
        end: invariants::notes_hide_nothing,
        ..scenario.with_damaged_notes()
    };
    scenarios.into_iter().map(with_notes).collect()
}
