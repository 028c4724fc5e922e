//! Experiments with simulations, and the types of their results. Other crates print and draw the results.

mod advise;
mod block_size;
mod clash;
mod eviction;
mod failure;
mod ranks;
mod run;
mod scale;
mod several;

use std::collections::BTreeMap;

use calipam_check::views::Count;
use serde::Serialize;

pub use self::advise::{Advice, Candidate, Drawback, Tipping, advise};
pub use self::block_size::block_sizes;
pub use self::clash::{Cause, CauseRow, Clashes, Sighting, clashes};
pub use self::eviction::{Evicted, Eviction, evict};
pub use self::failure::{Course, Failure, failure};
pub use self::run::run;
pub use self::scale::{scale, sizes_up_to};
pub use self::several::{SPREAD, runs};
pub use crate::cluster::Point;
use crate::time::Micros;

/// Statistics of durations: half of all cases took at most the median, 90 of 100 at most `p90`, 99 at most `p99`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    pub count: u64,
    pub mean: Micros,
    pub median: Micros,
    pub p90: Micros,
    pub p99: Micros,
    pub worst: Micros,
}

/// Statistics of the number of requests that a call sends to the datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    /// Rounded to two decimal places.
    pub mean: f64,
    pub median: u64,
    pub most: u64,
}

/// The ADDs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adds {
    /// The number of ADDs that gave a pod its addresses.
    pub started: u64,
    /// The number of ADDs that ended with an error.
    pub failed: u64,
    /// The number of ADDs that exceeded a time limit.
    pub too_long: u64,
    /// The number of failed ADDs by their error message.
    pub reasons: BTreeMap<String, u64>,
    /// The times from the call of the plugin until it returned addresses.
    pub time: Times,
    /// The times of ADDs that found a free address in one of their node's blocks.
    pub time_in_own_block: Times,
    /// The times of ADDs that had to search other blocks for one to claim or to borrow from.
    pub time_with_list: Times,
    /// The times that ADDs waited for their node's lock.
    pub waited: Times,
    pub requests: Requests,
    pub requests_in_own_block: Requests,
    pub requests_with_list: Requests,
    /// The number of writes that failed because another client wrote first.
    pub conflicts: u64,
}

/// The use of blocks at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockUse {
    pub blocks: u64,
    pub pool_addresses: Count,
    /// The number of addresses in blocks.
    pub addresses: u64,
    /// The number of allocated addresses.
    pub allocated: u64,
    /// The number of free addresses in blocks with an owner.
    pub wasted: u64,
    /// Wasted addresses as a percentage of the addresses in blocks.
    pub wasted_percent: f64,
    /// The number of routes: one for each block with an owner, and one for each address outside its node's blocks.
    pub routes: u64,
    /// The number of addresses that pods have borrowed from other nodes' blocks.
    pub borrowed: u64,
    /// Borrowed addresses as a percentage of the allocated ones.
    pub borrowed_percent: f64,
    pub max_blocks_of_node: u64,
    /// The number of nodes that cannot get another address although their pools have free ones.
    pub stranded_nodes: u64,
}

/// The range of each number over several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Range<T> {
    pub runs: u64,
    /// The lowest value that each number has in any run.
    pub lowest: T,
    /// The highest value that each number has in any run.
    pub highest: T,
}

/// One run, or the median of each number over several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub seed: u64,
    pub nodes: u32,
    /// The number of pods that have addresses at the end.
    pub pods: u64,
    /// The number of pods that should be running at the end but are not.
    pub waiting_pods: u64,
    /// The times from a pod's creation until it got an address, including failed ADDs and the waits between them. Only
    /// for pods that were created in the run and got one.
    pub time_to_address: Times,
    /// The simulated time.
    pub simulated: Micros,
    pub adds: Adds,
    /// The number of DELs that succeeded.
    pub deleted: u64,
    /// The number of all requests to the datastore, including those of kube-controllers.
    pub datastore_requests: u64,
    pub blocks: BlockUse,
    /// The number of times that a pod began to use an address that another pod was using.
    pub clashes: u64,
    /// Set if there were several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<Range<Run>>>,
}

/// Runs with increasing numbers of nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    pub rows: Vec<Run>,
}

/// The run with one of the compared block sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockSizeRow {
    /// The prefix length of blocks.
    pub block_size: u8,
    #[serde(flatten)]
    pub run: Run,
}

/// Runs of the same cluster with different block sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockSizes {
    pub rows: Vec<BlockSizeRow>,
}

/// Returns a part of a whole in percent, rounded to two decimal places; 0 if the whole is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    let part = u128::from(part);
    let whole = u128::from(whole);
    let hundredths = (part * 10_000 + whole / 2).checked_div(whole).unwrap_or(0);
    hundredths as f64 / 100.0
}
