//! How it stands, from time to time.

use std::rc::Rc;

use super::World;
use crate::time::Micros;

/// Moments at which a failure is looked at.
const MOMENTS: u64 = 240;

impl World {
    /// Plans to look from `begin` to the end, at equal distances.
    pub(crate) fn plan_samples(self: &Rc<Self>, begin: Micros) {
        let long = self.scenario.end() - begin;
        for moment in 0..=MOMENTS {
            let world = Rc::clone(self);
            self.engine.at(begin + Micros(long.0 / MOMENTS * moment), move || {
                let sample = world.sample();
                world.measured.borrow_mut().samples.push(sample);
            });
        }
    }
}
