//! Unpacking a cache, on all cores.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Makes something of each number below `count`, in their order; `None` where that fails for one of them.
pub(super) fn on_all_cores<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Option<T> + Sync,
) -> Option<Vec<T>> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let work = || -> Option<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Some(());
            }
            let one = make(index)?;
            made.lock().ok()?.push((index, one));
        }
    };
    let is_sound = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().all(|thread| matches!(thread.join(), Ok(Some(()))))
    });
    let mut made = made.into_inner().ok().filter(|_| is_sound)?;
    made.sort_by_key(|(index, _)| *index);
    Some(made.into_iter().map(|(_, one)| one).collect())
}
