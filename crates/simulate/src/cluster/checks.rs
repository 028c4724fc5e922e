//! Regular checks of the simulated cluster.

use std::collections::BTreeSet;
use std::rc::Rc;

use calipam_check::{Code, Options, check};

use super::World;
use crate::time::Micros;

/// Findings by code and subject.
type Findings = BTreeSet<(Code, String)>;

impl World {
    /// Plans checks from `at` to the end. Keeps only findings of two checks in a row, as with `--confirm`: pods that are
    /// starting or stopping look like faults for a moment. `before` are the findings of the previous check.
    pub(crate) fn plan_checks(self: &Rc<Self>, at: Micros, every: Micros, before: Findings) {
        if at > self.scenario.end() {
            return;
        }
        let world = Rc::clone(self);
        self.engine.at(at, move || {
            let report = check(&world.snapshot(), &Options::default());
            let found: Findings = report
                .findings
                .iter()
                .map(|finding| (finding.code, finding.subject.to_string()))
                .collect();
            let confirmed: BTreeSet<&'static str> =
                found.intersection(&before).map(|(code, _)| code.name()).collect();
            world.measured.borrow_mut().checks.push((at, confirmed));
            world.plan_checks(at + every, every, found);
        });
    }
}
