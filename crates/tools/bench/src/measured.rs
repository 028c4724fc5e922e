//! Measurements.

use std::cmp::Ordering;
use std::time::Instant;

use crate::Failed;

/// The measurements of one run. Values that were not measured are 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds of processor time.
    pub processor: f64,
    pub peak_mib: f64,
    /// Bytes that a floor read.
    pub bytes: u64,
}

impl Measured {
    /// Measures the time of `work`.
    pub(crate) fn of<T>(work: impl FnOnce() -> Result<T, Failed>) -> Result<Self, Failed> {
        let start = Instant::now();
        let done = work()?;
        let seconds = start.elapsed().as_secs_f64();
        drop(done);
        Ok(Self { seconds, ..Self::default() })
    }

    /// The fastest run, with the highest memory peak of all runs.
    pub(crate) fn best(runs: Vec<Self>) -> Result<Self, Failed> {
        let peak_mib = runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
        let best = runs.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        best.map(|best| Self { peak_mib, ..best }).ok_or_else(|| "nothing was measured".into())
    }
}

/// The median; 0 if there are no values.
pub(crate) fn median<T: Copy + Default + PartialOrd>(values: impl IntoIterator<Item = T>) -> T {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Values in ascending order.
pub(crate) fn sorted<T: PartialOrd>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    values
}
