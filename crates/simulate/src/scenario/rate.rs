//! Rates: numbers of events in a period.

use std::fmt;
use std::str::FromStr;

use crate::time::{Micros, NANOS_PER_SECOND};

/// The most digits after the decimal point of a rate.
const MOST_DECIMALS: usize = 6;

/// A number of events in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    /// The length of the period, in seconds.
    period: u64,
}

/// A string that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotARate {
    #[error("{0:?} is not a rate such as `10`, `10/s`, `300/m` or `5000/h`")]
    Text(String),
    #[error("{0:?} is negative")]
    Negative(String),
    #[error("{0:?} means that no pod ever arrives")]
    Zero(String),
}

impl Rate {
    /// A rate of `count` events in `period`, which is rounded down to whole seconds.
    pub fn per(count: u64, period: Micros) -> Self {
        Self {
            count: count.max(1),
            period: (period.0 / 1_000_000).max(1),
        }
    }

    /// Returns the rate times `factor`, divided by `divisor`.
    pub fn scaled(self, factor: u64, divisor: u64) -> Self {
        Self {
            count: (self.count * factor).max(1),
            period: self.period * divisor.max(1),
        }
    }

    /// The average time between two events, in nanoseconds.
    pub fn gap_nanos(self) -> u64 {
        self.period.saturating_mul(NANOS_PER_SECOND) / self.count
    }

    /// The time that `count` events take.
    pub fn time_for(self, count: u64) -> Micros {
        Micros(
            (u128::from(self.gap_nanos()) * u128::from(count) / 1_000)
                .try_into()
                .unwrap_or(u64::MAX),
        )
    }
}

impl FromStr for Rate {
    type Err = NotARate;

    /// Parses a rate such as `5/s`, `0.5/m` or `20`, without a loss of digits.
    fn from_str(text: &str) -> Result<Self, NotARate> {
        let refused = || NotARate::Text(text.to_owned());
        let (number, unit) = text.trim().split_once('/').unwrap_or((text.trim(), "s"));
        let number = number.trim();
        let period = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => return Err(refused()),
        };
        if number.starts_with('-') {
            return Err(NotARate::Negative(text.to_owned()));
        }

        // `0.5/s` means five in ten seconds.
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.len() > MOST_DECIMALS {
            return Err(refused());
        }
        let scale = 10u64.pow(fraction.len() as u32);
        let count: u64 = format!("{whole}{fraction}").parse().map_err(|_| refused())?;
        if count == 0 {
            return Err(NotARate::Zero(text.to_owned()));
        }
        // A rate above one event per nanosecond is not possible.
        if count / scale / period > NANOS_PER_SECOND {
            return Err(refused());
        }
        Ok(Self {
            count,
            period: period * scale,
        })
    }
}

impl fmt::Display for Rate {
    /// Writes the rate in a form that can be parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, period } = *self;
        // A rate that is no whole number per second, minute or hour is rounded down to thousandths.
        match period {
            1 => write!(f, "{count}/s"),
            60 => write!(f, "{count}/m"),
            3_600 => write!(f, "{count}/h"),
            _ if count % period == 0 => write!(f, "{}/s", count / period),
            _ => {
                let thousandths = u128::from(count) * 1_000 / u128::from(period);
                write!(f, "{}.{:03}/s", thousandths / 1_000, thousandths % 1_000)
            }
        }
    }
}

calipam_model::serialize_displayed!(Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, gap) in [
            ("10", 100_000_000),
            ("10/s", 100_000_000),
            ("30/m", 2_000_000_000),
            ("0.5", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().gap_nanos(), gap, "{text}");
        }
        assert_eq!(
            "20/s".parse::<Rate>().unwrap().time_for(100),
            Micros::from_secs(5)
        );
        assert_eq!(Rate::per(100, Micros::from_secs(5)).to_string(), "20/s");
    }

    #[test]
    fn invalid_rates_are_refused() {
        for bad in ["", "x", "5/d", "1.1234567", "99999999999999999999"] {
            assert!(matches!(bad.parse::<Rate>(), Err(NotARate::Text(_))), "{bad}");
        }
        assert!(matches!("-3/s".parse::<Rate>(), Err(NotARate::Negative(_))));
        assert!(matches!("0/s".parse::<Rate>(), Err(NotARate::Zero(_))));
    }
}
