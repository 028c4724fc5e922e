//! Compares block sizes: runs a scenario with each of them.

use super::several::run_all;
use super::{BlockSizeRow, BlockSizes, Run};
use crate::error::Result;
use crate::scenario::Scenario;

/// Runs a scenario with each block size, given as prefix lengths. A simulated copy of an existing cluster begins
/// without blocks, and as many pods arrive as the cluster has.
pub fn block_sizes(scenario: &Scenario, sizes: &[u8], runs: u64) -> Result<BlockSizes> {
    let rows = with_each_size(&scenario.afresh(), sizes, runs)?;
    let row = |(block_size, shown): (u8, Vec<Run>)| BlockSizeRow {
        block_size,
        run: Run::of_several(&shown),
    };
    Ok(BlockSizes {
        rows: rows.into_iter().map(row).collect(),
    })
}

/// The runs with each block size.
pub(super) fn with_each_size(fresh: &Scenario, sizes: &[u8], runs: u64) -> Result<Vec<(u8, Vec<Run>)>> {
    let scenarios: Vec<Scenario> = sizes.iter().map(|size| fresh.with_block_size(*size)).collect();
    Ok(sizes.iter().copied().zip(run_all(&scenarios, runs)?).collect())
}
