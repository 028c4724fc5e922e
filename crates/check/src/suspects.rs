//! The second read. If a half-done Calico operation could explain a finding (facts 3.14), its objects are read again
//! some seconds later. If they have changed, the finding is dropped. `workflow/src/second_read/settle.rs` waits and
//! reads.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::service::Service;
use calipam_model::snapshot::{Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::text::Text;

use crate::finding::{Finding, Subject};
use crate::report::Report;

/// Returns the keys of the objects that have to be read again.
pub fn suspects(report: &Report) -> BTreeSet<Key> {
    report.findings.iter().flat_map(|f| f.depends_on.iter().cloned()).collect()
}

/// Repeated reads of a report's objects, until no finding depends on an object that has just changed.
///
/// The second read is the last one, unless a handle's block was written in between. If an address was assigned after
/// the block's first read and is being released at the second, the block is as before, but the handle still exists. By
/// the third read, that release has ended.
pub struct Recheck<'s> {
    before: Cow<'s, Snapshot>,
    reads: usize,
    is_settled: bool,
}

impl<'s> Recheck<'s> {
    /// The largest number of reads after the first one.
    const MOST_READS: usize = 2;

    pub fn new(first: &'s Snapshot) -> Self {
        Self { before: Cow::Borrowed(first), reads: 0, is_settled: false }
    }

    /// Returns the keys to read next; `None` if the report is settled.
    pub fn keys(&self, report: &Report) -> Option<BTreeSet<Key>> {
        let keys = suspects(report);
        (!self.is_settled && !keys.is_empty()).then_some(keys)
    }

    /// Drops and returns the findings whose objects have changed in `later`, which has the [`keys`](Self::keys).
    pub fn take(&mut self, report: &mut Report, later: Snapshot) -> Vec<Finding> {
        let dropped = drop_changed(report, &self.before, &later);
        self.reads += 1;
        self.is_settled = self.reads == Self::MOST_READS || !self.rests_on_written_block(report, &later);
        self.before = Cow::Owned(later);
        dropped
    }

    /// Returns true if a finding about a handle depends on a block that was written since the previous read.
    fn rests_on_written_block(&self, report: &Report, later: &Snapshot) -> bool {
        let about_handles = report.findings.iter().filter(|f| matches!(f.subject, Subject::Handle(_)));
        let wanted: BTreeSet<Key> = about_handles.flat_map(|f| f.depends_on.iter().cloned()).collect();
        let (before, after) = (Objects::new(&self.before, &wanted), Objects::new(later, &wanted));
        before.blocks.iter().any(|(key, block)| {
            after.blocks.get(key).is_some_and(|written| written.revision != block.revision)
        })
    }
}

/// Drops and returns the findings whose objects have changed in `later`, which has the keys from [`suspects`] as they
/// were some seconds after `first`.
pub fn drop_changed(report: &mut Report, first: &Snapshot, later: &Snapshot) -> Vec<Finding> {
    let wanted = suspects(report);
    let before = Objects::new(first, &wanted);
    let after = Objects::new(later, &wanted);
    report.rechecked = true;

    // Compared once per object, not per finding: there can be a finding for every address of a pod.
    let changed: HashSet<&Key> = wanted.iter().filter(|key| has_changed(key, &before, &after)).collect();
    let stands = |finding: &Finding, key: &Key| match key {
        Key::Block(_) => is_recorded_alike(finding, key, &before, &after),
        _ => !changed.contains(key),
    };
    report.take_unless(|finding| finding.depends_on.iter().all(|key| stands(finding, key)))
}

/// Some of a snapshot's objects, by key.
struct Objects<'s> {
    blocks: HashMap<Key, &'s Versioned<StoredBlock>>,
    users: HashMap<Key, User<'s>>,
    others: HashMap<Key, &'s Revision>,
}

/// A user of addresses. Only its parts about addresses are compared: a heartbeat is not a change.
#[derive(PartialEq)]
enum User<'s> {
    Node(&'s Node),
    Pod(&'s Pod),
    Service(&'s Service),
}

impl<'s> Objects<'s> {
    fn new(snapshot: &'s Snapshot, wanted: &BTreeSet<Key>) -> Self {
        let blocks = snapshot.blocks.iter().map(|b| (Key::Block(b.value.key), b));
        Self {
            blocks: blocks.filter(|(key, _)| wanted.contains(key)).collect(),
            users: users(snapshot, wanted),
            others: revisions(snapshot, wanted),
        }
    }
}

fn users<'s>(snapshot: &'s Snapshot, wanted: &BTreeSet<Key>) -> HashMap<Key, User<'s>> {
    let mut found = HashMap::new();
    let mut add = |key: Key, user: User<'s>| {
        if wanted.contains(&key) {
            found.insert(key, user);
        }
    };
    if wanted.iter().any(|k| matches!(k, Key::Node(_))) {
        snapshot.nodes.iter().for_each(|n| add(Key::Node(n.value.name.clone()), User::Node(&n.value)));
    }
    if wanted.iter().any(|k| matches!(k, Key::Pod { .. })) {
        snapshot.pods.iter().for_each(|p| add(p.value.key(), User::Pod(&p.value)));
    }
    snapshot.services.iter().for_each(|s| add(key_of_service(&s.value), User::Service(&s.value)));
    found
}

fn key_of_service(service: &Service) -> Key {
    Key::Service { namespace: service.namespace.clone(), name: service.name.clone() }
}

/// Returns the revisions of some objects other than blocks. Objects that do not exist are left out.
pub fn revisions<'s>(snapshot: &'s Snapshot, wanted: &BTreeSet<Key>) -> HashMap<Key, &'s Revision> {
    let mut found = HashMap::new();
    let mut add = |key: Key, revision: &'s Revision| {
        if wanted.contains(&key) {
            found.insert(key, revision);
        }
    };
    if wanted.iter().any(|k| matches!(k, Key::Affinity(_))) {
        snapshot.affinities.iter().for_each(|a| add(Key::Affinity(a.value.key.clone()), &a.revision));
    }
    if wanted.iter().any(|k| matches!(k, Key::Handle(_))) {
        snapshot.handles.iter().for_each(|h| add(Key::Handle(h.value.id().to_string()), &h.revision));
    }
    if wanted.iter().any(|k| matches!(k, Key::Node(_))) {
        snapshot.nodes.iter().for_each(|n| add(Key::Node(n.value.name.clone()), &n.revision));
    }
    if wanted.iter().any(|k| matches!(k, Key::Endpoint { .. })) {
        for endpoint in &snapshot.endpoints {
            let namespace = endpoint.value.namespace().to_string();
            add(Key::Endpoint { namespace, name: endpoint.value.name() }, &endpoint.revision);
        }
    }
    if wanted.iter().any(|k| matches!(k, Key::Pod { .. })) {
        snapshot.pods.iter().for_each(|pod| add(pod.value.key(), &pod.revision));
    }
    snapshot.services.iter().for_each(|service| add(key_of_service(&service.value), &service.revision));
    found
}

/// Returns true if an object other than a block has changed.
fn has_changed(key: &Key, before: &Objects<'_>, after: &Objects<'_>) -> bool {
    match key {
        Key::Block(_) => false,
        Key::Node(_) | Key::Pod { .. } | Key::Service { .. } => before.users.get(key) != after.users.get(key),
        _ => before.others.get(key) != after.others.get(key),
    }
}

/// Returns true if nothing that matters to the finding has changed in the block.
fn is_recorded_alike(finding: &Finding, key: &Key, before: &Objects<'_>, after: &Objects<'_>) -> bool {
    let (before, after) = match (before.blocks.get(key), after.blocks.get(key)) {
        (Some(before), Some(after)) => (before, after),
        (before, after) => return before.is_none() && after.is_none(),
    };
    if before.revision == after.revision {
        return true;
    }
    let (Some(old), Some(new)) = (before.value.content.usable(), after.value.content.usable()) else {
        return false;
    };
    match &finding.subject {
        Subject::Address(address) => {
            let record =
                |block: &Block| block.allocation_of(*address).map(|a| (a.attribute.to_packed(), a.sequence));
            record(old) == record(new)
        }
        Subject::Handle(id) => {
            let id = Text::new(id);
            let held = |block: &Block| {
                block.allocations().filter(|a| a.attribute.clean_handle() == Some(id.as_ref())).count()
            };
            held(old) == held(new)
        }
        // A block that was deleted and claimed again meanwhile has changed.
        _ => (old.owner(), old.claim_time()) == (new.owner(), new.claim_time()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_cluster::{Cluster, pod};
    use crate::{Code, Options, check};

    fn cluster(records: [Value; 4]) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.block("10.244.1.0/30", Some("host:node-1"), records);
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

    /// A pod that is created after the blocks are read and is being deleted at the second read. Its handle exists both
    /// times, and its block records nothing for it.
    #[test]
    fn a_handle_is_read_again_while_its_block_is_written() {
        let at = |revision: i64| {
            let mut cluster = cluster([Value::Null, Value::Null, Value::Null, Value::Null]);
            let handle = Key::Handle("k8s-pod-network.a".into()).to_string();
            cluster.put(&handle, json!({"handleID": "k8s-pod-network.a", "block": {"10.244.1.0/30": 1}}));
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
            let orphans = report.findings.iter().filter(|f| f.code == Code::OrphanHandle).count();
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
        let first = cluster([none(), pod("node-1", "a"), none(), none()]);
        assert_eq!(standing(&first, &first), ["10.244.1.1"]);
        let elsewhere = {
            let mut later = cluster([none(), pod("node-1", "a"), pod("node-1", "b"), none()]);
            later.0.blocks[0].revision = Revision::Etcd(8);
            later
        };
        assert_eq!(standing(&first, &elsewhere), ["10.244.1.1"], "another address of the block changed");
        let mut released = cluster([none(), none(), none(), none()]);
        released.0.blocks[0].revision = Revision::Etcd(8);
        assert_eq!(standing(&first, &released), [""; 0], "released meanwhile");
        let mut arrived = cluster([none(), pod("node-1", "a"), none(), none()]);
        arrived.endpoint("node-1", "a", &["10.244.1.1/32"]);
        assert_eq!(standing(&first, &arrived), [""; 0], "its endpoint has appeared");
    }
}
