//! Decoding on all cores. One thread reads pieces, such as those of a file, the others decode them, and what becomes of them is
//! taken in the order in which they were read: the result is that of one thread.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Pieces that wait to be decoded, for each thread.
const AHEAD: usize = 2;

/// What takes the results, and those that wait for earlier ones.
struct State<D, T> {
    next: usize,
    waiting: BTreeMap<usize, D>,
    take: T,
    /// Nothing more is taken.
    is_over: bool,
}

/// Gives the pieces that `read` hands out to `decode`, on as many threads as there are cores, and the results one by one
/// to `take`, in order, until that breaks off. `read` has to stop where a piece is not accepted: then it is over.
pub fn in_order<P, D, R>(
    read: impl FnOnce(&mut dyn FnMut(P) -> bool) -> R,
    decode: impl Fn(P) -> D + Sync,
    take: impl FnMut(D) -> ControlFlow<()> + Send,
) -> R
where
    P: Send,
    D: Send,
{
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (sender, receiver) = sync_channel::<(usize, P)>(AHEAD * threads);
    let state = Mutex::new(State { next: 0, waiting: BTreeMap::new(), take, is_over: false });
    thread::scope(|scope| {
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let (receiver, state, decode) = (Arc::clone(&receiver), &state, &decode);
            scope.spawn(move || {
                loop {
                    let piece = lock(&receiver).recv();
                    let Ok((number, piece)) = piece else { return };
                    if !lock(state).is_over {
                        let decoded = decode(piece);
                        lock(state).add(number, decoded);
                    }
                }
            });
        }
        // The threads alone hold it: where all of them have failed, nothing more can be sent.
        drop(receiver);

        let mut number = 0;
        let result = read(&mut |piece| {
            let is_sent = !lock(&state).is_over && sender.send((number, piece)).is_ok();
            number += 1;
            is_sent
        });
        // The threads end when they have decoded what was sent.
        drop(sender);
        result
    })
}

impl<D, T: FnMut(D) -> ControlFlow<()>> State<D, T> {
    /// Takes a result, and those that waited for it.
    fn add(&mut self, number: usize, decoded: D) {
        self.waiting.insert(number, decoded);
        while let Some(decoded) = self.waiting.remove(&self.next) {
            self.next += 1;
            if !self.is_over {
                self.is_over = (self.take)(decoded).is_break();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        let mut taken = Vec::new();
        let sent = in_order(
            |give| (0..200u64).take_while(|piece| give(*piece)).count(),
            |piece| {
                // Early pieces take longer.
                thread::sleep(Duration::from_micros(if piece % 7 == 0 { 900 } else { 20 }));
                piece * 2
            },
            |decoded| {
                taken.push(decoded);
                ControlFlow::Continue(())
            },
        );
        assert_eq!((sent, taken), (200, (0..200).map(|piece| piece * 2).collect()));
    }

    #[test]
    fn it_is_over_when_a_result_says_so() {
        let mut taken = Vec::new();
        let sent = in_order(
            |give| (0..1_000_000u64).take_while(|piece| give(*piece)).count(),
            |piece| piece,
            |decoded| {
                taken.push(decoded);
                if decoded == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
        assert!(sent < 1_000_000);
    }
}
