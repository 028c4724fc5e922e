//! Compares block sizes: runs a scenario with each of them.

use super::several::run_all;
use super::{BlockSizeRow, BlockSizes, Run};
use crate::error::Result;
use crate::scenario::Scenario;

/// Runs a scenario with each block size, given as prefix lengths. A simulated copy of an existing cluster begins
/// without blocks, and as many pods arrive as the cluster has.
pub fn block_sizes(scenario: &Scenario, sizes: &[u8], runs: u64) -> Result<BlockSizes> {
    let mut rows = Vec::new();
    for (block_size, results) in with_each_size(&scenario.afresh(), sizes, runs)? {
        rows.push(BlockSizeRow {
            block_size,
            run: Run::combine(&results),
        });
    }
    Ok(BlockSizes { rows })
}

/// Runs a cluster without blocks `runs` times with each block size. Returns the sizes with their results.
pub(super) fn with_each_size(fresh: &Scenario, sizes: &[u8], runs: u64) -> Result<Vec<(u8, Vec<Run>)>> {
    let scenarios: Vec<Scenario> = sizes.iter().map(|size| fresh.with_block_size(*size)).collect();
    let results = run_all(&scenarios, runs)?;
    Ok(sizes.iter().copied().zip(results).collect())
}
