//! Measurements of runs.

use std::time::Instant;

use anyhow::{Context, Result};

/// The measurements of one run. Values that were not measured are 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds of processor time.
    pub processor: f64,
    pub peak_mib: f64,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Measured {
    /// Measures the time of `work`.
    pub(crate) fn of<T>(work: impl FnOnce() -> Result<T>) -> Result<Self> {
        let start = Instant::now();
        let done = work()?;
        let seconds = start.elapsed().as_secs_f64();
        drop(done);
        Ok(Self {
            seconds,
            ..Self::default()
        })
    }

    /// The fastest run, with the highest memory peak of all runs.
    pub(crate) fn best(runs: Vec<Self>) -> Result<Self> {
        let peak_mib = Self::highest_peak(&runs);
        let best = runs.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(Self {
            peak_mib,
            ..best.context("nothing was measured")?
        })
    }

    /// The medians of all runs, with their highest memory peak.
    pub(crate) fn medians(runs: &[Self]) -> Self {
        let middle = |value: fn(&Self) -> f64| median(runs.iter().map(value).collect());
        Self {
            seconds: middle(|run| run.seconds),
            processor: middle(|run| run.processor),
            peak_mib: Self::highest_peak(runs),
            bytes: middle(|run| run.bytes as f64) as u64,
        }
    }

    fn highest_peak(runs: &[Self]) -> f64 {
        runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max)
    }
}

/// The median; 0 if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
