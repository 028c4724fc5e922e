//! The answers: what simulations show, as types that are printed and drawn elsewhere.

mod advise;
mod at_end;
mod block_size;
mod clash;
mod comparison;
mod eviction;
mod failure;
mod parallel;
mod phases;
mod run;
mod scale;
mod several;

use std::collections::BTreeMap;

use calipam_check::views::Count;
use serde::Serialize;

pub use self::advise::{Advice, Candidate, Objection, Tipping, advise};
pub use self::block_size::block_sizes;
pub use self::clash::{Cause, CauseRow, Clashes, Sighting, clashes};
pub use self::comparison::{Compared, Comparison, compare};
pub use self::eviction::{Evicted, Eviction, evict};
pub use self::failure::{Course, Failure, FailureRange, Point, failure};
pub use self::parallel::{Runs, Threads};
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

/// A part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    pub from: Micros,
    pub to: Micros,
    /// Pods that were created in it.
    pub pods: u64,
    /// Of them, those that should run at the end and have no address.
    pub never: u64,
    /// ADDs that failed in it or took too long.
    pub failed: u64,
    /// From the creation of these pods to their addresses.
    pub time_to_address: Times,
}

/// The parts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phases {
    /// To the first event; if nothing happens, until the pods of the scenario have arrived.
    pub fill: Phase,
    /// From the first event until no pod waits after the last one.
    pub storm: Phase,
    /// The rest.
    pub after: Phase,
}

/// How it is at a moment, and what was between it and the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    pub at: Micros,
    /// Pods that should run and do not.
    pub waiting: u64,
    /// Pods that got addresses since the moment before.
    pub started: u64,
    /// ADDs that failed or took too long since then.
    pub failed: u64,
    /// Within what time 99 of 100 pods that were created since then had an address.
    pub p99: Micros,
}

/// Whether the datastore is sound at the end. What is under way then counts as well: an ADD writes the handle before the
/// block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AtEnd {
    /// Blocks that overlap, or do not fit their affinities.
    pub blocks: u64,
    /// Addresses in which handles and blocks differ.
    pub handles: u64,
    /// Addresses that are allocated to pods that are gone.
    pub leaked: u64,
    /// Addresses that pods use and that are not allocated to them.
    pub unallocated: u64,
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
    pub phases: Phases,
    /// The run over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Moment>,
    /// How long the cluster was simulated.
    pub simulated: Micros,
    pub adds: Adds,
    /// DELs that gave their addresses back.
    pub deleted: u64,
    /// All requests to the datastore, those of kube-controllers too.
    pub datastore_requests: u64,
    /// The most bytes that the datastore held for lists at the same time.
    pub most_listed_bytes: u64,
    pub blocks: BlockUse,
    /// Addresses that two pods used at a time.
    pub clashes: u64,
    pub at_end: AtEnd,
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
