//! The time for which a call may rely on what was read before.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The time for which a search relies on inputs that were read ahead, and on an earlier search that found nothing.
/// Addresses that other nodes release meanwhile are found only later. Calico also misses changes to pools or
/// reservations that are made just after an assignment begins.
const RECENT: SignedDuration = SignedDuration::from_secs(5);

/// The time for which calls list objects since a [`KnownState`]. The rest of [`RECENT`] is left for the wait for the
/// node's lock.
const LISTED: SignedDuration = SignedDuration::from_millis(2_500);

/// True if `then` is at most [`RECENT`] before `now`. False if the clock has been set back.
pub(crate) fn is_recent(then: Timestamp, now: Timestamp) -> bool {
    is_within(RECENT, then, now)
}

fn is_within(limit: SignedDuration, then: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(then);
    !age.is_negative() && age <= limit
}

/// A state of the datastore, and a time at which there was no newer one. This is also the format of the plugin's notes
/// (`notes.rs` of calipam-cni): a change here needs a new `KNOWN_STATE` there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownState {
    /// The resource version of the state.
    pub version: String,
    pub at: Timestamp,
}

impl KnownState {
    /// True if a call may still use lists of this state.
    pub(crate) fn is_usable(&self, now: Timestamp) -> bool {
        is_within(LISTED, self.at, now)
    }
}
