//! The rules, one file per family. Each looks at the whole snapshot and adds what it finds.

mod addresses;
mod leaks;

use crate::Context;
use crate::finding::Finding;

/// Runs all rules.
pub(crate) fn run(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in [addresses::check, leaks::check] {
        rule(context, &mut findings);
    }
    findings
}
