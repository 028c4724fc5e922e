//! When something happened, as well as it is known. etcd keeps the order of its revisions, but no times: those stand in
//! what was written, by the clock of the writer.

use calipam_model::time::{CLOCK_SKEW, parse_time};
use jiff::Timestamp;
use serde::Serialize;

/// A time, or what bounds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct When {
    /// What was recorded with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Otherwise: a known time of something that was written earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
    /// A known time of something that was written later, or of the reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// Why the time is doubtful.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

/// Why a time is doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// What was written earlier has a later time, by more than a minute: a clock is wrong or was set back.
    ClocksDisagree,
    /// The recorded time has no zone.
    NoZone,
}

/// A time as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Time(Timestamp),
    /// It names no zone, and could be any within a day.
    NoZone,
}

/// Reads a time as Calico writes it. One without zone is told apart: taking it for UTC would be a guess.
pub(crate) fn recorded(text: &str) -> Option<Recorded> {
    let time = parse_time(text)?;
    let rest = text.trim().get(19..)?;
    let rest = rest.strip_prefix('.').map_or(rest, |r| r.trim_start_matches(|c: char| c.is_ascii_digit()));
    Some(if rest.trim().is_empty() { Recorded::NoZone } else { Recorded::Time(time) })
}

/// The known times by revision.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// Ascending.
    revisions: Vec<i64>,
    times: Vec<Timestamp>,
    /// The latest time up to each place, and the earliest from there on.
    latest: Vec<Timestamp>,
    earliest: Vec<Timestamp>,
}

impl Anchors {
    pub fn new(mut known: Vec<(i64, Timestamp)>) -> Self {
        known.sort_unstable();
        let (revisions, times): (Vec<i64>, Vec<Timestamp>) = known.into_iter().unzip();
        let running =
            |last: &mut Option<Timestamp>, time: Timestamp, pick: fn(Timestamp, Timestamp) -> Timestamp| {
                *last = Some(last.map_or(time, |last| pick(last, time)));
                *last
            };
        let latest = times.iter().scan(None, |last, time| running(last, *time, Timestamp::max)).collect();
        let earliest = times.iter().rev().scan(None, |last, time| running(last, *time, Timestamp::min));
        let mut earliest: Vec<Timestamp> = earliest.collect();
        earliest.reverse();
        Self { revisions, times, latest, earliest }
    }

    /// When the write of a revision took place, with a time that was recorded in it.
    pub fn of(&self, revision: i64, own: Option<Recorded>) -> When {
        let begin = self.revisions.partition_point(|at| *at < revision);
        let end = self.revisions.partition_point(|at| *at <= revision);
        let earlier = begin.checked_sub(1).and_then(|last| self.latest.get(last)).copied();
        let later = self.earliest.get(end).copied();
        let is_far = |first: Timestamp, second: Timestamp| first.duration_since(second) > CLOCK_SKEW;
        if let Some(Recorded::Time(at)) = own {
            let disagrees = earlier.is_some_and(|earlier| is_far(earlier, at))
                || later.is_some_and(|later| is_far(at, later));
            let doubt = disagrees.then_some(Doubt::ClocksDisagree);
            return When { at: Some(at), doubt, ..When::default() };
        }
        let doubt = (own == Some(Recorded::NoZone)).then_some(Doubt::NoZone);
        // Others may have written something in the same revision.
        let same = self.times.get(begin..end).and_then(|same| same.iter().copied().max());
        match (earlier.max(same), later) {
            (Some(after), Some(before)) if is_far(after, before) => {
                When { doubt: Some(Doubt::ClocksDisagree), ..When::default() }
            }
            (Some(after), Some(before)) if after > before => {
                When { after: Some(before), before: Some(after), doubt, at: None }
            }
            (after, before) => When { at: None, after, before, doubt },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_time_without_zone_is_no_time() {
        let at = Some(Recorded::Time(time("2026-05-01T10:00:00.5Z")));
        for text in
            ["2026-05-01 10:00:00.5 +0000 UTC", "2026-05-01T10:00:00.5Z", "2026-05-01 12:00:00.5 +0200 CEST"]
        {
            assert_eq!(recorded(text), at, "{text}");
        }
        for text in ["2026-05-01 10:00:00.5", "2026-05-01T10:00:00"] {
            assert_eq!(recorded(text), Some(Recorded::NoZone), "{text}");
        }
        assert_eq!(recorded("yesterday"), None);
    }

    #[test]
    fn bounds_are_the_nearest_known_times() {
        let anchors =
            Anchors::new(vec![(9, time("2026-05-01T11:00:00Z")), (5, time("2026-05-01T10:00:00Z"))]);
        let between = anchors.of(7, None);
        assert_eq!(between.after, Some(time("2026-05-01T10:00:00Z")));
        assert_eq!((between.before, between.doubt), (Some(time("2026-05-01T11:00:00Z")), None));
        let first = anchors.of(3, None);
        assert_eq!((first.after, first.before), (None, Some(time("2026-05-01T10:00:00Z"))));
        let own = anchors.of(7, Some(Recorded::Time(time("2026-05-01T10:30:00Z"))));
        assert_eq!((own.at, own.doubt), (Some(time("2026-05-01T10:30:00Z")), None));
        assert_eq!(anchors.of(7, Some(Recorded::NoZone)).doubt, Some(Doubt::NoZone));
    }

    #[test]
    fn a_clock_that_went_backwards_bounds_nothing() {
        let anchors =
            Anchors::new(vec![(5, time("2026-05-01T12:00:00Z")), (9, time("2026-05-01T11:00:00Z"))]);
        let between = anchors.of(7, None);
        assert_eq!((between.after, between.before, between.doubt), (None, None, Some(Doubt::ClocksDisagree)));
        let own = anchors.of(9, Some(Recorded::Time(time("2026-05-01T11:00:00Z"))));
        assert_eq!((own.at.is_some(), own.doubt), (true, Some(Doubt::ClocksDisagree)));
    }
}
