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
            let mut counted_before = false;
            if let Some(seen) = seen_before.remove(&key).filter(is_unchanged) {
                // The clock may have been set back.
                since = seen.since.min(now);
                counted_before = seen.evidence.is_none();
            }

            // Changes that could explain the finding must have had enough time to arrive.
            let counts = counted_before || arrived.duration_since(since) >= self.settle;
            let evidence = if counts {
                None
            } else {
                Some(finding.evidence.clone())
            };
            let seen = Seen { since, evidence };
            self.seen.insert(key, seen);
            counts
        });
        report.rechecked = true;
        held_back
    }

    /// Returns true for a finding that was held back and is old enough at `now`, if all changes until then have
    /// arrived.
    pub fn is_due(&self, finding: &FindingKey, now: Timestamp) -> bool {
        self.due_at(finding).is_some_and(|due| due <= now)
    }

    /// Returns the time from which on a finding is due; `None` if it was not held back.
    pub fn due_at(&self, finding: &FindingKey) -> Option<Timestamp> {
        self.seen.get(finding).and_then(|seen| self.due(seen))
    }

    /// Returns the earliest time at which a finding that was held back is old enough.
    pub fn next(&self) -> Option<Timestamp> {
        self.seen.values().filter_map(|seen| self.due(seen)).min()
    }

    /// Lets a finding count from now on, since its objects were read again after it was due, and had not changed.
    pub fn count(&mut self, finding: &FindingKey) {
        if let Some(seen) = self.seen.get_mut(finding) {
            seen.evidence = None;
        }
    }

    fn due(&self, seen: &Seen) -> Option<Timestamp> {
        match seen.evidence {
            Some(_) => seen.since.checked_add(self.settle).ok(),
            None => None,
        }
    }
}
