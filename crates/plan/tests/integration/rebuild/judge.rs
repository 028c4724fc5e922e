//! Plans and simulates rebuilds, and checks the properties that every rebuild must have.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use calipam_check::index::Index;
use calipam_check::{Code, Finding, Options, Report, Severity, Subject, check};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{Request, plan};
use calipam_plan::release::Observations;
use calipam_plan::{Basis, FindingSet, Plan, apply_plan};
use jiff::SignedDuration;

/// A planned and simulated rebuild, with the snapshots and reports before and after it.
pub(super) struct Rebuilt {
    pub before: Snapshot,
    pub report: Report,
    pub plan: Plan,
    pub after: Snapshot,
    pub later: Report,
}

/// Plans a rebuild. The report is also used as an earlier observation, so that leaked addresses count as seen twice.
pub(super) fn planned(snapshot: &Snapshot, report: &Report, request: &Request) -> Plan {
    planned_with(snapshot, report, request, report)
}

/// Plans a rebuild with an earlier report as an observation from an hour ago.
fn planned_with(snapshot: &Snapshot, report: &Report, request: &Request, earlier: &Report) -> Plan {
    let options = Options::default();
    let hour_ago = snapshot.taken_at.checked_sub(SignedDuration::from_hours(1)).expect("a time in this era");
    let seen = Observations { at: hour_ago, ..Observations::of_report(earlier) };
    plan(&Basis::new(snapshot, report, &options).with(&[seen], 0), request)
}

/// Plans a rebuild, simulates and verifies it, and checks the properties that every rebuild must have.
pub(super) fn rebuild(name: &str, snapshot: Snapshot, request: &Request) -> Rebuilt {
    let options = Options::default();
    let report = check(&snapshot, &options);
    let plan = planned(&snapshot, &report, request);
    let now = snapshot.taken_at;
    let after =
        apply_plan(snapshot.clone(), &plan, now).unwrap_or_else(|e| panic!("{name}: {e}\n{}", words(&plan)));
    let later = check(&after, &options);
    if let Err(refusal) = FindingSet::from(&report).verify(&plan, &later) {
        panic!("{name}: {refusal}\n{}", words(&plan));
    }
    let rebuilt = Rebuilt { before: snapshot, report, plan, after, later };
    rebuilt.assert_all_findings_are_repaired_or_skipped(name, request);
    rebuilt.assert_nothing_else_changed(name);
    rebuilt.assert_in_use_stays(name);
    rebuilt.assert_idempotent(name, request);
    rebuilt
}

/// Describes a plan's changes and skipped subjects, for the messages of failed tests.
pub(super) fn words(plan: &Plan) -> String {
    let changes =
        plan.changes().map(|change| format!("{} {}: {}", change.action, change.subject, change.detail));
    let skipped = plan.skipped.iter().map(|skipped| {
        let code = skipped.code.map(|code| code.to_string()).unwrap_or_default();
        format!("skip {code} {} ({}): {}", skipped.subject, skipped.reason, skipped.detail)
    });
    changes.chain(skipped).collect::<Vec<_>>().join("\n")
}

fn line(finding: &Finding) -> String {
    format!("{} {}", finding.code, finding.subject)
}

impl Rebuilt {
    /// Returns true if the plan skips the finding with this code and subject.
    pub(super) fn is_skipped(&self, code: Code, subject: &Subject) -> bool {
        self.plan.skipped.iter().any(|skipped| skipped.code == Some(code) && skipped.subject == *subject)
    }

    /// Checks that a rebuild of everything has skipped all remaining findings, each with a reason.
    fn assert_all_findings_are_repaired_or_skipped(&self, name: &str, request: &Request) {
        if *request != Request::default() {
            return;
        }
        let known: BTreeSet<String> = self.report.findings.iter().map(line).collect();
        // Findings that count records appear only once the records exist.
        let counting_codes = [Code::PoolNearlyFull, Code::NodeWithoutAddresses, Code::BorrowedTunnelAddress];
        let counts_records = |f: &&Finding| counting_codes.contains(&f.code) && !known.contains(&line(f));
        let left = self.later.findings.iter();
        let left = left.filter(|finding| finding.severity < Severity::Info && !counts_records(finding));
        let missed: Vec<String> =
            left.filter(|finding| !self.is_skipped(finding.code, &finding.subject)).map(line).collect();
        assert!(missed.is_empty(), "{name}: neither repaired nor skipped: {missed:?}\n{}", words(&self.plan));
    }

    /// Checks that objects without an edit are unchanged.
    fn assert_nothing_else_changed(&self, name: &str) {
        let edits = self.plan.actions.iter().flat_map(|action| action.step.edits());
        let touched: HashSet<Key> = edits.map(Edit::key).collect();
        let (before, after) = (&self.before, &self.after);
        assert_same(name, &touched, &before.blocks, &after.blocks, |b| Key::Block(b.value.key));
        assert_same(name, &touched, &before.handles, &after.handles, |h| {
            Key::Handle(h.value.id().to_string())
        });
        assert_same(name, &touched, &before.affinities, &after.affinities, |a| {
            Key::Affinity(a.value.key.clone())
        });
        let bare = |snapshot: &Snapshot| Snapshot {
            blocks: Vec::new(),
            handles: Vec::new(),
            affinities: Vec::new(),
            ..snapshot.clone()
        };
        assert!(bare(before) == bare(after), "{name}: something that is none of IPAM's data has changed");
    }

    /// Checks that no address in use is freed, and that records change only as the plan says.
    fn assert_in_use_stays(&self, name: &str) {
        let (before, after) =
            (Index::new(&self.before, self.before.taken_at), Index::new(&self.after, self.after.taken_at));
        let planned: BTreeSet<Subject> = self.plan.changes().map(|change| change.subject.clone()).collect();
        for block in &before.blocks {
            let Some(sound) = block.sound else { continue };
            for allocation in sound.allocations() {
                let address = allocation.address;
                let kept = after.block(block.key).and_then(|block| block.sound?.allocation_of(address));
                let record = kept.map(|kept| kept.attribute.to_attribute());
                let same = record == Some(allocation.attribute.to_attribute());
                let reserved = allocation.attribute.is_windows_reserved();
                let told = planned.contains(&Subject::Address(address))
                    || reserved && planned.contains(&Subject::Block(block.key));
                assert!(same || told, "{name}: {address} has changed");
                let used = !before.uses_of(address).is_empty();
                assert!(!used || kept.is_some(), "{name}: {address} is in use and was freed");
            }
        }
    }

    /// Checks that a second rebuild changes nothing.
    fn assert_idempotent(&self, name: &str, request: &Request) {
        let again = planned_with(&self.after, &self.later, request, &self.report);
        assert!(
            again.is_empty(),
            "{name}: a second rebuild does more:\n{}\nafter\n{}",
            words(&again),
            words(&self.plan)
        );
    }
}

fn assert_same<T: PartialEq + std::fmt::Debug>(
    name: &str,
    touched: &HashSet<Key>,
    before: &[T],
    after: &[T],
    key: impl Fn(&T) -> Key,
) {
    fn others<'o, T>(
        objects: &'o [T],
        touched: &HashSet<Key>,
        key: impl Fn(&T) -> Key,
    ) -> BTreeMap<Key, &'o T> {
        objects.iter().map(|object| (key(object), object)).filter(|(key, _)| !touched.contains(key)).collect()
    }
    let (before, after) = (others(before, touched, &key), others(after, touched, &key));
    for (key, object) in &before {
        assert_eq!(after.get(key), Some(object), "{name}: {key} has changed without an edit");
    }
    assert_eq!(before.len(), after.len(), "{name}: something has appeared without an edit");
}
