//! How it stands, from time to time.

use std::rc::Rc;

use super::World;
use crate::time::Micros;

impl World {
    /// Plans to look from `begin` to the end, at so many equal distances.
    pub(crate) fn plan_samples(self: &Rc<Self>, begin: Micros, count: u64) {
        let long = self.scenario.end() - begin;
        for moment in 0..=count {
            let world = Rc::clone(self);
            self.engine.at(begin + Micros(long.0 / count * moment), move || world.take_sample());
        }
    }

    pub(super) fn take_sample(&self) {
        let sample = self.sample();
        self.measured.borrow_mut().samples.push(sample);
    }
}
