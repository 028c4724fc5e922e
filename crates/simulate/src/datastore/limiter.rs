//! The rate limit that a Kubernetes client observes.

use std::cell::Cell;

use crate::time::Micros;

/// A token bucket that measures requests by the time that they take at the rate limit.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The time that one request takes at the rate limit.
    gap: Micros,
    /// The time by which a client may be ahead of the rate limit.
    ahead: Micros,
    /// The time at which the counted requests would have been sent at the rate limit.
    spent: Cell<Micros>,
}

impl Limiter {
    /// Creates a limiter of `qps` requests per second, of which `burst` may be sent at once; `None` if `qps` is 0.
    pub(super) fn new(qps: u64, burst: u64) -> Option<Self> {
        if qps == 0 {
            return None;
        }
        let gap = Micros(1_000_000 / qps);
        Some(Self {
            gap,
            ahead: gap * burst.max(1).saturating_sub(1),
            spent: Cell::default(),
        })
    }

    /// Counts a request, and returns the time that it has to wait.
    pub(super) fn wait(&self, now: Micros) -> Micros {
        let due = self.spent.get().max(now);
        self.spent.set(due + self.gap);
        due - (now + self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_limit() {
        let limiter = Limiter::new(5, 3).unwrap();
        let waits: Vec<u64> = (0..6).map(|_| limiter.wait(Micros(0)).0).collect();
        assert_eq!(waits, [0, 0, 0, 200_000, 400_000, 600_000]);
        assert_eq!(limiter.wait(Micros::from_secs(60)).0, 0);
        assert!(Limiter::new(0, 10).is_none());
    }
}
