//! Plans releases for a cluster, and carries them out in memory.

use std::collections::BTreeMap;

use calipam_check::{Code, Options, Report, Severity, check};
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{self, Observations, Request};
use calipam_plan::{Basis, FindingSet, Plan, apply_plan};
use jiff::SignedDuration;

/// Options that check allocations of any age.
pub(super) fn no_grace() -> Options {
    Options { grace: Some(SignedDuration::ZERO), ..Options::default() }
}

pub(super) fn plan_on(
    snapshot: &Snapshot,
    request: &Request,
    observations: &[Observations],
    options: &Options,
) -> Plan {
    let report = check(snapshot, options);
    release::plan(&Basis::new(snapshot, &report, options).with(observations, 0), request)
}

/// Simulates the plan and verifies it. Returns the snapshot and the report after it.
pub(super) fn carry_out(snapshot: &Snapshot, plan: &Plan, options: &Options) -> (Snapshot, Report) {
    let before = check(snapshot, options);
    let after = apply_plan(snapshot.clone(), plan, snapshot.taken_at).unwrap();
    let report = check(&after, options);
    FindingSet::from(&before).verify(plan, &report).unwrap_or_else(|refusal| panic!("{refusal}"));
    (after, report)
}

/// The subjects of the findings with this code. `errors_only` leaves out findings that are not errors.
pub(super) fn subjects(report: &Report, code: Code, errors_only: bool) -> Vec<String> {
    let of_code = report.findings.iter().filter(|f| f.code == code);
    let wanted = of_code.filter(|f| !errors_only || f.severity == Severity::Error);
    wanted.map(|f| f.subject.to_string()).collect()
}

/// The blocks, handles and affinities of a snapshot in debug format, by unique names.
pub(super) fn objects(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for block in &snapshot.blocks {
        all.insert(format!("block {}", block.value.key), format!("{:?}", block.value.content));
    }
    for handle in &snapshot.handles {
        all.insert(format!("handle {}", handle.value.id()), format!("{:?}", handle.value));
    }
    for affinity in &snapshot.affinities {
        let key = &affinity.value.key;
        all.insert(format!("affinity {}/{key}", key.kind), format!("{:?}", affinity.value));
    }
    all
}
