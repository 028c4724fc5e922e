//! Whole simulations.

mod advice;
mod answers;
mod clusters;
mod runs;

use calipam_simulate::{Event, Micros, Planned, PoolSpec, Scenario};

/// A small cluster in which all pods start.
fn small() -> Scenario {
    Scenario {
        nodes: 6,
        pods_per_node: 10,
        pools: vec![pool("10.0.0.0/20", 28)],
        ..Scenario::default()
    }
}

fn pool(cidr: &str, block_size: u8) -> PoolSpec {
    PoolSpec {
        cidr: cidr.parse().unwrap(),
        block_size,
    }
}

/// A failure of this node after three minutes.
fn fails(name: &str) -> Option<Planned> {
    Some(Planned {
        at: Micros::from_mins(3),
        what: Event::FailNode(name.to_owned()),
    })
}
