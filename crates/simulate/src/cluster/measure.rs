//! Measurements of a run.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::{HeldByFailed, Point};
use crate::time::Micros;

/// The measurements of a run.
#[derive(Default)]
pub(crate) struct Measured {
    /// The ADDs that gave addresses, in the order in which they ended.
    pub started: Vec<Timed>,
    /// The number of ADDs that exceeded a time limit of the runtime or the plugin.
    pub too_long: u64,
    /// The number of failed ADDs by their error message.
    pub reasons: BTreeMap<String, u64>,
    pub conflicts: u64,
    /// The number of DELs that succeeded.
    pub deleted: u64,
    /// Number of pods for which no node currently has room.
    pub unschedulable: u64,
    pub held: Option<HeldByFailed>,
    pub points: Vec<Point>,
    /// The time of each check, and the codes that it confirmed.
    pub checks: Vec<(Micros, BTreeSet<&'static str>)>,
}

/// The times of an ADD that gave addresses. The fields are small, because there are many ADDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    /// The time from the call of the plugin to its answer, in microseconds, at most 71 minutes.
    pub time: u32,
    /// The part of `time` spent waiting for the node's lock.
    pub waited: u32,
    pub requests: u16,
    /// True if the call searched other blocks, to claim one or to borrow from one.
    pub listed: bool,
}
