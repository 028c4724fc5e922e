//! Snapshots that follow a cluster: after any change, the updated snapshot equals one that is read from scratch, and
//! both have the same findings.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::rounds;
use jiff::SignedDuration;

use super::random_tests::{entries, unread};
use crate::{Code, Options, check};

/// Values and revisions by key.
type Stored = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;
/// Values to write by key; `None` deletes.
type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A cluster that changes, and a snapshot that follows it.
struct World {
    stored: Stored,
    /// The snapshot without objects.
    read: Snapshot,
    followed: Snapshot,
    revision: i64,
}

impl World {
    fn new(stored: Stored, read: Snapshot) -> Self {
        let followed = whole(&stored, read.clone());
        Self {
            stored,
            read,
            followed,
            revision: 1_000,
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.read.taken_at += SignedDuration::from_secs(seconds);
        self.followed.taken_at = self.read.taken_at;
    }

    /// Applies the writes to the cluster, and compares the snapshot that follows it with one that is read from scratch.
    fn change(&mut self, writes: Writes, name: &str) {
        self.revision += 1;
        let mut fresh = Snapshot::default();
        let keys: Vec<Vec<u8>> = writes.keys().cloned().collect();
        for (key, value) in writes {
            if let Some(value) = value {
                fresh.add_entry(&key, &value, self.revision);
                self.stored.insert(key, (value, self.revision));
            } else {
                self.stored.remove(&key);
            }
        }
        self.followed.change_entries(&keys, fresh);

        let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        let read = whole(&self.stored, self.read.clone());
        assert!(
            self.followed == read,
            "{name}: after {keys:?}: {:#?} instead of {read:#?}",
            self.followed
        );
    }

    /// Applies the writes of a step. After each tenth step, checks both snapshots, and returns the codes of the findings.
    fn step(&mut self, writes: Writes, seed: u64, step: usize) -> Vec<Code> {
        let name = format!("seed {seed}, step {step}");
        self.change(writes, &name);
        if !step.is_multiple_of(10) {
            return Vec::new();
        }
        let options = Options {
            pool_threshold: 30.0,
            ..Options::default()
        };
        let found = check(&self.followed, &options);
        assert_eq!(
            found,
            check(&whole(&self.stored, self.read.clone()), &options),
            "{name}"
        );
        found.findings.iter().map(|finding| finding.code).collect()
    }
}

fn whole(stored: &Stored, mut snapshot: Snapshot) -> Snapshot {
    stored
        .iter()
        .for_each(|(key, (value, revision))| snapshot.add_entry(key, value, *revision));
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot
}

/// Writes that set at most `most` random keys to their values in another state.
fn some_changes(rng: &mut Rng, stored: &Stored, other: &Stored, most: u64) -> Writes {
    let keys: Vec<&Vec<u8>> = stored.keys().chain(other.keys()).collect();
    let mut changes = Writes::new();
    for _ in 0..=rng.below(most) {
        let key = *rng.pick(&keys);
        changes.insert(key.clone(), other.get(key).map(|(value, _)| value.clone()));
    }
    changes
}

/// Writes that swap the values of two objects of one kind.
fn swapped(rng: &mut Rng, stored: &Stored) -> Writes {
    let kinds = [
        "/calico/ipam/v2/handle/",
        "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    ];
    let prefix = rng.pick(&kinds).as_bytes();
    let keys: Vec<&Vec<u8>> = stored.keys().filter(|key| key.starts_with(prefix)).collect();
    let [one, other] = [0, 1].map(|_| *rng.pick(&keys));
    let value = |key: &Vec<u8>| Some(stored[key].0.clone());
    Writes::from([(one.clone(), value(other)), (other.clone(), value(one))])
}

#[test]
fn after_any_change_of_a_broken_cluster_a_followed_snapshot_equals_a_fresh_one() {
    let mut codes = BTreeSet::new();
    for seed in 0..rounds(50) {
        let rng = &mut Rng::new(seed);
        let odd = |rng: &mut Rng| -> Stored {
            entries(rng)
                .into_iter()
                .map(|(key, value)| (key.into_bytes(), (value, 3)))
                .collect()
        };
        let mut read = unread(rng);
        if rng.one_in(2) {
            read.datastore = DatastoreKind::Kubernetes;
        }
        let mut world = World::new(odd(rng), read);
        for step in 0..60 {
            let other = odd(rng);
            let changes = some_changes(rng, &world.stored, &other, 3);
            // The clock can also jump backwards.
            world.wait(*rng.pick(&[0, 1, 30, 300, 900, -400]));
            codes.extend(world.step(changes, seed, step));
        }
    }
    assert!(codes.len() > 20, "{codes:?}");
}

#[test]
fn after_any_change_of_a_cluster_with_every_fault_a_followed_snapshot_equals_a_fresh_one() {
    let mut codes = BTreeSet::new();
    for seed in 0..rounds(2) {
        let rng = &mut Rng::new(seed);
        let faulty = Cluster::all_faults(ClusterSpec::new(seed + 1), 2);
        let mut read = Snapshot {
            taken_at: faulty.spec().now,
            ..Snapshot::default()
        };
        read.mark_read(ETCD_SOURCES);
        let [faulty, healthy] = [faulty, Cluster::plain(ClusterSpec::new(seed + 1), 8, 6)].map(|cluster| {
            let mut stored = Stored::new();
            cluster.for_each_entry(|key, value| drop(stored.insert(key.to_vec(), (value.to_vec(), 3))));
            stored
        });
        let mut world = World::new(faulty.clone(), read);
        for step in 0..60 {
            let changes = match rng.below(4) {
                // Some objects get their faulty values back.
                0 => some_changes(rng, &world.stored, &faulty, 12),
                1 => some_changes(rng, &world.stored, &healthy, 3),
                2 => swapped(rng, &world.stored),
                _ => some_changes(rng, &world.stored, &Stored::new(), 3),
            };
            world.wait(*rng.pick(&[0, 2, 60, 600]));
            codes.extend(world.step(changes, seed, step));
        }
    }
    assert!(
        codes.contains(&Code::LeakedAddress) && codes.len() > 20,
        "{codes:?}"
    );
}
