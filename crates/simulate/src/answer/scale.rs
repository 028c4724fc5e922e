//! Shows the effect of a cluster's size: runs a scenario with different numbers of nodes.

use super::Scale;
use super::several::run_each;
use crate::error::Result;
use crate::scenario::Scenario;

/// Runs a scenario with each number of nodes, and returns the results in the same order. If the scenario sets an
/// arrival rate, it grows in proportion to the number of nodes, as if each node got as many pods.
pub fn scale(scenario: &Scenario, nodes: &[u32], runs: u64) -> Result<Scale> {
    let original_nodes = scenario.node_count().max(1);
    let mut scenarios: Vec<Scenario> = Vec::new();
    for count in nodes {
        let arrival = scenario.arrival;
        scenarios.push(Scenario {
            nodes: *count,
            arrival: arrival.map(|rate| rate.scaled((*count).into(), original_nodes.into())),
            ..scenario.clone()
        });
    }
    Ok(Scale {
        rows: run_each(&scenarios, runs)?,
    })
}

/// Returns numbers of nodes from small to `largest`: 10, 50, 100, 500 and so on, and last `largest` itself.
pub fn sizes_up_to(largest: u32) -> Vec<u32> {
    let mut sizes = Vec::new();
    // Wider than the numbers of nodes, so that the last multiplication cannot overflow.
    let mut size = 10u64;
    let mut factor = 5;
    while size < u64::from(largest) {
        sizes.push(size as u32);
        size *= factor;
        // The factor is 5 and 2 by turns.
        factor = 10 / factor;
    }
    sizes.push(largest);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_to_the_requested_one() {
        assert_eq!(sizes_up_to(700), [10, 50, 100, 500, 700]);
        assert_eq!(sizes_up_to(100), [10, 50, 100]);
        assert_eq!(sizes_up_to(3), [3]);
    }
}
