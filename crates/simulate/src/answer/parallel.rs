//! Independent runs side by side.

use std::num::NonZeroUsize;

use calipam_model::parallel;

/// How many runs go on at the same time. No result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Default for Threads {
    /// One for each processor.
    fn default() -> Self {
        Self(parallel::cores())
    }
}

impl From<NonZeroUsize> for Threads {
    fn from(count: NonZeroUsize) -> Self {
        Self(count)
    }
}

/// How often each scenario runs, and how many runs go on at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    pub each: u64,
    pub threads: Threads,
}

impl Runs {
    /// Each scenario once, as it is.
    pub fn once(threads: Threads) -> Self {
        Self { each: 1, threads }
    }
}

/// Does `work` for each of some jobs, from the last on; the results come in the order of the jobs. More nodes and smaller blocks
/// are at the end of lists of them and take longest: what is begun first does not hold up the end.
pub(super) fn map<J: Sync, T: Send>(threads: Threads, jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let mut results = parallel::map(threads.0, jobs.len(), |number| work(&jobs[jobs.len() - 1 - number]));
    results.reverse();
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        let doubled: Vec<u64> = (0..100).step_by(2).collect();
        for threads in [1, 3, 99].map(|count| Threads::from(NonZeroUsize::new(count).unwrap())) {
            assert_eq!(map(threads, &jobs, |job| job * 2), doubled);
        }
        assert!(map(Threads::default(), &[] as &[u64], |job| *job).is_empty());
    }
}
