//! Which block size?

use super::{BlockSizeRow, BlockSizes, Threads, parallel, run};
use crate::scenario::{Scenario, ScenarioError};

/// Runs a scenario with each of some block sizes, given as prefix lengths. A cluster begins empty, with as many pods to
/// arrive as it has.
pub fn block_sizes(scenario: &Scenario, sizes: &[u8], threads: Threads) -> Result<BlockSizes, ScenarioError> {
    let fresh = scenario.afresh();
    let scenarios: Vec<(u8, Scenario)> =
        sizes.iter().map(|size| (*size, fresh.with_block_size(*size))).collect();
    scenarios.iter().try_for_each(|(_, scenario)| scenario.check())?;
    let row = |(block_size, scenario): &(u8, Scenario)| {
        run(scenario).map(|run| BlockSizeRow { block_size: *block_size, run })
    };
    let rows: Result<Vec<_>, _> = parallel::map(threads, &scenarios, row).into_iter().collect();
    Ok(BlockSizes { rows: rows? })
}
