//! The rules, one file per family. Each looks at the whole snapshot and adds what it finds.

#[cfg(test)]
mod address_tests;
mod addresses;
mod evidence;
mod in_use;
mod leaks;
mod owners;

use crate::Context;
use crate::finding::Finding;

/// Runs all rules.
pub(crate) fn run(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    addresses::check(context, &mut findings);
    findings
}
