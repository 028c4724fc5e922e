//! A scheduler on one thread that is the same in every run of one seed.

use std::pin::Pin;
use std::task::{Context, Waker};

/// Random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

type Task<'w> = Pin<Box<dyn Future<Output = ()> + 'w>>;

/// A scheduler of clients, one of which makes each step.
pub(crate) struct Scheduler<'w> {
    tasks: Vec<Task<'w>>,
    rng: Rng,
}

impl<'w> Scheduler<'w> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { tasks: Vec::new(), rng: Rng(seed) }
    }

    pub(crate) fn add(&mut self, task: impl Future<Output = ()> + 'w) {
        self.tasks.push(Box::pin(task));
    }

    /// Lets one client go on to its next request; false if none is left.
    pub(crate) fn step(&mut self) -> bool {
        if self.tasks.is_empty() {
            return false;
        }
        let chosen = self.rng.below(self.tasks.len() as u64) as usize;
        let mut context = Context::from_waker(Waker::noop());
        if self.tasks[chosen].as_mut().poll(&mut context).is_ready() {
            drop(self.tasks.swap_remove(chosen));
        }
        true
    }

    /// True in `of_thousand` of a thousand cases.
    pub(crate) fn chance(&mut self, of_thousand: u64) -> bool {
        self.rng.below(1000) < of_thousand
    }

    /// Kills a client.
    pub(crate) fn kill(&mut self) {
        if !self.tasks.is_empty() {
            let chosen = self.rng.below(self.tasks.len() as u64) as usize;
            drop(self.tasks.swap_remove(chosen));
        }
    }
}
