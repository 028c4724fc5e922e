//! Worlds in which nodes keep notes about full blocks. The notes may be lost or outdated.

use super::given::Given::{self, Block, Pod};
use super::{ANY, Faults, ONE, Scenario, TWO, large, plain};
use crate::actor::{Call, add, del, release_empty};
use crate::invariants;

/// A call for a pod on a node that keeps notes.
fn noting(pod: &str) -> Call {
    Call { keeps_notes: true, ..pod.into() }
}

/// A full block.
const FULL: &[Given] = &[Pod("a/w"), Pod("a/x"), Pod("a/y"), Pod("a/z")];

pub(super) fn all() -> Vec<Scenario> {
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
            &[Pod("a/w"), Pod("a/x"), Pod("a/y"), Pod("a/z"), Block("10.0.0.4/30", "c")],
            || vec![add(noting("b/p")), release_empty("10.0.0.4/30", "c"), del("a/w")],
        ),
    ];
    let with_notes = |scenario: Scenario| Scenario {
        end: invariants::notes_hide_nothing,
        kinds: Faults { notes: true, ..ANY },
        ..scenario
    };
    scenarios.map(with_notes).into()
}
