//! What a snapshot of etcd becomes when keys change.

use std::collections::{BTreeSet, HashSet};

use crate::key::{BLOCK_PREFIX, ENDPOINT_PREFIX, HANDLE_PREFIX, Key, RESOURCE_PREFIX};
use crate::snapshot::{Snapshot, Versioned};

/// What is stored under a key from some revision on; `None` where it is deleted.
pub type NewValue = Option<(Vec<u8>, i64)>;

/// The name of the one object that Calico uses of kinds with only one.
const DEFAULT: &str = "default";

impl Snapshot {
    /// Makes a snapshot that was read whole what a whole read finds after these keys have changed, where `fresh` is what is
    /// stored under them now. The objects of each kind are in the order of their keys in both, and stay so.
    pub fn change_entries(&mut self, keys: &BTreeSet<&[u8]>, mut fresh: Self) {
        let paths: Vec<&str> = keys.iter().filter_map(|key| std::str::from_utf8(key).ok()).collect();
        let resource = |plural: &str| format!("{RESOURCE_PREFIX}{plural}/");
        merge(&mut self.blocks, fresh.blocks, &below(&paths, BLOCK_PREFIX), |b| {
            Key::Block(b.key).to_string()
        });
        merge(&mut self.handles, fresh.handles, &below(&paths, HANDLE_PREFIX), |handle| {
            format!("{HANDLE_PREFIX}{}", handle.id())
        });
        merge(&mut self.endpoints, fresh.endpoints, &below(&paths, ENDPOINT_PREFIX), |endpoint| {
            format!("{ENDPOINT_PREFIX}{}/{}", endpoint.namespace(), endpoint.name())
        });
        let is_other = |path: &&str| {
            ![BLOCK_PREFIX, HANDLE_PREFIX, ENDPOINT_PREFIX].iter().any(|prefix| path.starts_with(prefix))
        };
        let others: Vec<&str> = paths.iter().copied().filter(is_other).collect();
        merge(&mut self.affinities, fresh.affinities, &others, |affinity| {
            Key::Affinity(affinity.key.clone()).to_string()
        });
        merge(&mut self.nodes, fresh.nodes, &below(&paths, &resource("nodes")), |node| {
            Key::Node(node.name.clone()).to_string()
        });
        merge(&mut self.pools, fresh.pools, &below(&paths, &resource("ippools")), |pool| {
            Key::Pool(pool.name.clone()).to_string()
        });
        merge(&mut self.reservations, fresh.reservations, &below(&paths, &resource("ipreservations")), |r| {
            Key::Reservation(r.name.clone()).to_string()
        });

        let has = |key: Key| keys.contains(key.to_string().as_bytes());
        if has(Key::IpamConfig) {
            self.ipam_config = fresh.ipam_config;
        }
        if has(Key::IpamConfiguration(DEFAULT.to_owned())) {
            self.ipam_configuration = fresh.ipam_configuration;
        }
        if has(Key::ClusterInformation(DEFAULT.to_owned())) {
            self.cluster = fresh.cluster;
            self.cluster_revision = fresh.cluster_revision;
        }
        if has(Key::KubeControllersConfiguration(DEFAULT.to_owned())) {
            self.kube_controllers = fresh.kube_controllers;
        }

        // A defect says its key as text, whatever its bytes are.
        let told: HashSet<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        self.defects.retain(|defect| !told.contains(defect.path.as_str()));
        self.defects.append(&mut fresh.defects);
        self.defects.sort_by(|a, b| a.path.cmp(&b.path));
        self.newest_creation = self.newest_creation.max(fresh.newest_creation);
    }
}

/// The paths that begin so.
fn below<'p>(paths: &[&'p str], prefix: &str) -> Vec<&'p str> {
    paths.iter().copied().filter(|path| path.starts_with(prefix)).collect()
}

/// Takes the objects with these paths out of a list, and puts `fresh` in their places. Both lists are in the order of their
/// paths.
fn merge<T>(
    list: &mut Vec<Versioned<T>>,
    fresh: Vec<Versioned<T>>,
    paths: &[&str],
    path: impl Fn(&T) -> String,
) {
    if paths.is_empty() {
        return;
    }
    let place = |wanted: &str| list.partition_point(|object| path(&object.value).as_str() < wanted);
    let mut gone = vec![false; list.len()];
    // A path is made of an object for each step of a search, which is most of the work.
    let places_of_paths: Vec<usize> = paths.iter().map(|wanted| place(wanted)).collect();
    for (wanted, first) in paths.iter().zip(&places_of_paths) {
        let mut at = *first;
        while list.get(at).is_some_and(|object| path(&object.value) == *wanted) {
            gone[at] = true;
            at += 1;
        }
    }
    let place_of_fresh = |object: &Versioned<T>| {
        let path = path(&object.value);
        paths.binary_search(&path.as_str()).map_or_else(|_| place(&path), |index| places_of_paths[index])
    };
    let mut places: Vec<usize> = fresh.iter().map(place_of_fresh).collect();
    places.reverse();

    let mut merged = Vec::with_capacity(list.len() + fresh.len());
    let mut fresh = fresh.into_iter();
    for (index, object) in std::mem::take(list).into_iter().enumerate() {
        while places.last() == Some(&index) {
            places.pop();
            merged.extend(fresh.next());
        }
        if !gone[index] {
            merged.push(object);
        }
    }
    merged.extend(fresh);
    *list = merged;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A snapshot of entries, read whole.
    fn whole(entries: &BTreeMap<Vec<u8>, (Vec<u8>, i64)>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        entries.iter().for_each(|(key, (value, revision))| snapshot.add_entry(key, value, *revision));
        snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
        snapshot
    }

    /// Keys of every kind, with values that can and cannot be decoded.
    fn entry(kind: usize, number: usize, salt: usize) -> (Vec<u8>, Vec<u8>) {
        let resource = |plural: &str, name: &str| format!("{RESOURCE_PREFIX}{plural}/{name}");
        let (key, value) = match kind {
            0 => (
                format!("{BLOCK_PREFIX}ipv4/block/10.0.{number}.0-30"),
                format!(
                    r#"{{"cidr":"10.0.{number}.0/30","allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":[],"sequenceNumber":{salt}}}"#
                ),
            ),
            1 => (format!("{HANDLE_PREFIX}net.{number}"), format!(r#"{{"block":{{"10.0.0.0/30":{salt}}}}}"#)),
            2 => (
                format!("{ENDPOINT_PREFIX}ns-{}/node-k8s-pod--{number}-eth0", number % 3),
                format!(
                    r#"{{"spec":{{"node":"node","orchestrator":"k8s","pod":"pod-{number}","endpoint":"eth0","containerID":"{salt}"}}}}"#
                ),
            ),
            3 => (
                format!("/calico/ipam/v2/host/node-{number}/ipv4/block/10.0.{number}.0-30"),
                r#"{"state":"confirmed"}"#.to_owned(),
            ),
            4 => (resource("nodes", &format!("node-{number}")), r#"{"spec":{}}"#.to_owned()),
            5 => (
                resource("ippools", &format!("pool-{number}")),
                format!(
                    r#"{{"metadata":{{"creationTimestamp":"2026-05-01T10:12:{:02}Z"}},"spec":{{"cidr":"10.{number}.0.0/16"}}}}"#,
                    salt % 60
                ),
            ),
            6 => (
                resource("ipreservations", &format!("r-{number}")),
                r#"{"spec":{"reservedCIDRs":[]}}"#.to_owned(),
            ),
            7 => ("/calico/ipam/v2/config".to_owned(), r#"{"strict_affinity":true}"#.to_owned()),
            8 => (
                resource("clusterinformations", "default"),
                format!(r#"{{"spec":{{"clusterGUID":"{salt}"}}}}"#),
            ),
            _ => (format!("/calico/ipam/v2/@/{number}"), String::new()),
        };
        let value = if salt.is_multiple_of(5) { "broken".to_owned() } else { value };
        (key.into_bytes(), value.into_bytes())
    }

    #[test]
    fn it_is_what_a_whole_read_finds() {
        let mut random = 7_u64;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % most
        };
        let mut entries = BTreeMap::new();
        let mut snapshot = whole(&entries);
        for revision in 1..60 {
            let mut changes = BTreeMap::new();
            for _ in 0..below(40) {
                let (key, value) = entry(below(10), below(12), below(100));
                if below(3) == 0 {
                    entries.remove(&key);
                    changes.insert(key, None);
                } else {
                    entries.insert(key.clone(), (value.clone(), revision));
                    changes.insert(key, Some((value, revision)));
                }
            }
            let keys = changes.keys().map(Vec::as_slice).collect();
            let stored = |(key, value): (&Vec<u8>, &NewValue)| Some((key.clone(), value.clone()?));
            snapshot.change_entries(&keys, whole(&changes.iter().filter_map(stored).collect()));
            let mut expected = whole(&entries);
            // The newest that ever was; only files go by it.
            expected.newest_creation = snapshot.newest_creation;
            assert_eq!(snapshot, expected, "revision {revision}");
        }
        assert!(
            !snapshot.defects.is_empty() && !snapshot.endpoints.is_empty() && !snapshot.affinities.is_empty()
        );
    }
}
