//! Rules that decide which exports of an archive are kept: `24h:all,30d:daily,1y:monthly`.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The period of a rule. The rule keeps the last export in each such period, or every export with `All`. Periods are in
/// UTC, and weeks are ISO weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    All,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A rule that applies to exports up to a certain age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    younger_than: SignedDuration,
    every: Every,
}

/// Rules that decide which exports are kept. An export that is too old for every rule is removed, unless it is the
/// newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep(Vec<Rule>);

/// The error for text that is not a list of rules in ascending order of age.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeepError(String);

impl FromStr for Keep {
    type Err = KeepError;

    /// Parses rules such as `24h:all,30d:daily`, from the shortest time to the longest.
    fn from_str(text: &str) -> Result<Self, KeepError> {
        let mut rules: Vec<Rule> = Vec::new();
        for part in text.split(',') {
            rules.push(parse_rule(part)?);
        }
        let are_ascending = rules.is_sorted_by(|rule, next| rule.younger_than < next.younger_than);
        if !are_ascending {
            return Err(KeepError(
                "each time must be longer than the previous one".to_owned(),
            ));
        }
        Ok(Self(rules))
    }
}

/// The largest number of hours, days, weeks or years in a rule.
const LARGEST_NUMBER: i64 = 100_000;

/// Parses a rule such as `30d:daily`: the age up to which it holds, and the period of which one export is kept.
fn parse_rule(text: &str) -> Result<Rule, KeepError> {
    let expected = || {
        KeepError(format!(
            "{text:?} is not a rule: expected TIME:HOW, such as `24h:all`, `30d:daily` or `1y:monthly`; HOW is all, hourly, \
             daily, weekly, monthly or yearly"
        ))
    };
    let (time, how) = text.trim().split_once(':').ok_or_else(expected)?;
    let every = match how {
        "all" => Every::All,
        "hourly" => Every::Hour,
        "daily" => Every::Day,
        "weekly" => Every::Week,
        "monthly" => Every::Month,
        "yearly" => Every::Year,
        _ => return Err(expected()),
    };
    Ok(Rule {
        younger_than: parse_time(time).ok_or_else(expected)?,
        every,
    })
}

/// Parses a time such as `30d`; `None` if its unit is unknown or its number is out of range.
fn parse_time(text: &str) -> Option<SignedDuration> {
    let (last, unit) = text.char_indices().next_back()?;
    let hours_of_unit = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        'y' => 365 * 24,
        _ => return None,
    };
    let number: i64 = text[..last].parse().ok()?;
    if !(1..=LARGEST_NUMBER).contains(&number) {
        return None;
    }
    Some(SignedDuration::from_hours(number * hours_of_unit))
}

impl Keep {
    /// Returns whether each export is to be removed. `times` are the times of the exports, in ascending order. The
    /// newest export is always kept. An export later than `now` is also kept: a clock must be wrong, so the age of the
    /// export is unknown.
    pub fn to_remove(&self, times: &[Timestamp], now: Timestamp) -> Vec<bool> {
        let newest = times.len().saturating_sub(1);
        let mut periods_with_export = BTreeSet::new();
        let mut remove = vec![false; times.len()];
        // Going backward, the last export of each period comes first.
        for (position, time) in times.iter().enumerate().rev() {
            let age = now.duration_since(*time);
            if age.is_negative() {
                continue;
            }
            let Some(rule) = self.0.iter().position(|rule| age <= rule.younger_than) else {
                remove[position] = position != newest;
                continue;
            };
            let every = self.0[rule].every;
            if every == Every::All {
                continue;
            }
            let is_last_of_period = periods_with_export.insert((rule, period(*time, every)));
            remove[position] = !is_last_of_period && position != newest;
        }
        remove
    }
}

/// Returns the hour, day, week, month or year that contains a time, as text. With [`Every::All`], each second is a
/// period, so every export is the last one of its period.
fn period(time: Timestamp, every: Every) -> String {
    let format = match every {
        Every::All => "%s",
        Every::Hour => "%Y-%m-%d %H",
        Every::Day => "%Y-%m-%d",
        Every::Week => "%G-%V",
        Every::Month => "%Y-%m",
        Every::Year => "%Y",
    };
    time.to_zoned(TimeZone::UTC).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read() {
        for good in [
            "24h:all",
            "24h:all,30d:daily,1y:monthly",
            "1w:hourly,5y:yearly",
            "2d:all, 8w:weekly",
        ] {
            assert!(good.parse::<Keep>().is_ok(), "{good}");
        }
        let words = "all 24h 24h:some h:all 0d:all -1d:all 1.5d:all 30d:daily,24h:all 1d:all,";
        for bad in words.split(' ').chain([""]) {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_of_each_period_stays() {
        let keep: Keep = "24h:all,30d:daily,1y:monthly".parse().unwrap();
        let times = [
            "2024-01-01T00:00:00Z",
            "2026-01-03T00:00:00Z",
            "2026-01-09T00:00:00Z",
            "2026-05-01T01:00:00Z",
            "2026-05-01T23:00:00Z",
            "2026-05-02T05:00:00Z",
            "2026-05-09T10:30:00Z",
            "2026-05-09T11:00:00Z",
        ]
        .map(time);
        let remove = keep.to_remove(&times, time("2026-05-09T12:00:00Z"));
        assert_eq!(remove, [true, true, false, true, false, false, false, false]);
        // The result does not change if the rules are applied again.
        let stays: Vec<Timestamp> = times
            .iter()
            .zip(&remove)
            .filter(|(_, remove)| !**remove)
            .map(|(time, _)| *time)
            .collect();
        assert!(
            !keep
                .to_remove(&stays, time("2026-05-09T12:00:00Z"))
                .contains(&true)
        );
    }

    #[test]
    fn the_newest_stays_and_so_does_the_future() {
        let keep: Keep = "1h:all".parse().unwrap();
        let old = [time("2020-01-01T00:00:00Z"), time("2020-01-02T00:00:00Z")];
        assert_eq!(keep.to_remove(&old, time("2026-01-01T00:00:00Z")), [true, false]);
        let future = [time("2020-01-01T00:00:00Z"), time("2030-01-02T00:00:00Z")];
        assert_eq!(
            keep.to_remove(&future, time("2026-01-01T00:00:00Z")),
            [true, false]
        );
        assert!(keep.to_remove(&[], time("2026-01-01T00:00:00Z")).is_empty());
    }
}
