//! Latencies, distributed around a given time or as measured.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;
use crate::time::{Micros, NotADuration};

/// The ranks of the measured times, in thousandths: the shortest one, three percentiles, and the longest one.
const RANKS: [u64; 5] = [0, 500, 900, 990, 1_000];
/// The number of steps within a thousandth that a draw distinguishes.
const FINE: u64 = 1_000;

/// The varying time that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Evenly distributed around a time, within the jitter of the costs.
    Around(Micros),
    /// The shortest time, median, 90th and 99th percentile, and longest time. Between neighboring values, times are
    /// evenly distributed.
    Measured([Micros; 5]),
}

impl Latency {
    /// The latency from measured times in ascending order; `None` if there are none.
    pub fn measured(ascending: &[Micros]) -> Option<Self> {
        let last = ascending.len().checked_sub(1)? as u64;
        Some(Self::Measured(
            RANKS.map(|rank| ascending[(last * rank).div_ceil(1_000) as usize]),
        ))
    }

    pub fn median(self) -> Micros {
        match self {
            Self::Around(time) => time,
            Self::Measured(times) => times[1],
        }
    }

    /// Draws a time: around a given one, or at a random rank among the measured ones, which are at the ranks [`RANKS`].
    pub(super) fn draw(self, random: &mut Random, jitter_permille: u64) -> Micros {
        let times = match self {
            Self::Around(time) => return random.around(time, jitter_permille),
            Self::Measured(times) => times,
        };

        // A random rank, and the two measured ranks around it. The highest rank is never drawn, so there is an upper
        // one.
        let rank = random.below(1_000 * FINE);
        let lower = RANKS.iter().rposition(|known| known * FINE <= rank).unwrap_or(0);
        let upper = lower + 1;

        // In between, the times grow evenly.
        let lower_rank = RANKS[lower] * FINE;
        let upper_rank = RANKS[upper] * FINE;
        let difference = times[upper] - times[lower];
        let above_lower = difference.0.saturating_mul(rank - lower_rank) / (upper_rank - lower_rank);
        times[lower] + Micros(above_lower)
    }

    /// The text that `--latency` accepts, precise to the microsecond.
    pub fn text(self) -> String {
        let micros = |time: Micros| {
            if time.is_zero() {
                "0".to_owned()
            } else {
                format!("{}us", time.0)
            }
        };
        match self {
            Self::Around(time) => micros(time),
            Self::Measured(times) => times.map(micros).join("/"),
        }
    }
}

impl FromStr for Latency {
    type Err = NotADuration;

    /// Parses one time, or five measured times in ascending order, with slashes in between.
    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let mut times: Vec<Micros> = Vec::new();
        for part in text.split('/') {
            times.push(part.parse()?);
        }
        if times.len() == 1 {
            return Ok(Self::Around(times[0]));
        }
        match <[Micros; 5]>::try_from(times) {
            Ok(times) if times.is_sorted() => Ok(Self::Measured(times)),
            _ => Err(NotADuration(text.to_owned())),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Around(time) => time.fmt(f),
            Self::Measured(times) => f.write_str(&times.map(|time| time.to_string()).join("/")),
        }
    }
}

calipam_model::serialize_displayed!(Latency);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_percentiles_that_were_measured() {
        let measured: Latency = "1ms/2ms/5ms/40ms/90ms".parse().unwrap();
        let mut random = Random::new(1, 1);
        let mut drawn: Vec<Micros> = (0..100_000).map(|_| measured.draw(&mut random, 250)).collect();
        drawn.sort();
        let Some(Latency::Measured(again)) = Latency::measured(&drawn) else {
            panic!("not measured")
        };
        for (found, wanted) in again.iter().zip([1_000, 2_000, 5_000, 40_000, 90_000]) {
            let off = found.0.abs_diff(wanted) as f64 / wanted as f64;
            assert!(off < 0.05, "{again:?}");
        }
        assert!(
            drawn[0] >= Micros(1_000) && drawn[99_999] <= Micros(90_000),
            "{again:?}"
        );
    }

    #[test]
    fn one_time_or_five_in_order() {
        assert_eq!("2ms".parse::<Latency>().unwrap(), Latency::Around(Micros(2_000)));
        for bad in [
            "",
            "1ms/2ms",
            "2ms/1ms/3ms/4ms/5ms",
            "1ms/2ms/3ms/4ms/5ms/6ms",
            "1ms/x/3ms/4ms/5ms",
        ] {
            assert!(bad.parse::<Latency>().is_err(), "{bad}");
        }
        let same = Latency::measured(&[Micros(7)]).unwrap();
        assert_eq!(same.text(), "7us/7us/7us/7us/7us");
        assert_eq!(same.text().parse(), Ok(same));
        assert_eq!(Latency::measured(&[]), None);
    }
}
