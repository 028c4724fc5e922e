//! Independent runs side by side.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many runs go on at the same time. No result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Default for Threads {
    /// One for each processor.
    fn default() -> Self {
        Self(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

impl From<NonZeroUsize> for Threads {
    fn from(count: NonZeroUsize) -> Self {
        Self(count)
    }
}

/// Does `work` for each of some jobs, from the last on; the results come in the order of the jobs. More nodes and smaller blocks
/// stand at the end of lists of them and take longest: what is begun first does not hold up the end.
pub(super) fn map<J: Sync, T: Send>(threads: Threads, jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let threads = threads.0.get().min(jobs.len().max(1));
    let begun = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let with_this = begun.fetch_add(1, Ordering::Relaxed) + 1;
                    let Some(index) = jobs.len().checked_sub(with_this) else { break };
                    let result = work(&jobs[index]);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
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
