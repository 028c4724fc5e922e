//! The time of an event, with its uncertainty. etcd orders its revisions, but stores no times. The only times are in
//! the values, from the writers' clocks.

use calipam_model::time::{CLOCK_SKEW, DATE_AND_TIME, parse_time};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// A time, its bounds, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct When {
    /// The recorded time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The lower bound: the known time of an earlier write or export, or the start of the run that made the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
    /// The upper bound: the known time of a later write or export, or of the read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// The reason why the time is uncertain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<Uncertainty>,
}

/// The reason why a time is uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncertainty {
    /// Times contradict the order of writes or exports by more than a minute: a clock is wrong or was set back.
    ClocksDisagree,
    /// The recorded time has no zone.
    NoZone,
    /// The record is older than the write that stored it: a restore, a rebuild or an undo has stored it again.
    Copied,
}

/// A time in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Time(Timestamp),
    /// The time in a record that was stored again. The write is later than this time.
    Copied(Timestamp),
    /// A time without a zone, which may be wrong by hours.
    NoZone,
}

impl Recorded {
    /// Marks the time as that of a record that was stored again.
    pub(super) fn copied(self) -> Self {
        match self {
            Self::Time(time) => Self::Copied(time),
            other => other,
        }
    }
}

/// The precision of most times that Calico records.
pub(crate) const RECORDED_TO: SignedDuration = SignedDuration::from_secs(1);

/// A known time of a revision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub revision: i64,
    pub time: Timestamp,
    /// True for the time of the write itself, false for an earlier time.
    pub is_of_write: bool,
}

/// Reads a time that Calico has written; `None` if the text is no time. A time without a zone is not assumed to be UTC.
pub(crate) fn recorded(text: &str) -> Option<Recorded> {
    let time = parse_time(text)?;
    let after_seconds = text.trim().get(DATE_AND_TIME..)?;
    let zone = match after_seconds.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => after_seconds,
    };
    if zone.trim().is_empty() {
        return Some(Recorded::NoZone);
    }
    Some(Recorded::Time(time))
}

/// The known times of revisions, for estimating the times of other revisions.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// The revisions, ascending.
    revisions: Vec<i64>,
    times: Vec<Timestamp>,
    /// The latest time at or before each position.
    latest: Vec<Timestamp>,
    /// The earliest time of a write at or after each position.
    earliest: Vec<Option<Timestamp>>,
}

impl Anchors {
    /// Sorts the known times by revision, and computes the bounds that they set. Times need not ascend with revisions,
    /// since clocks differ.
    pub(super) fn new(mut known: Vec<Anchor>) -> Self {
        known.sort_by_key(|anchor| anchor.revision);
        Self {
            revisions: known.iter().map(|anchor| anchor.revision).collect(),
            times: known.iter().map(|anchor| anchor.time).collect(),
            latest: latest_times(&known),
            earliest: earliest_times_of_writes(&known),
        }
    }

    /// Returns the time of the write at a revision: the recorded time in the written value, or else the bounds that the
    /// known times of other writes set.
    pub(super) fn time_of(&self, revision: i64, recorded: Option<Recorded>) -> When {
        let begin = self.revisions.partition_point(|other| *other < revision);
        let end = self.revisions.partition_point(|other| *other <= revision);
        let earlier = if begin > 0 {
            Some(self.latest[begin - 1])
        } else {
            None
        };
        let later = self.earliest.get(end).copied().flatten();
        let is_much_later = |first: Timestamp, second: Timestamp| first.duration_since(second) > CLOCK_SKEW;

        if let Some(Recorded::Time(time)) = recorded {
            let disagrees = earlier.is_some_and(|earlier| is_much_later(earlier, time))
                || later.is_some_and(|later| is_much_later(time, later));
            let uncertainty = if disagrees {
                Some(Uncertainty::ClocksDisagree)
            } else {
                None
            };
            return When {
                at: Some(time),
                uncertainty,
                ..When::default()
            };
        }

        // Other records in this revision, and the start of the run, have times that bound this one.
        let latest_of_revision = self.times[begin..end].iter().copied().max();
        if let Some(Recorded::Copied(time)) = recorded {
            let is_older = latest_of_revision.is_some_and(|latest| latest.duration_since(time) > RECORDED_TO)
                || earlier.is_some_and(|earlier| is_much_later(earlier, time));
            let is_too_late = later.is_some_and(|later| is_much_later(time, later));
            let uncertainty = if is_too_late {
                Some(Uncertainty::ClocksDisagree)
            } else if is_older {
                Some(Uncertainty::Copied)
            } else {
                None
            };
            return When {
                at: Some(time),
                uncertainty,
                ..When::default()
            };
        }

        let uncertainty = match recorded {
            Some(Recorded::NoZone) => Some(Uncertainty::NoZone),
            _ => None,
        };
        match (earlier.max(latest_of_revision), later) {
            (Some(after), Some(before)) if is_much_later(after, before) => When {
                uncertainty: Some(Uncertainty::ClocksDisagree),
                ..When::default()
            },
            // Within the tolerance for clocks, the bounds are exchanged.
            (Some(after), Some(before)) if after > before => When {
                after: Some(before),
                before: Some(after),
                uncertainty,
                at: None,
            },
            (after, before) => When {
                at: None,
                after,
                before,
                uncertainty,
            },
        }
    }
}

/// Returns for each position the latest time at or before it. Without wrong clocks, no later write has an earlier time.
fn latest_times(sorted: &[Anchor]) -> Vec<Timestamp> {
    let mut latest: Vec<Timestamp> = Vec::new();
    for anchor in sorted {
        let latest_before = latest.last().copied().unwrap_or(anchor.time);
        latest.push(latest_before.max(anchor.time));
    }
    latest
}

/// Returns for each position the earliest time of a write at or after it; `None` if no write follows. Only the time of
/// a write bounds the times of earlier writes: a record that was stored again has an older time than its write.
fn earliest_times_of_writes(sorted: &[Anchor]) -> Vec<Option<Timestamp>> {
    let mut earliest = Vec::new();
    let mut earliest_so_far: Option<Timestamp> = None;
    for anchor in sorted.iter().rev() {
        if anchor.is_of_write {
            let earliest_after = earliest_so_far.unwrap_or(anchor.time);
            earliest_so_far = Some(earliest_after.min(anchor.time));
        }
        earliest.push(earliest_so_far);
    }
    earliest.reverse();
    earliest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn write(revision: i64, at: &str) -> Anchor {
        Anchor {
            revision,
            time: time(at),
            is_of_write: true,
        }
    }

    #[test]
    fn a_time_without_zone_is_no_time() {
        let at = Some(Recorded::Time(time("2026-05-01T10:00:00.5Z")));
        for text in [
            "2026-05-01 10:00:00.5 +0000 UTC",
            "2026-05-01T10:00:00.5Z",
            "2026-05-01 12:00:00.5 +0200 CEST",
        ] {
            assert_eq!(recorded(text), at, "{text}");
        }
        for text in ["2026-05-01 10:00:00.5", "2026-05-01T10:00:00"] {
            assert_eq!(recorded(text), Some(Recorded::NoZone), "{text}");
        }
        assert_eq!(recorded("yesterday"), None);
    }

    #[test]
    fn bounds_are_the_nearest_known_times() {
        let anchors = Anchors::new(vec![
            write(9, "2026-05-01T11:00:00Z"),
            write(5, "2026-05-01T10:00:00Z"),
        ]);
        let between = anchors.time_of(7, None);
        assert_eq!(between.after, Some(time("2026-05-01T10:00:00Z")));
        assert_eq!(
            (between.before, between.uncertainty),
            (Some(time("2026-05-01T11:00:00Z")), None)
        );
        let first = anchors.time_of(3, None);
        assert_eq!(
            (first.after, first.before),
            (None, Some(time("2026-05-01T10:00:00Z")))
        );
        let own = anchors.time_of(7, Some(Recorded::Time(time("2026-05-01T10:30:00Z"))));
        assert_eq!(
            (own.at, own.uncertainty),
            (Some(time("2026-05-01T10:30:00Z")), None)
        );
        assert_eq!(
            anchors.time_of(7, Some(Recorded::NoZone)).uncertainty,
            Some(Uncertainty::NoZone)
        );
    }

    #[test]
    fn a_clock_that_went_backwards_bounds_nothing() {
        let anchors = Anchors::new(vec![
            write(5, "2026-05-01T12:00:00Z"),
            write(9, "2026-05-01T11:00:00Z"),
        ]);
        let between = anchors.time_of(7, None);
        let expected = (None, None, Some(Uncertainty::ClocksDisagree));
        assert_eq!((between.after, between.before, between.uncertainty), expected);
        let own = anchors.time_of(9, Some(Recorded::Time(time("2026-05-01T11:00:00Z"))));
        assert_eq!(
            (own.at.is_some(), own.uncertainty),
            (true, Some(Uncertainty::ClocksDisagree))
        );
    }

    #[test]
    fn a_record_that_was_stored_again_bounds_only_what_comes_after() {
        let old = Anchor {
            is_of_write: false,
            ..write(7, "2026-05-01T08:00:00Z")
        };
        let anchors = Anchors::new(vec![write(5, "2026-05-01T10:00:00Z"), old]);
        let before = anchors.time_of(6, None);
        assert_eq!(
            (before.after, before.before),
            (Some(time("2026-05-01T10:00:00Z")), None)
        );
        let own = anchors.time_of(7, Some(Recorded::Copied(old.time)));
        assert_eq!(
            (own.at, own.uncertainty),
            (Some(old.time), Some(Uncertainty::Copied))
        );
        let first = anchors.time_of(4, Some(Recorded::Time(time("2026-05-01T09:00:00Z"))));
        assert_eq!(first.uncertainty, None);
        let early = anchors.time_of(3, Some(Recorded::Copied(time("2026-05-01T11:00:00Z"))));
        assert_eq!(early.uncertainty, Some(Uncertainty::ClocksDisagree));
    }
}
