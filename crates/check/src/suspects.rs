//! The second read. If a half-done Calico operation could explain a finding (facts 3.14), the finding's objects are
//! read again some seconds later. If they have changed, the finding is dropped. `workflow/src/check.rs`
//! waits and reads.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use calipam_model::block::Block;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::node::Node;
use calipam_model::parallel::{OBJECTS, in_parts};
use calipam_model::pod::Pod;
use calipam_model::service::Service;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::text::Text;

use crate::FastSet;
use crate::finding::{Finding, Subject};
use crate::report::Report;

/// Returns the keys of the objects that have to be read again.
pub fn suspects(report: &Report) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for finding in &report.findings {
        keys.extend(finding.depends_on.iter().cloned());
    }
    keys
}

/// The state of repeated reads of a report's objects. Each read drops the findings whose objects have changed.
///
/// The second read is the last one, unless a handle's block was written in between. If an address was assigned after
/// the block's first read and is being released at the second, the block looks as before, but the handle still exists.
/// By the third read, that release has ended.
pub struct Recheck<'s> {
    before: Cow<'s, Snapshot>,
    reads: usize,
    is_settled: bool,
}

impl<'s> Recheck<'s> {
    /// The largest number of reads after the first one.
    const MOST_READS: usize = 2;

    /// Begins with the snapshot of the first read.
    pub fn new(first: &'s Snapshot) -> Self {
        Self {
            before: Cow::Borrowed(first),
            reads: 0,
            is_settled: false,
        }
    }

    /// Returns the keys to read next; `None` if the report is settled.
    pub fn keys(&self, report: &Report) -> Option<BTreeSet<Key>> {
        let keys = suspects(report);
        if self.is_settled || keys.is_empty() {
            return None;
        }
        Some(keys)
    }

    /// Drops and returns the findings whose objects have changed in `later`, a snapshot with the objects under
    /// [`keys`](Self::keys).
    pub fn take(&mut self, report: &mut Report, later: Snapshot) -> Vec<Finding> {
        let dropped = drop_changed(report, &self.before, &later);
        self.reads += 1;
        self.is_settled = self.reads == Self::MOST_READS || !self.rests_on_written_block(report, &later);
        self.before = Cow::Owned(later);
        dropped
    }

    /// Returns true if a finding about a handle depends on a block that was written since the previous read.
    fn rests_on_written_block(&self, report: &Report, later: &Snapshot) -> bool {
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        for finding in &report.findings {
            if matches!(finding.subject, Subject::Handle(_)) {
                keys.extend(finding.depends_on.iter().cloned());
            }
        }

        let before = objects(&self.before, &keys);
        let after = objects(later, &keys);
        for (key, object) in &before {
            if let ReadObject::Block(_) = object
                && let Some(object_after) = after.get(key)
                && object_after != object
            {
                return true;
            }
        }
        false
    }
}

/// Drops and returns the findings whose objects have changed between `first` and `later`. A change to a block counts
/// only if it matters to the finding.
pub fn drop_changed(report: &mut Report, first: &Snapshot, later: &Snapshot) -> Vec<Finding> {
    let wanted = suspects(report);
    let before = objects(first, &wanted);
    let after = objects(later, &wanted);
    report.rechecked = true;
    // Objects are compared only once, not again for each finding, since there can be a finding for every address of a
    // pod.
    let changed: HashSet<&Key> = wanted
        .iter()
        .filter(|key| before.get(key) != after.get(key))
        .collect();
    let stands = |finding: &Finding, key: &Key| {
        if !changed.contains(key) {
            return true;
        }
        if let Some(ReadObject::Block(block_before)) = before.get(key)
            && let Some(ReadObject::Block(block_after)) = after.get(key)
        {
            return is_recorded_alike(finding, block_before, block_after);
        }
        false
    };
    report.take_unless(|finding| finding.depends_on.iter().all(|key| stands(finding, key)))
}

/// An object that was read, with its version.
#[derive(Clone, Copy, Debug)]
pub enum ReadObject<'s> {
    Block(&'s Versioned<StoredBlock>),
    Node(&'s Versioned<Node>),
    Pod(&'s Versioned<Pod>),
    Service(&'s Versioned<Service>),
    Handle(&'s Versioned<Handle>),
    /// An affinity or an endpoint.
    Other(&'s Revision),
}

impl<'s> ReadObject<'s> {
    /// Returns the revision at which the object was read.
    pub fn revision(&self) -> &'s Revision {
        match self {
            Self::Block(block) => &block.revision,
            Self::Node(node) => &node.revision,
            Self::Pod(pod) => &pod.revision,
            Self::Service(service) => &service.revision,
            Self::Handle(handle) => &handle.revision,
            Self::Other(revision) => revision,
        }
    }
}

impl PartialEq for ReadObject<'_> {
    /// Compares nodes, pods and services by value, since a heartbeat is not a change; other objects by version.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node(one), Self::Node(other)) => one.value == other.value,
            (Self::Pod(one), Self::Pod(other)) => one.value == other.value,
            (Self::Service(one), Self::Service(other)) => one.value == other.value,
            _ => self.revision() == other.revision(),
        }
    }
}

/// Returns the wanted objects of a snapshot. Objects that do not exist are left out.
///
/// A snapshot can have a million handles, endpoints or pods, of which few are wanted, so no key is made of the others.
pub fn objects<'s>(snapshot: &'s Snapshot, wanted: &BTreeSet<Key>) -> HashMap<Key, ReadObject<'s>> {
    let mut objects = HashMap::new();
    if wanted.is_empty() {
        return objects;
    }
    let mut add = |key: Key, object: ReadObject<'s>| {
        if wanted.contains(&key) {
            objects.insert(key, object);
        }
    };
    for block in &snapshot.blocks {
        add(Key::Block(block.value.key), ReadObject::Block(block));
    }
    let wants = |is_of_kind: fn(&Key) -> bool| wanted.iter().any(is_of_kind);
    if wants(|key| matches!(key, Key::Affinity(_))) {
        for affinity in &snapshot.affinities {
            let key = Key::Affinity(affinity.value.key.clone());
            add(key, ReadObject::Other(&affinity.revision));
        }
    }
    if wants(|key| matches!(key, Key::Node(_))) {
        for node in &snapshot.nodes {
            add(Key::Node(node.value.name.clone()), ReadObject::Node(node));
        }
    }
    for service in &snapshot.services {
        add(service.value.key(), ReadObject::Service(service));
    }

    let handles = handle_ids(wanted);
    if !handles.is_empty() {
        for handle in &snapshot.handles {
            let id = handle.value.id();
            if handles.contains(id.packed()) {
                add(Key::Handle(id.to_string()), ReadObject::Handle(handle));
            }
        }
    }

    let endpoints = Names::new(wanted.iter().filter_map(|key| match key {
        Key::Endpoint { namespace, name } => Some((namespace.as_str(), name.as_str())),
        _ => None,
    }));
    for endpoint in endpoints.endpoints(&snapshot.endpoints) {
        add(endpoint.value.key(), ReadObject::Other(&endpoint.revision));
    }

    let pods = Names::new(wanted.iter().filter_map(|key| match key {
        Key::Pod { namespace, name } => Some((namespace.as_str(), name.as_str())),
        _ => None,
    }));
    for pod in pods.pods(&snapshot.pods) {
        add(pod.value.key(), ReadObject::Pod(pod));
    }
    objects
}

/// Returns the IDs of the handles among some keys, for a search among a million stored handles.
pub fn handle_ids<'k>(keys: impl IntoIterator<Item = &'k Key>) -> FastSet<Text> {
    let mut ids = FastSet::default();
    for key in keys {
        if let Key::Handle(id) = key {
            ids.insert(Text::new(id));
        }
    }
    ids
}

/// The namespaces and names of wanted objects.
struct Names<'k>(FastSet<(&'k str, &'k str)>);

impl<'k> Names<'k> {
    fn new(names: impl Iterator<Item = (&'k str, &'k str)>) -> Self {
        Self(names.collect())
    }

    /// Returns the endpoints with one of the names.
    fn endpoints<'s>(&self, stored: &'s [Versioned<Endpoint>]) -> Vec<&'s Versioned<Endpoint>> {
        let mut workloads: FastSet<Text> = FastSet::default();
        for (_, name) in &self.0 {
            if let Some(name) = EndpointName::parse(name) {
                workloads.insert(Text::new(&name.workload));
            }
        }
        self.find_named(stored, |endpoint, namespace, name| {
            // Nearly all endpoints are ruled out here, which needs no text.
            let workload = endpoint.workload_in_name();
            if workload.is_none_or(|workload| workloads.contains(workload.packed())) {
                endpoint.namespace().push_to(namespace);
                endpoint.push_name(name);
            }
        })
    }

    /// Returns the pods with one of the names.
    fn pods<'s>(&self, stored: &'s [Versioned<Pod>]) -> Vec<&'s Versioned<Pod>> {
        self.find_named(stored, |pod, namespace, name| {
            pod.namespace().push_to(namespace);
            pod.name().push_to(name);
        })
    }

    /// Returns the wanted objects. `push_names` appends the namespace and the name of an object to the two strings, or
    /// nothing if the object is not wanted.
    fn find_named<'s, T: Sync>(
        &self,
        stored: &'s [Versioned<T>],
        push_names: impl Fn(&T, &mut String, &mut String) + Sync,
    ) -> Vec<&'s Versioned<T>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let parts = in_parts(OBJECTS, stored.len(), |range| {
            let mut wanted = Vec::new();
            let mut namespace = String::new();
            let mut name = String::new();
            for object in &stored[range] {
                namespace.clear();
                name.clear();
                push_names(&object.value, &mut namespace, &mut name);
                if self.0.contains(&(namespace.as_str(), name.as_str())) {
                    wanted.push(object);
                }
            }
            wanted
        });
        parts.concat()
    }
}

/// Returns true if nothing that matters to the finding has changed in a block that was written.
fn is_recorded_alike(
    finding: &Finding,
    before: &Versioned<StoredBlock>,
    after: &Versioned<StoredBlock>,
) -> bool {
    let Some(block_before) = before.value.content.usable() else {
        return false;
    };
    let Some(block_after) = after.value.content.usable() else {
        return false;
    };
    match &finding.subject {
        Subject::Address(address) => {
            let record_in = |block: &Block| {
                let allocation = block.allocation_of(*address)?;
                Some((allocation.attribute.to_packed(), allocation.sequence))
            };
            record_in(block_before) == record_in(block_after)
        }
        Subject::Handle(id) => {
            let id = Text::new(id);
            let count_in = |block: &Block| {
                block
                    .allocations()
                    .filter(|allocation| allocation.attribute.clean_handle() == Some(id.as_ref()))
                    .count()
            };
            count_in(block_before) == count_in(block_after)
        }
        // A block that was deleted and claimed again meanwhile counts as changed.
        _ => {
            block_before.owner() == block_after.owner()
                && block_before.claim_time() == block_after.claim_time()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_cluster::{Cluster, pod};
    use crate::{Code, Options, check};

    fn cluster(records: impl IntoIterator<Item = Value>) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.block("10.244.1.0/30", "host:node-1", records);
        cluster
    }

    /// The leaks in `first` that are left after `later` was read.
    fn standing(first: &Cluster, later: &Cluster) -> Vec<String> {
        let mut report = check(&first.0, &Options::default());
        drop_changed(&mut report, &first.0, &later.0);
        assert!(report.rechecked);
        let leaks = report.findings.iter().filter(|f| f.code == Code::LeakedAddress);
        leaks.map(|f| f.subject.to_string()).collect()
    }

    /// A pod that is created after blocks were read, and is being deleted at the second read. Its handle exists at both
    /// reads, but its block has no record of it at either read.
    #[test]
    fn a_handle_is_read_again_while_its_block_is_written() {
        let at = |revision: i64| {
            let mut cluster = cluster([]);
            let handle = Key::Handle("k8s-pod-network.a".into()).to_string();
            cluster.put(
                &handle,
                json!({"handleID": "k8s-pod-network.a", "block": {"10.244.1.0/30": 1}}),
            );
            cluster.0.blocks[0].revision = Revision::Etcd(revision);
            cluster.0
        };
        let reads = |later: [Snapshot; 2]| {
            let first = at(1);
            let mut report = check(&first, &Options::default());
            let mut recheck = Recheck::new(&first);
            let mut reads = 0;
            for snapshot in later {
                if recheck.keys(&report).is_some() {
                    recheck.take(&mut report, snapshot);
                    reads += 1;
                }
            }
            assert_eq!(recheck.keys(&report), None);
            let orphans = report
                .findings
                .iter()
                .filter(|f| f.code == Code::OrphanHandle)
                .count();
            (reads, orphans)
        };
        let mut gone = at(2);
        gone.handles.clear();
        assert_eq!(reads([at(1), gone.clone()]), (1, 1), "nothing has changed");
        assert_eq!(reads([at(2), gone]), (2, 0), "the deletion has ended");
        assert_eq!(reads([at(2), at(3)]), (2, 1), "others write the block");
    }

    #[test]
    fn a_leak_stays_while_its_record_and_endpoint_are_unchanged() {
        let none = || Value::Null;
        let first = cluster([none(), pod("node-1", "a")]);
        assert_eq!(standing(&first, &first), ["10.244.1.1"]);
        let elsewhere = {
            let mut later = cluster([none(), pod("node-1", "a"), pod("node-1", "b")]);
            later.0.blocks[0].revision = Revision::Etcd(8);
            later
        };
        assert_eq!(
            standing(&first, &elsewhere),
            ["10.244.1.1"],
            "another address of the block changed"
        );
        let mut released = cluster([]);
        released.0.blocks[0].revision = Revision::Etcd(8);
        assert_eq!(standing(&first, &released), [""; 0], "released meanwhile");
        let mut arrived = cluster([none(), pod("node-1", "a")]);
        arrived.endpoint("node-1", "a", &["10.244.1.1/32"]);
        assert_eq!(standing(&first, &arrived), [""; 0], "its endpoint has appeared");
    }
}
