//! Preconditions about objects that a step does not change.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use calipam_check::{Evidence, Finding, LeakReason, revisions};
use calipam_model::edit::{Condition, Precondition, User};
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot, Versioned};

/// The objects that findings depend on, as they were read.
pub(crate) struct Preconditions {
    as_read: HashMap<Key, Precondition>,
}

impl Preconditions {
    /// Looks up the objects that any of the findings depends on, all together instead of once per finding.
    pub(crate) fn new<'f>(snapshot: &Snapshot, findings: impl IntoIterator<Item = &'f Finding>) -> Self {
        let wanted: BTreeSet<Key> = findings.into_iter().flat_map(preconditions).collect();
        Self { as_read: as_read(snapshot, &wanted) }
    }

    /// Returns the preconditions of a finding: each object that it depends on is absent, or as it was read.
    pub(crate) fn of(&self, finding: &Finding) -> Vec<(Key, Precondition)> {
        let expect = |key: Key| {
            let expect = self.as_read.get(&key).cloned();
            (key, expect.unwrap_or(Precondition::Absent))
        };
        preconditions(finding).into_iter().map(expect).collect()
    }
}

/// Returns preconditions that hold while the wanted objects are as they were read: their versions are the same. Nodes,
/// pods and services on Kubernetes only have to say the same about addresses, since heartbeats, labels and annotations
/// change their versions. Objects that do not exist are left out.
pub(crate) fn as_read(snapshot: &Snapshot, wanted: &BTreeSet<Key>) -> HashMap<Key, Precondition> {
    let versions = revisions(snapshot, wanted);
    let mut found: HashMap<Key, Precondition> =
        versions.into_iter().map(|(key, revision)| (key, Precondition::At(revision.clone()))).collect();
    let mut add = |key: Key, revision: &Revision, user: &dyn Fn() -> User| {
        if wanted.contains(&key)
            && let Some(expect) = same_user(revision, user)
        {
            found.insert(key, expect);
        }
    };

    if wanted.iter().any(|key| matches!(key, Key::Node(_))) {
        for Versioned { value, revision } in &snapshot.nodes {
            add(Key::Node(value.name.clone()), revision, &|| User::Node(value.clone()));
        }
    }

    if wanted.iter().any(|key| matches!(key, Key::Pod { .. })) {
        for Versioned { value, revision } in &snapshot.pods {
            let key = Key::Pod { namespace: value.namespace().to_string(), name: value.name().to_string() };
            add(key, revision, &|| User::Pod(value.clone()));
        }
    }

    for Versioned { value, revision } in &snapshot.services {
        let key = Key::Service { namespace: value.namespace.clone(), name: value.name.clone() };
        add(key, revision, &|| User::Service(value.clone()));
    }
    found
}

/// Returns `None` for objects that are not stored in Kubernetes.
fn same_user(revision: &Revision, user: impl FnOnce() -> User) -> Option<Precondition> {
    let Revision::Kubernetes(version) = revision else { return None };
    Some(Precondition::Matches(Condition::SameUser(version.uid.clone(), Arc::new(user()))))
}

/// Makes preconditions that pods and services are as they were read. All addresses of a pod share one.
pub(crate) struct Users<'s> {
    snapshot: &'s Snapshot,
    pods: RefCell<HashMap<u32, Precondition>>,
}

impl<'s> Users<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, pods: RefCell::default() }
    }

    pub(crate) fn pod(&self, index: u32) -> Precondition {
        let expect = || {
            let Versioned { value, revision } = &self.snapshot.pods[index as usize];
            same_user(revision, || User::Pod(value.clone()))
                .unwrap_or_else(|| Precondition::At(revision.clone()))
        };
        self.pods.borrow_mut().entry(index).or_insert_with(expect).clone()
    }

    pub(crate) fn service(&self, index: u32) -> Precondition {
        let Versioned { value, revision } = &self.snapshot.services[index as usize];
        same_user(revision, || User::Service(value.clone()))
            .unwrap_or_else(|| Precondition::At(revision.clone()))
    }
}

/// Returns the objects that a finding depends on. Blocks, handles and affinities have their own guards.
fn preconditions(finding: &Finding) -> BTreeSet<Key> {
    let dependencies = finding
        .depends_on
        .iter()
        .filter(|key| !matches!(key, Key::Block(_) | Key::Handle(_) | Key::Affinity(_)));
    dependencies.cloned().chain(gone_nodes(finding)).collect()
}

/// Returns the nodes whose absence makes the address count as leaked.
fn gone_nodes(finding: &Finding) -> Vec<Key> {
    let Evidence::Address(evidence) = &finding.evidence else { return Vec::new() };
    if !evidence.reasons.contains(&LeakReason::NodeGone) {
        return Vec::new();
    }
    evidence.recorded_nodes().map(Key::Node).collect()
}
