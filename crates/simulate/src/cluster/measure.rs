//! Measurements of plugin calls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::failure::HeldByFailed;
use crate::answer::Point;
use crate::time::Micros;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Add {
    /// The time from the call of the plugin to its answer.
    pub time: Micros,
    /// The part of `time` spent waiting for the node's lock.
    pub waited: Micros,
    pub requests: u32,
    pub conflicts: u32,
    /// True if the call searched other blocks, to claim one or to borrow from one.
    pub listed: bool,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Started(Vec<IpAddr>),
    /// Contains the plugin's error message.
    Failed(String),
    /// A time limit of the runtime or the plugin was exceeded.
    TooLong,
}

/// All measurements so far.
#[derive(Default)]
pub(crate) struct Measured {
    /// The ADDs that gave addresses, in the order in which they ended.
    pub started: Vec<Timed>,
    pub failed: u64,
    pub too_long: u64,
    /// The number of failed ADDs by their error message.
    pub reasons: BTreeMap<String, u64>,
    pub conflicts: u64,
    /// DELs that released their addresses.
    pub deleted: u64,
    /// Number of pods for which no node currently has room.
    pub unschedulable: u64,
    pub held: Option<HeldByFailed>,
    pub points: Vec<Point>,
    /// The time of each check, and the codes that it found.
    pub checks: Vec<(Micros, BTreeSet<&'static str>)>,
}

/// The times of an ADD that gave addresses, in little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    /// In microseconds, at most 71 minutes.
    pub time: u32,
    pub waited: u32,
    pub requests: u16,
    pub listed: bool,
}

impl Measured {
    pub(crate) fn record(&mut self, add: Add) {
        self.conflicts += u64::from(add.conflicts);
        match add.outcome {
            Outcome::Started(_) => self.started.push(Timed {
                time: u32::try_from(add.time.0).unwrap_or(u32::MAX),
                waited: u32::try_from(add.waited.0).unwrap_or(u32::MAX),
                requests: u16::try_from(add.requests).unwrap_or(u16::MAX),
                listed: add.listed,
            }),
            Outcome::Failed(reason) => {
                self.failed += 1;
                *self.reasons.entry(reason).or_default() += 1;
            }
            Outcome::TooLong => self.too_long += 1,
        }
    }
}
