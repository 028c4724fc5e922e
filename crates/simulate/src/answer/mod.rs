//! The answers of simulations, as types that are printed and drawn elsewhere.

mod advise;
mod block_size;
mod clash;
mod eviction;
mod failure;
mod run;
mod scale;
mod several;

use std::collections::BTreeMap;

use calipam_check::views::Count;
use serde::Serialize;

pub use self::advise::{Advice, Candidate, Objection, Tipping, advise};
pub use self::block_size::block_sizes;
pub use self::clash::{Cause, CauseRow, Clashes, Sighting, clashes};
pub use self::eviction::{Evicted, Eviction, evict};
pub use self::failure::{Course, Failure, FailureRange, Point, failure};
pub use self::run::{run, runs};
pub use self::scale::{scale, sizes_up_to};
pub use self::several::SPREAD;
use crate::time::Micros;

/// How long something took: in half of all cases at most the median, in 90 of 100 at most `p90`, in 99 at most `p99`.
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

/// How many requests a call sent to the datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    /// With two digits after the point.
    pub mean: f64,
    pub median: u64,
    pub most: u64,
}

/// What is known of the ADDs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adds {
    /// Those that gave a pod its addresses.
    pub started: u64,
    /// Those that ended with an error.
    pub failed: u64,
    /// Those that took too long.
    pub too_long: u64,
    /// What the plugin said to those that failed, and how often.
    pub reasons: BTreeMap<String, u64>,
    /// From the call of the plugin to its answer.
    pub time: Times,
    /// Of those that found a free address in a block of their node.
    pub time_in_own_block: Times,
    /// Of those that read all blocks, to claim one or to borrow from one.
    pub time_with_list: Times,
    /// How long they waited for the lock of their node.
    pub waited: Times,
    pub requests: Requests,
    pub requests_in_own_block: Requests,
    pub requests_with_list: Requests,
    /// Writes that another client was faster with.
    pub conflicts: u64,
}

/// How the blocks are used at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockUse {
    pub blocks: u64,
    pub pool_addresses: Count,
    /// Addresses in blocks.
    pub addresses: u64,
    /// Addresses that are allocated.
    pub allocated: u64,
    /// Free addresses in blocks that have an owner: no other node has them to itself.
    pub wasted: u64,
    /// Of the addresses in blocks, in percent.
    pub wasted_percent: f64,
    /// One for each block, and one for each borrowed address.
    pub routes: u64,
    /// Addresses in blocks of other nodes.
    pub borrowed: u64,
    /// Of the allocated addresses, in percent.
    pub borrowed_percent: f64,
    pub max_blocks_of_node: u64,
    /// Nodes that cannot get another address although their pools have free ones.
    pub stranded_nodes: u64,
}

/// How far the numbers of several runs go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    pub runs: u64,
    /// Each number where it is lowest, whichever run that was.
    pub lowest: Run,
    /// Each number where it is highest.
    pub highest: Run,
}

/// One run, or the median of several, number by number.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub seed: u64,
    pub nodes: u32,
    /// Pods that have addresses at the end.
    pub pods: u64,
    /// Pods that should run at the end and do not.
    pub waiting_pods: u64,
    /// From the creation of a pod to its address, ADDs that failed and the waits between them included; of the pods that were
    /// created in the run and got one.
    pub time_to_address: Times,
    /// How long the cluster was simulated.
    pub simulated: Micros,
    pub adds: Adds,
    /// DELs that gave their addresses back.
    pub deleted: u64,
    /// All requests to the datastore, those of kube-controllers too.
    pub datastore_requests: u64,
    pub blocks: BlockUse,
    /// Addresses that two pods used at a time.
    pub clashes: u64,
    /// Where there were several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<Range>>,
}

/// Runs with more and more nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    pub rows: Vec<Run>,
}

/// A run with a block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockSizeRow {
    /// The prefix length of blocks.
    pub block_size: u8,
    #[serde(flatten)]
    pub run: Run,
}

/// The same cluster with one block size after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockSizes {
    pub rows: Vec<BlockSizeRow>,
}

/// A share in percent, with two digits after the point.
pub(crate) fn percent(part: u64, of: u64) -> f64 {
    let hundredths =
        (u128::from(part) * 10_000 + u128::from(of) / 2).checked_div(u128::from(of)).unwrap_or(0);
    hundredths as f64 / 100.0
}
