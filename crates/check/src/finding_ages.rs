//! Findings that a half-done Calico operation, or changes that have not arrived yet, could explain. They count only
//! after some time.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::finding::{Evidence, Finding, FindingKey};
use crate::report::Report;

/// The ages of findings that depend on several objects. Calico changes such objects one after the other.
#[derive(Debug)]
pub struct FindingAges {
    settle: SignedDuration,
    kinds_are_independent: bool,
    seen: HashMap<FindingKey, Seen>,
}

#[derive(Debug)]
struct Seen {
    since: Timestamp,
    /// The evidence; `None` once the finding is old enough. From then on, the finding counts as long as it is found,
    /// even if its evidence changes.
    evidence: Option<Evidence>,
    /// The last time at which the finding's objects were read again and had not changed.
    read_again: Option<Timestamp>,
}

impl FindingAges {
    /// Creates a value without findings. A finding must stay unchanged for the time `settle` before it counts.
    pub fn new(settle: SignedDuration) -> Self {
        Self {
            settle,
            kinds_are_independent: false,
            seen: HashMap::new(),
        }
    }

    /// Sets whether findings that depend on only one object must also last for the time `settle`. This is necessary if
    /// changes to some kinds of objects can arrive before earlier changes to other kinds.
    #[must_use]
    pub fn with_independent_kinds(self, kinds_are_independent: bool) -> Self {
        Self {
            kinds_are_independent,
            ..self
        }
    }

    /// Removes findings that are not old enough from the cluster's next report, and returns them. `now` is the report's
    /// time, and all changes up to `arrived` have arrived.
    pub fn hold_back(&mut self, report: &mut Report, now: Timestamp, arrived: Timestamp) -> Vec<Finding> {
        if !self.settle.is_positive() {
            return Vec::new();
        }
        let mut seen_before = std::mem::take(&mut self.seen);
        let held_back = report.take_unless(|finding| {
            let is_of_one_object = finding.depends_on.is_empty();
            if is_of_one_object && !self.kinds_are_independent {
                return true;
            }

            // A finding about one object stays the same finding, even if its numbers change.
            let key = finding.key();
            let is_unchanged = |seen: &Seen| match &seen.evidence {
                Some(evidence) => is_of_one_object || *evidence == finding.evidence,
                None => true,
            };
            let mut since = now;
            let mut unchanged_until = arrived;
            let mut counts = false;
            if let Some(seen) = seen_before.remove(&key).filter(is_unchanged) {
                since = seen.since.min(now);
                if let Some(read_again) = seen.read_again {
                    unchanged_until = arrived.max(read_again.min(now));
                }
                counts = seen.evidence.is_none();
            }
            counts |= unchanged_until.duration_since(since) >= self.settle;

            let evidence = if counts {
                None
            } else {
                Some(finding.evidence.clone())
            };
            let seen = Seen {
                since,
                evidence,
                read_again: None,
            };
            self.seen.insert(key, seen);
            counts
        });
        report.rechecked = true;
        held_back
    }

    /// Returns true for a finding that was held back and is old enough at `now`, if all changes until then have
    /// arrived.
    pub fn is_due(&self, finding: &FindingKey, now: Timestamp) -> bool {
        self.seen
            .get(finding)
            .is_some_and(|seen| seen.evidence.is_some() && now.duration_since(seen.since) >= self.settle)
    }

    /// Records that a finding's objects were still unchanged at this time.
    pub fn confirm(&mut self, finding: &FindingKey, at: Timestamp) {
        if let Some(seen) = self.seen.get_mut(finding) {
            seen.read_again = Some(at);
        }
    }

    /// Returns the earliest time at which a finding that was held back is old enough.
    pub fn next(&self) -> Option<Timestamp> {
        let waiting = self.seen.values().filter(|seen| seen.evidence.is_some());
        waiting
            .filter_map(|seen| seen.since.checked_add(self.settle).ok())
            .min()
    }
}
