//! Virtual time in integer microseconds, so that the same run gives the same times on any machine.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde::{Serialize, Serializer};

/// The wall-clock time at which simulations start. Any time would do. The times in blocks and records are relative to
/// it.
const BEGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The number of nanoseconds in a second.
pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A time since the start of a simulation, or a duration, in microseconds. Printed as `2ms` or `1h 30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    pub const ZERO: Self = Self(0);

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000)
    }

    pub const fn from_mins(minutes: u64) -> Self {
        Self::from_secs(minutes * 60)
    }

    /// The time that a wall clock in a simulation shows.
    pub fn timestamp(self) -> Timestamp {
        BEGIN.saturating_add(self.duration()).unwrap_or(Timestamp::MAX)
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub fn duration(self) -> SignedDuration {
        SignedDuration::from_micros(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl From<std::time::Duration> for Micros {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Converts negative durations to 0.
impl From<SignedDuration> for Micros {
    fn from(duration: SignedDuration) -> Self {
        if duration.is_negative() {
            return Self::ZERO;
        }
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Micros {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// A string that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as `2ms`, `30s`, `15m`, `1h30m` or `0`")]
pub struct NotADuration(pub(crate) String);

impl FromStr for Micros {
    type Err = NotADuration;

    /// Parses a duration such as `90s` or `1h 30m`, or `0`. A day has 24 hours. Refuses negative durations.
    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let refused = || NotADuration(text.to_owned());
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Self::ZERO);
        }
        let span: Span = trimmed.parse().map_err(|_| refused())?;
        let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
        let microseconds = duration.map_err(|_| refused())?.as_micros();
        match u64::try_from(microseconds) {
            Ok(microseconds) => Ok(Self(microseconds)),
            Err(_) => Err(refused()),
        }
    }
}

impl fmt::Display for Micros {
    /// Prints at most three digits, or full seconds from a minute on: `340µs`, `2.1ms`, `45s`, `2h 5m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each range ends where rounding would add a digit.
        let tenths = |unit: u64| (self.0 + unit / 20) / (unit / 10);
        let text = match self.0 {
            0 => "0".to_owned(),
            1..1_000 => format!("{}µs", self.0),
            1_000..99_950 => with_tenth(tenths(1_000), "ms"),
            99_950..999_500 => format!("{}ms", (self.0 + 500) / 1_000),
            999_500..59_950_000 => with_tenth(tenths(1_000_000), "s"),
            _ => minutes((self.0 + 500_000) / 1_000_000),
        };
        f.pad(&text)
    }
}

fn with_tenth(tenths: u64, unit: &str) -> String {
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        tenth => format!("{}.{tenth}{unit}", tenths / 10),
    }
}

/// Formats seconds as hours, minutes and seconds, without those that are zero: `2h 5m`.
fn minutes(seconds: u64) -> String {
    let mut parts = Vec::new();
    for (count, unit) in [
        (seconds / 3_600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ] {
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        }
    }
    parts.join(" ")
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#}", self.duration()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, micros) in [
            ("0", 0),
            ("250us", 250),
            ("2ms", 2_000),
            ("1.5s", 1_500_000),
            ("1h30m", 5_400_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Micros(micros)), "{text}");
        }
        for bad in ["", "5", "-1s", "soon"] {
            assert!(bad.parse::<Micros>().is_err(), "{bad}");
        }
    }

    #[test]
    fn they_are_shown_in_two_or_three_figures() {
        for (micros, text) in [
            (0, "0"),
            (340, "340µs"),
            (2_140, "2.1ms"),
            (45_000, "45ms"),
            (99_960, "100ms"),
            (999_700, "1s"),
            (45_060_000, "45.1s"),
            (7_500_000_000, "2h 5m"),
        ] {
            assert_eq!(Micros(micros).to_string(), text);
        }
    }

    #[test]
    fn times_in_json_are_read_back() {
        for micros in [0, 1, 1_234, 90_000_001, 86_400_000_000] {
            let json = serde_json::to_value(Micros(micros)).unwrap();
            assert_eq!(json.as_str().unwrap().parse(), Ok(Micros(micros)), "{json}");
        }
    }
}
