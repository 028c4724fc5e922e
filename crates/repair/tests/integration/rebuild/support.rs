//! Rebuilds a datastore with faults.

use std::collections::BTreeSet;

use calipam_check::{Code, Finding, Options, Report, Subject, check};
use calipam_datastore::Datastore;
use calipam_datastore::write::Consent;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::{Basis, FindingSet, Plan, apply_plan};
use calipam_repair::{Options as Running, UndoPlan, execute, journal::Recorded, undo};
use jiff::SignedDuration;

pub(super) use crate::cluster::open_by as open;
use crate::cluster::{consent, observe};

/// Checks addresses of any age.
pub(super) fn options() -> Options {
    Options { grace: Some(SignedDuration::ZERO), ..Options::default() }
}

/// The result of a rebuild.
pub(super) struct Rebuilt {
    pub before: Report,
    pub after: Report,
    pub plan: Plan,
    pub journal: tempfile::TempDir,
}

/// Plans a rebuild of everything, tries it in memory, and carries it out.
pub(super) async fn rebuild_all(store: &Datastore) -> Rebuilt {
    let snapshot = observe(store).await;
    let before = check(&snapshot, &options());
    let basis = Basis::new(&snapshot, &before, &options());
    let plan = rebuild::plan(&basis, &Request::default());
    drop(basis);
    let now = snapshot.taken_at;
    let guid = snapshot.cluster.as_ref().map(|cluster| cluster.guid.clone()).unwrap_or_default();
    let tried = check(&apply_plan(snapshot, &plan, now).unwrap(), &options());
    FindingSet::from(&before).verify(&plan, &tried).unwrap_or_else(|refusal| panic!("{refusal}"));

    let journal = tempfile::tempdir().unwrap();
    let running = Running::new("rebuild --apply", journal.path().join("run.journal"));
    let steps: Vec<_> = plan.actions.iter().map(|action| action.step.clone()).collect();
    let execution = execute(store, &guid, steps, consent(&guid), &running).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    let after = check(&observe(store).await, &options());
    Rebuilt { before, after, plan, journal }
}

/// Undoes the rebuild.
pub(super) async fn revert(store: &Datastore, rebuilt: &Rebuilt) {
    let recorded = Recorded::read(&rebuilt.journal.path().join("run.journal")).unwrap();
    let plan = UndoPlan::new(&recorded).unwrap();
    assert!(plan.skipped().is_empty(), "{:?}", plan.skipped());
    let consent = Consent::from_option(plan.question("a test"), true).unwrap();
    let running = Running::new("undo", rebuilt.journal.path().join("undo.journal"));
    let execution = undo(store, &plan, consent, &running).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
}

/// The code and subject of every finding.
pub(super) fn findings(report: &Report) -> BTreeSet<(Code, Subject)> {
    report.findings.iter().map(|f: &Finding| f.key()).collect()
}

/// Asserts that the findings that the plan claims to repair are gone, that there are no new ones, and that all
/// remaining ones were skipped with a reason.
pub(super) fn judge(name: &str, rebuilt: &Rebuilt) {
    let (before, after) = (findings(&rebuilt.before), findings(&rebuilt.after));
    for repaired in rebuilt.plan.changes().flat_map(|change| &change.repairs) {
        assert!(!after.contains(repaired), "{name}: {repaired:?} is still there");
    }
    // The repair of a corrupt block can reveal findings that the block hid.
    let hidden = before.iter().any(|(code, _)| *code == Code::CorruptBlock);
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty() || hidden, "{name}: new are {new:?}");
    let skipped: BTreeSet<&Subject> = rebuilt.plan.skipped.iter().map(|skipped| &skipped.subject).collect();
    let left = rebuilt.after.findings.iter().filter(|f| f.severity != calipam_check::Severity::Info);
    let left = left.filter(|f| before.contains(&f.key()));
    let silent: Vec<_> = left.filter(|f| !skipped.contains(&f.subject)).map(|f| f.key_ref()).collect();
    assert!(silent.is_empty(), "{name}: these stay without a word about them: {silent:?}");
}

/// The objects that the plan changes.
pub(super) fn touched(plan: &Plan) -> BTreeSet<Key> {
    plan.actions.iter().flat_map(|action| action.step.edits()).map(Edit::key).collect()
}
