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

    /// Plans the first of `left` arrivals after one at `nanos`. Gaps vary between zero and twice the mean.
    fn plan_next(self: &Rc<Self>, left: u64, nanos: u64) {
        let gap = self.scenario.arrival().gap_nanos();
        let nanos = nanos.saturating_add(self.random_below(gap.saturating_mul(2).saturating_add(1)));
        let world = Rc::clone(self);
        self.engine.at(Micros(nanos / 1_000), move || {
            world.arrive();
            if left > 1 {
                world.plan_next(left - 1, nanos);
            }
        });
    }
}
