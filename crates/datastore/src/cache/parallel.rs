//! Unpacking a cache, on all cores.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

/// Makes something of each number below `count`; `None` where that fails for one of them.
pub(super) fn on_all_cores<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Option<T> + Sync,
) -> Option<Vec<T>> {
    let mut all = Vec::with_capacity(count);
    in_order(count, make, |one| all.push(one))?;
    Some(all)
}

/// Makes something of each number below `count`, on all cores, and hands it over in the order of the numbers while others are
/// still being made; `None` where that fails for one of them.
pub(super) fn in_order<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Option<T> + Sync,
    mut take: impl FnMut(T),
) -> Option<()> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let next = AtomicUsize::new(0);
    // Those that are ahead wait, so that what is made does not pile up.
    let (sender, receiver) = sync_channel(threads);
    let work = |sender: std::sync::mpsc::SyncSender<(usize, T)>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            // Nothing follows one that fails: the receiver sees that it is missing.
            let Some(one) = make(index) else { return next.store(count, Ordering::Relaxed) };
            if sender.send((index, one)).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let (mut wanted, mut early) = (0, BTreeMap::new());
        for (index, one) in receiver {
            early.insert(index, one);
            while let Some(one) = early.remove(&wanted) {
                take(one);
                wanted += 1;
            }
        }
        (wanted == count).then_some(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_order_or_not_at_all() {
        for count in [0, 1, 7, 1_000] {
            assert_eq!(on_all_cores(count, Some), Some((0..count).collect()));
            for failing in (0..count).step_by(331) {
                assert_eq!(on_all_cores(count, |index| (index != failing).then_some(index)), None);
            }
        }
    }
}
