//! Changes of a snapshot give the same as reading everything again.

use std::collections::BTreeMap;

use calipam_model::snapshot::Snapshot;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};

/// A key's new value and its revision; `None` if the key is deleted.
type NewValue = Option<(Vec<u8>, i64)>;

/// Builds a snapshot from all entries.
fn whole(entries: &BTreeMap<Vec<u8>, (Vec<u8>, i64)>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    entries
        .iter()
        .for_each(|(key, (value, revision))| snapshot.add_entry(key, value, *revision));
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot
}

/// Entries of every kind. Each key has several values.
fn values() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for spec in [ClusterSpec::new(1), ClusterSpec::new(2)] {
        let cluster = Cluster::plain(spec, 3, 4);
        cluster.for_each_entry(|key, value| all.push((key.to_vec(), value.to_vec())));
    }
    let resource = "/calico/resources/v3/projectcalico.org";
    for (key, value) in [
        (format!("{resource}/ipamconfigurations/other"), r#"{"spec":{}}"#),
        (
            format!("{resource}/ipreservations/r"),
            r#"{"spec":{"reservedCIDRs":[]}}"#,
        ),
        ("/calico/ipam/v2/@/odd".to_owned(), ""),
    ] {
        all.push((key.into_bytes(), value.into()));
    }
    all
}

#[test]
fn change_entries_gives_the_same_snapshot_as_a_full_read() {
    let (mut random, values) = (Rng::new(7), values());
    let mut entries = BTreeMap::new();
    let mut snapshot = whole(&entries);
    for revision in 1..60 {
        let mut changes = BTreeMap::new();
        for _ in 0..random.below(40) {
            let (key, value) = random.pick(&values).clone();
            if random.below(3) == 0 {
                entries.remove(&key);
                changes.insert(key, None);
            } else {
                let value = if random.below(5) == 0 {
                    b"broken".to_vec()
                } else {
                    value
                };
                entries.insert(key.clone(), (value.clone(), revision));
                changes.insert(key, Some((value, revision)));
            }
        }
        let keys: Vec<&[u8]> = changes.keys().map(Vec::as_slice).collect();
        let stored = |(key, value): (&Vec<u8>, &NewValue)| Some((key.clone(), value.clone()?));
        let before = snapshot.clone();
        let gone = snapshot.change_entries(&keys, whole(&changes.iter().filter_map(stored).collect()));
        let again = before.clone().change_entries(&keys, gone.clone());
        assert_eq!(again, gone, "the earlier values are returned");
        let mut undone = snapshot.clone();
        undone.change_entries(&keys, gone);
        undone.newest_creation = before.newest_creation;
        assert_eq!(undone, before, "revision {revision}");
        let mut expected = whole(&entries);
        // `newest_creation` never decreases, even if the newest object is deleted. It is needed only for snapshots from
        // files.
        expected.newest_creation = snapshot.newest_creation;
        assert_eq!(snapshot, expected, "revision {revision}");
    }
    assert!(!snapshot.defects.is_empty() && !snapshot.endpoints.is_empty());
    assert!(!snapshot.affinities.is_empty());
}
