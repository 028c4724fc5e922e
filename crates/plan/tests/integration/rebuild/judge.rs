//! Plans and simulates rebuilds, and checks the properties that every rebuild must have.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::index::Index;
use calipam_check::{Code, Finding, Report, Severity, Subject};
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{Request, plan};
use calipam_plan::{FindingSet, Plan, SkipReason, apply_plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

use crate::checked::{Checked, assert_nothing_else_changed, skip_reason};

/// A healthy cluster.
pub(super) fn plain() -> Cluster {
    Cluster::plain(ClusterSpec::new(12), 3, 3)
}

/// A planned and simulated rebuild, with the snapshots and reports before and after it.
pub(super) struct Rebuilt {
    pub before: Snapshot,
    pub report: Report,
    pub plan: Plan,
    pub after: Snapshot,
    pub later: Report,
}

/// Plans a rebuild. The report is also used as an earlier observation, so that leaked addresses count as seen twice.
pub(super) fn planned(checked: &Checked, request: &Request) -> Plan {
    plan(&checked.basis().with(&[checked.seen(60)], 0), request)
}

/// Plans a rebuild without earlier observations.
pub(super) fn at_first_sight(snapshot: Snapshot) -> Plan {
    plan(&Checked::new(snapshot).basis(), &Request::default())
}

/// Plans a rebuild, simulates and verifies it, and checks the properties that every rebuild must have.
pub(super) fn rebuild(name: &str, snapshot: Snapshot, request: &Request) -> Rebuilt {
    let first = Checked::new(snapshot);
    let plan = planned(&first, request);
    let after = apply_plan(first.snapshot.clone(), &plan, first.snapshot.taken_at)
        .unwrap_or_else(|e| panic!("{name}: {e}\n{}", words(&plan)));
    let second = Checked::new(after);
    if let Err(refusal) = FindingSet::from(&first.report).verify(&plan, &second.report) {
        panic!("{name}: {refusal}\n{}", words(&plan));
    }
    let again = calipam_plan::rebuild::plan(&second.basis().with(&[first.seen(60)], 0), request);
    let texts = [&again, &plan].map(words).join("\nafter\n");
    assert!(again.is_empty(), "{name}: a second rebuild does more:\n{texts}");

    assert_nothing_else_changed(name, &first.snapshot, &plan, &second.snapshot);
    let (
        Checked { snapshot, report, .. },
        Checked {
            snapshot: after,
            report: later,
            ..
        },
    ) = (first, second);
    let rebuilt = Rebuilt {
        before: snapshot,
        report,
        plan,
        after,
        later,
    };
    rebuilt.assert_all_findings_are_repaired_or_skipped(name, request);
    rebuilt.assert_in_use_stays(name);
    rebuilt
}

/// A rebuild of everything.
pub(super) fn rebuild_all(name: &str, cluster: &Cluster) -> Rebuilt {
    rebuild(name, cluster.snapshot(), &Request::default())
}

/// Describes a plan's changes and skipped subjects, for the messages of failed tests.
pub(super) fn words(plan: &Plan) -> String {
    let changes = plan
        .changes()
        .map(|change| format!("{} {}: {}", change.action, change.subject, change.detail));
    let skipped = plan.skipped.iter().map(|skipped| {
        let code = skipped.code.map(|code| code.to_string()).unwrap_or_default();
        format!(
            "skip {code} {} ({}): {}",
            skipped.subject, skipped.reason, skipped.detail
        )
    });
    changes.chain(skipped).collect::<Vec<_>>().join("\n")
}

fn line(finding: &Finding) -> String {
    format!("{} {}", finding.code, finding.subject)
}

impl Rebuilt {
    /// Returns the reason why the plan skips an address.
    pub(super) fn reason(&self, code: Code, address: IpAddr) -> Option<SkipReason> {
        skip_reason(&self.plan, code, &Subject::Address(address))
    }

    /// Checks that a rebuild of everything has skipped all remaining findings, each with a reason.
    fn assert_all_findings_are_repaired_or_skipped(&self, name: &str, request: &Request) {
        if *request != Request::default() {
            return;
        }
        let known: BTreeSet<String> = self.report.findings.iter().map(line).collect();
        // Findings that count records appear only once the records exist.
        let counting_codes = [
            Code::PoolNearlyFull,
            Code::NodeWithoutAddresses,
            Code::BorrowedTunnelAddress,
        ];
        let counts_records = |f: &&Finding| counting_codes.contains(&f.code) && !known.contains(&line(f));
        let left = self.later.findings.iter();
        let left = left.filter(|finding| finding.severity < Severity::Info && !counts_records(finding));
        let missed: Vec<String> = left
            .filter(|f| skip_reason(&self.plan, f.code, &f.subject).is_none())
            .map(line)
            .collect();
        assert!(
            missed.is_empty(),
            "{name}: neither repaired nor skipped: {missed:?}\n{}",
            words(&self.plan)
        );
    }

    /// Checks that no address in use is freed, and that records change only as the plan says.
    fn assert_in_use_stays(&self, name: &str) {
        let (before, after) = (
            Index::new(&self.before, self.before.taken_at),
            Index::new(&self.after, self.after.taken_at),
        );
        let planned: BTreeSet<Subject> = self.plan.changes().map(|change| change.subject.clone()).collect();
        for block in &before.blocks {
            let Some(sound) = block.sound else { continue };
            for allocation in sound.allocations() {
                let address = allocation.address;
                let kept = after
                    .block(block.key)
                    .and_then(|block| block.sound?.allocation_of(address));
                let record = kept.map(|kept| kept.attribute.to_attribute());
                let same = record == Some(allocation.attribute.to_attribute());
                let reserved = allocation.attribute.is_windows_reserved();
                let told = planned.contains(&Subject::Address(address))
                    || reserved && planned.contains(&Subject::Block(block.key));
                assert!(same || told, "{name}: {address} has changed");
                let used = !before.uses_of(address).is_empty();
                assert!(
                    !used || kept.is_some(),
                    "{name}: {address} is in use and was freed"
                );
            }
        }
    }
}
