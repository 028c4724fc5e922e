//! Pods that arrive one after the other until the cluster is full.

use std::rc::Rc;

use super::World;
use crate::time::Micros;

impl World {
    /// Plans the first arrival. Each arrival plans the next one.
    pub(super) fn plan_arrivals(self: &Rc<Self>) {
        let count = self.scenario.pod_count();
        if count > 0 {
            self.plan_next(count, 0);
        }
    }

    /// Plans the first of `remaining` arrivals, which then plans the next one. `previous` is the time of the arrival
    /// before it, in nanoseconds, because many pods can arrive in a microsecond.
    fn plan_next(self: &Rc<Self>, remaining: u64, previous: u64) {
        // Gaps vary between zero and twice the mean.
        let mean_gap = self.scenario.arrival().gap_nanos();
        let gap = self.random_below(mean_gap.saturating_mul(2).saturating_add(1));
        let nanos = previous.saturating_add(gap);

        let world = Rc::clone(self);
        self.engine.at(Micros(nanos / 1_000), move || {
            world.arrive();
            if remaining > 1 {
                world.plan_next(remaining - 1, nanos);
            }
        });
    }
}
