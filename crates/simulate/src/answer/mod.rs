//! The answers: what simulations show, as types that are printed and drawn elsewhere.

mod advise;
mod block_size;
mod clash;
mod failure;
mod parallel;
mod run;
mod scale;

use std::collections::BTreeMap;

use calipam_check::views::Count;
use serde::Serialize;

pub use self::advise::advise;
pub use self::block_size::block_sizes;
pub use self::clash::clashes;
pub use self::failure::failure;
pub use self::parallel::Threads;
pub use self::run::run;
pub use self::scale::{scale, sizes_up_to};
use crate::time::Micros;

/// How long something took: in half of all cases at most the median, in 99 of 100 at most `p99`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    pub count: u64,
    pub mean: Micros,
    pub median: Micros,
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
    /// Of those that looked at all blocks, to claim one or to borrow from one.
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
    /// Nodes that cannot get one more address although their pools have free ones.
    pub stranded_nodes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// How it stands some time after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// Since the failure.
    pub after: Micros,
    /// Addresses that the failed nodes hold.
    pub held: u64,
    /// Blocks that the failed nodes hold.
    pub blocks: u64,
    /// Pods that should run and do not: they have no addresses, or their node failed and no other took their place yet.
    pub waiting: u64,
}

/// What becomes of a failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    pub points: Vec<Point>,
    /// When no address of a failed node was held any more; `None` if that did not come.
    pub addresses_free_after: Option<Micros>,
    /// When the failed nodes had no block any more.
    pub blocks_free_after: Option<Micros>,
    /// Most pods at a time that should run and did not.
    pub max_pending: u64,
    /// When all pods ran again for good; `None` if that did not come.
    pub all_running_after: Option<Micros>,
}

/// What becomes of the addresses of nodes that fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub nodes: Vec<String>,
    /// Addresses that they held when they failed.
    pub held: u64,
    /// When, from their failure, the nodes are removed from the cluster; `None` for never.
    pub removed_after: Option<Micros>,
    pub with_collector: Course,
    pub without_collector: Course,
}

/// A cause by which an address can get two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// None at all, for comparison.
    None,
    /// etcd is restored from an old backup.
    OldBackup,
    /// A handle is shared by name, as those of Calico 2.
    SharedHandle,
    /// Addresses of running pods are released by hand.
    FreedByHand,
    /// A node is cut off and removed from the cluster, and its pods run on.
    Partition,
}

impl Cause {
    pub const ALL: [Self; 5] =
        [Self::None, Self::OldBackup, Self::SharedHandle, Self::FreedByHand, Self::Partition];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OldBackup => "old-backup",
            Self::SharedHandle => "shared-handle",
            Self::FreedByHand => "freed-by-hand",
            Self::Partition => "partition",
        }
    }
}

/// A finding of a check that comes of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sighting {
    pub code: String,
    /// Runs in which it was seen.
    pub runs: u64,
    /// Runs in which it was seen before any address had two owners.
    pub runs_before_clash: u64,
    /// How long after the cause it was seen first, in the median of those runs.
    pub after: Micros,
}

/// What comes of a cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseRow {
    pub cause: Cause,
    pub runs: u64,
    /// Runs in which an address had two owners.
    pub runs_with_clash: u64,
    /// Addresses with two owners in all runs together.
    pub clashes: u64,
    /// How long after the cause the first address had two owners: the median of the runs in which one had.
    pub first_clash_after: Option<Micros>,
    /// What checks found, from the first on. Only what two checks in a row found counts, as with `--confirm`.
    pub findings: Vec<Sighting>,
}

/// When two pods can get one address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clashes {
    /// How often a check looked.
    pub check_interval: Micros,
    pub causes: Vec<CauseRow>,
}

/// Why a block size is advised or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    #[serde(flatten)]
    pub row: BlockSizeRow,
    /// Why it is out of the question; empty where it is not.
    pub drawbacks: Vec<Objection>,
}

/// A drawback of a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objection {
    /// Pods stay without addresses.
    WaitingPods,
    StrandedNodes,
    /// Addresses are borrowed, each with a route of its own.
    Borrows,
    /// An ADD takes much longer than with the best size, or one in a hundred longer than a second.
    Slow,
    /// A full node needs more blocks than a node may hold.
    BlockLimit,
}

/// Which block size, pool and limit of blocks fit a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    pub nodes: u32,
    pub pods_per_node: u32,
    pub max_pods_per_node: u32,
    /// The prefix length of blocks. Where the pools are too small for each of the candidates, the one that would fit best
    /// in a pool that is large enough; `None` if none would.
    pub block_size: Option<u8>,
    /// The prefix length of the pool.
    pub pool_prefix: Option<u8>,
    /// Addresses that the pool has to have.
    pub pool_addresses: Option<Count>,
    /// Whether the pools suffice that the scenario has.
    pub pools_suffice: Option<bool>,
    /// Blocks that a full node needs, and one more: the limit of blocks where affinity is strict.
    pub block_limit: Option<u32>,
    pub candidates: Vec<Candidate>,
}

/// A share in percent, with two digits after the point.
pub(crate) fn percent(part: u64, of: u64) -> f64 {
    let hundredths =
        (u128::from(part) * 10_000 + u128::from(of) / 2).checked_div(u128::from(of)).unwrap_or(0);
    hundredths as f64 / 100.0
}
