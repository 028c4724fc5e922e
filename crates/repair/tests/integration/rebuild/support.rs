//! Rebuilds a datastore with faults.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::{Code, Finding, Report, Subject, check};
use calipam_model::IpNet;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::{Basis, FindingSet, Plan, Verb, apply_plan};
use calipam_repair::{Execution, undo};
use calipam_testkit::World;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use jiff::Timestamp;
use serde_json::json;

use crate::cluster::{Site, consent_to_write, judgement, sound};

/// Plans a rebuild of everything.
pub(super) fn plan_all(snapshot: &Snapshot, report: &Report) -> Plan {
    rebuild::plan(&Basis::new(snapshot, report, &judgement()), &Request::default())
}

/// A small cluster without faults.
pub(super) fn cluster() -> Cluster {
    Cluster::small(ClusterSpec::new(31).at(Timestamp::now()))
}

/// A cluster, and the plan that repairs it.
pub(super) struct Planned {
    pub world: World,
    pub site: Site,
    pub snapshot: Snapshot,
    pub plan: Plan,
}

impl Planned {
    pub(super) async fn of(world: World) -> Self {
        let site = Site::open(world.overrides()).await;
        let snapshot = site.observe().await;
        let plan = plan_all(&snapshot, &check(&snapshot, &judgement()));
        Self {
            world,
            site,
            snapshot,
            plan,
        }
    }

    /// The subject of the first change with this verb in the plan.
    pub(super) fn subject(&self, verb: Verb) -> String {
        let change = self.plan.changes().find(|change| change.action == verb);
        change
            .unwrap_or_else(|| panic!("{:?}", self.plan.actions))
            .subject
            .to_string()
    }

    pub(super) async fn run(&self) -> Execution {
        self.site.run_as("run", self.plan.clone().divide().1).await
    }
}

/// The result of a rebuild.
pub(super) struct Rebuilt {
    pub before: Report,
    pub after: Report,
    pub plan: Plan,
}

/// Plans a rebuild of everything, tries it in memory, and carries it out.
pub(super) async fn rebuild_all(site: &Site) -> Rebuilt {
    let snapshot = site.observe().await;
    let before = check(&snapshot, &judgement());
    let plan = plan_all(&snapshot, &before);
    let now = snapshot.taken_at;
    let tried = check(&apply_plan(snapshot, &plan, now).unwrap(), &judgement());
    FindingSet::from(&before)
        .verify(&plan, &tried)
        .unwrap_or_else(|refusal| panic!("{refusal}"));

    let steps: Vec<_> = plan.actions.iter().map(|action| action.step.clone()).collect();
    let execution = site.run_as("run", steps).await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = check(&site.observe().await, &judgement());
    Rebuilt { before, after, plan }
}

/// Undoes the rebuild.
pub(super) async fn revert(site: &Site) {
    let plan = site.undo_plan("run");
    assert!(plan.skipped().is_empty(), "{:?}", plan.skipped());
    let consent = consent_to_write(plan.cluster(), plan.counts());
    let execution = undo(&site.store, &plan, consent, &site.options("undo"))
        .await
        .unwrap();
    assert!(execution.is_complete(), "{execution:?}");
}

/// Damages a block such that a rebuild writes it as a whole: deletes the block or its records.
pub(super) fn lose(world: &World, cidr: IpNet, only_records: bool) {
    match only_records {
        true => world.edit(&Key::Block(cidr), |block| block["attributes"] = json!([])),
        false => world.delete(&Key::Block(cidr)),
    }
}

/// Asserts that a block records all addresses but one, and that the handles of its records count one address each.
pub(super) fn assert_recorded_except(
    snapshot: &Snapshot,
    cidr: IpNet,
    addresses: impl IntoIterator<Item = IpAddr>,
    except: IpAddr,
) {
    let block = sound(snapshot).find(|block| block.cidr() == cidr).unwrap();
    for used in addresses {
        assert_eq!(block.allocation_of(used).is_some(), used != except, "{used}");
    }
    for (_, id) in block.handles() {
        let handle = snapshot.handles.iter().find(|handle| handle.value.id() == id);
        assert_eq!(handle.unwrap().value.count(cidr), 1, "{id}");
    }
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
    let skipped: BTreeSet<&Subject> = rebuilt
        .plan
        .skipped
        .iter()
        .map(|skipped| &skipped.subject)
        .collect();
    let left = rebuilt
        .after
        .findings
        .iter()
        .filter(|f| f.severity != calipam_check::Severity::Info);
    let left = left.filter(|f| before.contains(&f.key()));
    let silent: Vec<_> = left
        .filter(|f| !skipped.contains(&f.subject))
        .map(|f| f.key_ref())
        .collect();
    assert!(
        silent.is_empty(),
        "{name}: these stay without a word about them: {silent:?}"
    );
}

/// The objects that the plan changes.
pub(super) fn touched(plan: &Plan) -> BTreeSet<Key> {
    plan.actions
        .iter()
        .flat_map(|action| action.step.edits())
        .map(Edit::key)
        .collect()
}
