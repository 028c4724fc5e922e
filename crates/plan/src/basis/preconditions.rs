//! Preconditions about objects that a step does not change.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use calipam_check::{Evidence, Finding, LeakReason, ReadObject, objects};
use calipam_model::edit::{Condition, Precondition, User};
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot};

/// The objects that findings depend on, as they were read.
pub(crate) struct Preconditions {
    as_read: HashMap<Key, Precondition>,
}

impl Preconditions {
    /// Looks up the objects that any of the findings depends on, all together instead of once per finding.
    pub(crate) fn new<'f>(snapshot: &Snapshot, findings: impl IntoIterator<Item = &'f Finding>) -> Self {
        let wanted: BTreeSet<Key> = findings.into_iter().flat_map(dependencies).collect();
        Self {
            as_read: as_read(snapshot, &wanted),
        }
    }

    /// Returns the preconditions of a finding: each object that it depends on is absent, or as it was read.
    pub(crate) fn of_finding(&self, finding: &Finding) -> Vec<(Key, Precondition)> {
        let mut preconditions = Vec::new();
        for key in dependencies(finding) {
            let precondition = match self.as_read.get(&key) {
                Some(as_read) => as_read.clone(),
                None => Precondition::Absent,
            };
            preconditions.push((key, precondition));
        }
        preconditions
    }
}

/// Returns preconditions that hold while the wanted objects are as they were read. Objects that do not exist are left
/// out.
pub(crate) fn as_read(snapshot: &Snapshot, wanted: &BTreeSet<Key>) -> HashMap<Key, Precondition> {
    objects(snapshot, wanted)
        .into_iter()
        .map(|(key, object)| (key, unchanged(&object)))
        .collect()
}

/// Returns a precondition that holds while an object is as it was read. Versions are compared, except those of nodes,
/// pods and services on Kubernetes: heartbeats change them, so only the parts of the object that concern addresses are
/// compared.
fn unchanged(object: &ReadObject<'_>) -> Precondition {
    let revision = object.revision();
    let Revision::Kubernetes(version) = revision else {
        return Precondition::At(revision.clone());
    };
    let user = match object {
        ReadObject::Node(node) => User::Node(node.value.clone()),
        ReadObject::Pod(pod) => User::Pod(pod.value.clone()),
        ReadObject::Service(service) => User::Service(service.value.clone()),
        ReadObject::Block(_) | ReadObject::Handle(_) | ReadObject::Other(_) => {
            return Precondition::At(revision.clone());
        }
    };
    Precondition::Matches(Condition::SameUser(version.uid.clone(), Arc::new(user)))
}

/// Creates preconditions that require pods and services to be as they were read. All addresses of a pod share one
/// precondition.
pub(crate) struct Users<'s> {
    snapshot: &'s Snapshot,
    pods: RefCell<HashMap<u32, Precondition>>,
}

impl<'s> Users<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            pods: RefCell::default(),
        }
    }

    pub(crate) fn pod(&self, index: u32) -> Precondition {
        let mut preconditions = self.pods.borrow_mut();
        let of_pod = preconditions
            .entry(index)
            .or_insert_with(|| unchanged(&ReadObject::Pod(&self.snapshot.pods[index as usize])));
        of_pod.clone()
    }

    pub(crate) fn service(&self, index: u32) -> Precondition {
        unchanged(&ReadObject::Service(&self.snapshot.services[index as usize]))
    }
}

/// Returns the objects that a finding depends on, except blocks, handles and affinities, which have their own guards.
fn dependencies(finding: &Finding) -> BTreeSet<Key> {
    let mut dependencies = BTreeSet::new();
    for key in &finding.depends_on {
        if !matches!(key, Key::Block(_) | Key::Handle(_) | Key::Affinity(_)) {
            dependencies.insert(key.clone());
        }
    }
    dependencies.extend(missing_nodes(finding));
    dependencies
}

/// Returns the nodes whose absence makes the address count as leaked.
fn missing_nodes(finding: &Finding) -> Vec<Key> {
    let Evidence::Address(evidence) = &finding.evidence else {
        return Vec::new();
    };
    if !evidence.reasons.contains(&LeakReason::NodeGone) {
        return Vec::new();
    }
    evidence.recorded_nodes().map(Key::Node).collect()
}
