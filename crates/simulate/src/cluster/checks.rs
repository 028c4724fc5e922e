//! Regular checks of the simulated cluster.

use std::collections::BTreeSet;
use std::rc::Rc;

use calipam_check::{Code, Options, check};

use super::World;
use crate::time::Micros;

/// Findings by code and subject.
type Findings = BTreeSet<(Code, String)>;

impl World {
    /// Plans checks from `time` to the end. Keeps only findings of two checks in a row, as with `--confirm`: pods that
    /// are starting or stopping look like faults for a moment. `previous` are the findings of the check before.
    pub(crate) fn plan_checks(self: &Rc<Self>, time: Micros, interval: Micros, previous: Findings) {
        if time > self.scenario.end() {
            return;
        }
        let world = Rc::clone(self);
        self.engine.at(time, move || {
            let report = check(&world.snapshot(), &Options::default());
            let mut findings = Findings::new();
            for finding in &report.findings {
                findings.insert((finding.code, finding.subject.to_string()));
            }

            let mut confirmed: BTreeSet<&'static str> = BTreeSet::new();
            for (code, _) in findings.intersection(&previous) {
                confirmed.insert(code.name());
            }
            world.measured.borrow_mut().checks.push((time, confirmed));
            world.plan_checks(time + interval, interval, findings);
        });
    }
}
