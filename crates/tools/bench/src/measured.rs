//! Measurements, and comparisons with a floor: the time in which a minimal client does the same work.

use std::cmp::Ordering;
use std::time::Instant;

use crate::Failed;

/// The largest difference in bytes between complete responses to the same request.
const CUT: u64 = 1_000;

/// The measurements of one run. Values that were not measured are 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds of processor time: of the process, or of the API server that it used.
    pub processor: f64,
    pub peak_mib: f64,
    /// Bytes that a floor read.
    pub bytes: u64,
    /// Number of ranges in which a floor read etcd.
    pub ranges: usize,
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

    pub(crate) fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6
    }
}

/// A command and its floor.
pub(crate) struct Compared {
    pub floor: Measured,
    pub command: Measured,
}

impl Compared {
    /// Measures a floor and a command `runs` times each, and keeps the best of each.
    ///
    /// They take turns, so that a disturbance of the machine affects both. Disturbances only ever make a run slower.
    pub(crate) fn best_of(
        runs: usize,
        floor: impl FnMut() -> Result<Measured, Failed>,
        command: impl FnMut() -> Result<Measured, Failed>,
    ) -> Result<Self, Failed> {
        let [floors, commands] = in_turns(runs, floor, command)?;
        let most = floors.iter().map(|floor| floor.bytes).max().unwrap_or_default();
        if floors.iter().any(|floor| floor.bytes + CUT < most) {
            return Err("the server broke off one of its answers".into());
        }
        Ok(Self { floor: Measured::best(floors)?, command: Measured::best(commands)? })
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.command.seconds / self.floor.seconds
    }

    /// The table cells: the times of the floor and the command, their ratio, and the command's memory.
    pub(crate) fn cells(&self) -> String {
        let (floor, Measured { seconds, peak_mib, .. }) = (self.floor.seconds, self.command);
        format!("{floor:.2} s | {seconds:.2} s | {:.2} | {peak_mib:.0} MiB", self.ratio())
    }
}

/// Runs a floor and a command alternately, `runs` times each.
pub(crate) fn in_turns(
    runs: usize,
    mut floor: impl FnMut() -> Result<Measured, Failed>,
    mut command: impl FnMut() -> Result<Measured, Failed>,
) -> Result<[Vec<Measured>; 2], Failed> {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        all[0].push(floor()?);
        all[1].push(command()?);
    }
    Ok(all)
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

/// The median and the highest of some times, in milliseconds.
pub(crate) fn middle_and_slowest(runs: &[Measured]) -> [f64; 2] {
    let millis = || runs.iter().map(|run| run.seconds * 1e3);
    [median(millis()), millis().fold(0.0, f64::max)]
}
