//! Parallel work on all cores. Results are in the order of the inputs, as if there were only one thread.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Maximum number of pieces per thread that are waiting to be decoded.
const AHEAD: usize = 2;

/// The number of threads that can run at the same time. It is determined only once, because it has to be read from
/// files.
pub fn cores() -> NonZeroUsize {
    static CORES: OnceLock<NonZeroUsize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
}

/// Runs `work` for each number below `count` on at most this many threads, and returns the results in the order of the
/// numbers.
pub fn map<T: Send>(threads: NonZeroUsize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.get().min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let mut results = Vec::with_capacity(count);
    let receive = |result| {
        results.push(result);
        ControlFlow::<()>::Continue(())
    };
    // The returned value would say that `receive` has ended the work early, which it never does.
    let _ = in_order_on(threads, 0..count, work, receive);
    results
}

/// The smallest number of objects that justifies a thread.
pub const OBJECTS: usize = 1 << 14;
/// The smallest number of blocks or shards that justifies a thread. Each holds many objects.
pub const BLOCKS: usize = 16;

/// Splits the numbers below `length` into ranges, at most one per core, and runs `work` on each range. A range has at
/// least `least` numbers, unless `length` is smaller. Returns the results in order.
pub fn in_parts<T: Send>(least: usize, length: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let parts = cores().get().min(length / least).max(1);
    let start = |part: usize| length * part / parts;
    map(cores(), parts, |part| work(start(part)..start(part + 1)))
}

/// Decodes pieces from an iterator, such as parts of a file, while later ones are still being read. `receive` gets the
/// results in order. Once it returns [`ControlFlow::Break`], reading ends as well.
pub fn in_order<P: Send, D: Send, B: Send>(
    pieces: impl Iterator<Item = P>,
    decode: impl Fn(P) -> D + Sync,
    receive: impl FnMut(D) -> ControlFlow<B> + Send,
) -> ControlFlow<B> {
    in_order_on(cores().get(), pieces, decode, receive)
}

/// The receiver of the results, and results that wait for earlier ones.
struct State<D, B, T> {
    next: usize,
    waiting: BTreeMap<usize, D>,
    receive: T,
    /// After a break, no more results are passed on.
    flow: ControlFlow<B>,
}

/// Decodes pieces on several threads, and passes the results on in the order of the pieces.
fn in_order_on<P: Send, D: Send, B: Send>(
    threads: usize,
    pieces: impl Iterator<Item = P>,
    decode: impl Fn(P) -> D + Sync,
    receive: impl FnMut(D) -> ControlFlow<B> + Send,
) -> ControlFlow<B> {
    let (sender, receiver) = sync_channel::<(usize, P)>(AHEAD * threads);
    let state = Mutex::new(State {
        next: 0,
        waiting: BTreeMap::new(),
        receive,
        flow: ControlFlow::Continue(()),
    });
    thread::scope(|scope| {
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            let state = &state;
            let decode = &decode;
            scope.spawn(move || {
                loop {
                    let received = lock(&receiver).recv();
                    let Ok((number, piece)) = received else { return };
                    if lock(state).flow.is_continue() {
                        let decoded = decode(piece);
                        lock(state).add(number, decoded);
                    }
                }
            });
        }
        // Only the worker threads hold the receiver, so sending fails if all of them have panicked.
        drop(receiver);

        for piece in pieces.enumerate() {
            if lock(&state).flow.is_break() || sender.send(piece).is_err() {
                break;
            }
        }
        // Once the sender is dropped, the threads end after they have decoded the remaining pieces.
        drop(sender);
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).flow
}

impl<D, B, T: FnMut(D) -> ControlFlow<B>> State<D, B, T> {
    /// Adds a result. Then passes on all results that no longer have to wait for an earlier one.
    fn add(&mut self, number: usize, decoded: D) {
        self.waiting.insert(number, decoded);
        while let Some(decoded) = self.waiting.remove(&self.next) {
            self.next += 1;
            if self.flow.is_continue() {
                self.flow = (self.receive)(decoded);
            }
        }
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ranges_cover_all_numbers_in_order() {
        for length in [0, 1, OBJECTS, 5 * OBJECTS + 3] {
            let all: Vec<usize> = in_parts(OBJECTS, length, |range| range.collect::<Vec<_>>()).concat();
            assert_eq!(all, (0..length).collect::<Vec<_>>());
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        let mut taken = Vec::new();
        let end: ControlFlow<()> = in_order(
            0..200u64,
            |piece| {
                // Every seventh piece takes longer than those that follow it.
                thread::sleep(Duration::from_micros(if piece % 7 == 0 { 900 } else { 20 }));
                piece * 2
            },
            |decoded| {
                taken.push(decoded);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(
            (end, taken),
            (
                ControlFlow::Continue(()),
                (0..200).map(|piece| piece * 2).collect()
            )
        );
    }

    #[test]
    fn in_order_stops_at_a_break() {
        let (mut taken, mut sent) = (Vec::new(), 0);
        let end = in_order(
            (0..1_000_000u64).inspect(|_| sent += 1),
            |piece| piece,
            |decoded| {
                taken.push(decoded);
                if decoded == 5 {
                    ControlFlow::Break("five")
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        assert_eq!((end, taken), (ControlFlow::Break("five"), vec![0, 1, 2, 3, 4, 5]));
        assert!(sent < 1_000_000);
    }

    #[test]
    fn map_keeps_the_order() {
        for threads in [1, 3, 99].map(|threads| NonZeroUsize::new(threads).unwrap()) {
            assert_eq!(
                map(threads, 50, |number| number * 2),
                (0..100).step_by(2).collect::<Vec<_>>()
            );
            assert!(map(threads, 0, |number| number).is_empty());
        }
    }
}
