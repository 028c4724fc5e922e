//! Whole simulations.

mod advice;
mod answers;
mod clusters;
mod events;
mod runs;

use calipam_simulate::answer::{Runs, Threads};
use calipam_simulate::{PoolSpec, Scenario};

/// A small cluster that starts all its pods.
fn small() -> Scenario {
    Scenario { nodes: 6, pods_per_node: 10, pools: vec![pool("10.0.0.0/20", 28)], ..Scenario::default() }
}

fn pool(cidr: &str, block_size: u8) -> PoolSpec {
    PoolSpec { block_size: Some(block_size), ..PoolSpec::new(cidr.parse().unwrap()) }
}

/// Each scenario once.
fn once() -> Runs {
    Runs::once(Threads::default())
}
