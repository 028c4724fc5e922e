//! Findings that a half-done operation of Calico could explain, or changes that are not known yet: they count once they have stood for a
//! while.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::finding::{Evidence, Finding, FindingKey};
use crate::report::Report;

/// Since when findings stand that depend on objects which Calico changes one after the other.
#[derive(Debug)]
pub struct Standing {
    settle: SignedDuration,
    is_apart: bool,
    seen: HashMap<FindingKey, Seen>,
}

#[derive(Debug)]
struct Seen {
    since: Timestamp,
    /// What was found; `None` once it has stood long enough. From then on it stands for as long as it is found at all: what is
    /// wrong with a block is not right again because something else of it has changed.
    evidence: Option<Evidence>,
    /// When its own objects were read again, and were the same.
    read_again: Option<Timestamp>,
}

impl Standing {
    /// For how long a finding has to stand unchanged.
    pub fn new(settle: SignedDuration) -> Self {
        Self { settle, is_apart: false, seen: HashMap::new() }
    }

    /// Where the changes of some objects may be known before earlier ones of others, any finding may be one of them alone: all have to
    /// stand.
    #[must_use]
    pub fn apart(self, is_apart: bool) -> Self {
        Self { is_apart, ..self }
    }

    /// Takes out of a report of `now`, the next of the same cluster, what has not stood for long enough, and gives it. Up to `known`
    /// everything is known that has happened.
    pub fn hold_back(&mut self, report: &mut Report, now: Timestamp, known: Timestamp) -> Vec<Finding> {
        if !self.settle.is_positive() {
            return Vec::new();
        }
        let mut before = std::mem::take(&mut self.seen);
        let held_back = report.take_unless(|finding| {
            // What rests on one object is the same finding whatever its numbers are.
            let is_of_one = finding.depends_on.is_empty();
            if is_of_one && !self.is_apart {
                return true;
            }
            let key = finding.key();
            let is_same = |seen: &Seen| {
                is_of_one || seen.evidence.as_ref().is_none_or(|evidence| *evidence == finding.evidence)
            };
            let same = before.remove(&key).filter(is_same);
            let since = same.as_ref().map_or(now, |seen| seen.since.min(now));
            let read_again = same.as_ref().and_then(|seen| seen.read_again);
            let was_standing = same.is_some_and(|seen| seen.evidence.is_none());
            let known = read_again.map_or(known, |at| known.max(at.min(now)));
            let stands = was_standing || known.duration_since(since) >= self.settle;
            let evidence = (!stands).then(|| finding.evidence.clone());
            self.seen.insert(key, Seen { since, evidence, read_again: None });
            stands
        });
        report.rechecked = true;
        held_back
    }

    /// True for a finding that has stood for long enough, if all is known that has happened until `now`.
    pub fn is_due(&self, finding: &FindingKey, now: Timestamp) -> bool {
        let is_due = |seen: &Seen| seen.evidence.is_some() && now.duration_since(seen.since) >= self.settle;
        self.seen.get(finding).is_some_and(is_due)
    }

    /// The objects that a finding rests on are known to be the same at this time.
    pub fn confirm(&mut self, finding: &FindingKey, at: Timestamp) {
        if let Some(seen) = self.seen.get_mut(finding) {
            seen.read_again = Some(at);
        }
    }

    /// When the first of those that were held back will have stood for long enough.
    pub fn next(&self) -> Option<Timestamp> {
        let waiting = self.seen.values().filter(|seen| seen.evidence.is_some());
        waiting.filter_map(|seen| seen.since.checked_add(self.settle).ok()).min()
    }
}
