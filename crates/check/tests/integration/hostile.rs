//! Values from a broken disk, a bad script or an attacker. Nothing panics, and undecodable objects are reported.

use std::collections::BTreeSet;

use calipam_check::{Options, check};
use calipam_model::block::BlockContent;
use calipam_model::snapshot::DefectKind;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::json::pointers;
use calipam_testkit::rounds;
use serde_json::{Value, json};

/// A small healthy cluster with every kind of object.
fn healthy() -> Cluster {
    Cluster::plain(ClusterSpec::new(5), 2, 2)
}

/// Keys and values of objects that a check decodes, two of each kind.
fn to_corrupt(cluster: &Cluster) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ipam = "assignment/ipv4/ assignment/ipv6/ host/ handle/ipip handle/k8s config";
    let resources = "ippools/ ipreservations/ nodes/ workloadendpoints/ clusterinformations/ \
        kubecontrollersconfigurations/ ipamconfigurations/";
    let ipam = ipam.split(' ').map(|kind| format!("/calico/ipam/v2/{kind}"));
    let resources = resources
        .split(' ')
        .map(|kind| format!("/calico/resources/v3/projectcalico.org/{kind}"));
    let of_kind = |kind: String| {
        let keys = cluster.keys().filter(move |key| key.starts_with(kind.as_bytes()));
        keys.take(2).map(<[u8]>::to_vec)
    };
    let keys: Vec<Vec<u8>> = ipam.chain(resources).flat_map(of_kind).collect();
    assert!(keys.len() > 18);
    keys.into_iter()
        .map(|key| (key.clone(), value_of(cluster, &key)))
        .collect()
}

fn value_of(cluster: &Cluster, key: &[u8]) -> Vec<u8> {
    cluster.get(std::str::from_utf8(key).unwrap()).unwrap().value()
}

/// The findings after `value` was stored under `key`, each as `code subject`. Undecodable objects and corrupt blocks
/// must be among them.
fn judge(cluster: &Cluster, key: &[u8], value: &[u8]) -> BTreeSet<String> {
    let mut changed = cluster.clone();
    changed.put_raw(key, value);
    let snapshot = changed.snapshot();
    let report = check(&snapshot, &Options::default());
    let found: BTreeSet<String> = report
        .findings
        .iter()
        .map(|f| format!("{} {}", f.code, f.subject))
        .collect();
    for defect in &snapshot.defects {
        assert!(
            found.contains(&format!("undecodable-object {}", defect.path)),
            "{}",
            defect.path
        );
    }
    for block in &snapshot.blocks {
        if let BlockContent::Corrupt(_) = block.value.content {
            assert!(
                found.contains(&format!("corrupt-block {}", block.value.key)),
                "{found:?}"
            );
        }
    }
    // Serializing must not panic, either.
    serde_json::to_vec(&report).unwrap();
    found
}

#[test]
fn invalid_json_gives_exactly_one_undecodable_object() {
    let cluster = healthy();
    assert_eq!(cluster.snapshot().defects, []);
    for (key, value) in to_corrupt(&cluster) {
        let mut corrupted = vec![
            vec![0xff; 7],
            b"null and void".to_vec(),
            b"7".to_vec(),
            b"[]".to_vec(),
        ];
        corrupted.extend([1, 3, 5].map(|part| value[..value.len() * part / 6].to_vec()));
        for corrupted in corrupted {
            let expected = BTreeSet::from([format!("undecodable-object {}", String::from_utf8_lossy(&key))]);
            let mut found = judge(&cluster, &key, &corrupted);
            // Calico skips a pool that it cannot read, and the cluster has no other one.
            found.retain(|finding| !finding.starts_with("node-without-addresses "));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(&corrupted));
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let cluster = healthy();
    let mut rng = Rng::new(77);
    for (key, value) in to_corrupt(&cluster) {
        for _ in 0..12 {
            let mut corrupted = value.clone();
            for _ in 0..=rng.below(3) {
                let position = rng.below(corrupted.len() as u64) as usize;
                match rng.below(3) {
                    0 => corrupted[position] ^= 1 << rng.below(8),
                    1 => drop(corrupted.remove(position)),
                    _ => corrupted.insert(position, rng.next() as u8),
                }
            }
            judge(&cluster, &key, &corrupted);
        }
    }
}

/// Values of many JSON types. Most of them are wrong for any given field.
fn unexpected_values() -> Vec<Value> {
    let values = json!([null, -1, 1_000_000_000, u64::MAX, i64::MIN, 1.5e300, true, "", "\r\n\u{0}/../::/999",
        "10.244.1.0/26", [], [[[-7]]], {}, {"a": {"b": null}}]);
    values.as_array().unwrap().clone()
}

#[test]
fn strange_values_in_any_place_never_panic() {
    let cluster = healthy();
    let mut rng = Rng::new(78);
    for (key, value) in to_corrupt(&cluster) {
        let value: Value = serde_json::from_slice(&value).unwrap();
        let positions = pointers(&value);
        for unexpected in unexpected_values() {
            let mut corrupted = value.clone();
            *corrupted.pointer_mut(rng.pick::<String>(&positions)).unwrap() = unexpected;
            judge(&cluster, &key, corrupted.to_string().as_bytes());
        }
    }
}

#[test]
fn blocks_with_strange_arrays_are_corrupt_or_undecodable() {
    let cluster = healthy();
    let key = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26";
    let value = cluster.json(key);
    for field in ["allocations", "unallocated", "attributes"] {
        for unexpected in unexpected_values() {
            let mut corrupted = value.clone();
            corrupted[field] = unexpected.clone();
            let found = judge(&cluster, key.as_bytes(), corrupted.to_string().as_bytes());
            let corrupt = BTreeSet::from(["corrupt-block 10.244.1.0/26".to_owned()]);
            let undecodable = BTreeSet::from([format!("undecodable-object {key}")]);
            assert!(
                found == corrupt || found == undecodable,
                "{field} = {unexpected}: {found:?}"
            );
        }
    }
    for (position, index) in [(0, -1), (63, 1_000_000_000), (5, i64::MAX), (7, i64::MIN)] {
        let mut corrupted = value.clone();
        corrupted["allocations"][position] = json!(index);
        let found = judge(&cluster, key.as_bytes(), corrupted.to_string().as_bytes());
        assert_eq!(found, BTreeSet::from(["corrupt-block 10.244.1.0/26".to_owned()]));
    }
}

#[test]
fn strings_of_a_megabyte_do_not_break_a_check() {
    let cluster = healthy();
    let long = "x".repeat(1 << 20);
    let mut big = cluster.clone();
    big.put_raw(
        format!("/calico/ipam/v2/handle/{long}"),
        r#"{"block":{},"deleted":false}"#,
    );
    let key = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26";
    let value = String::from_utf8(value_of(&cluster, key.as_bytes())).unwrap();
    big.put_raw(key, value.replace("host:node-1", &format!("host:{long}")));
    let snapshot = big.snapshot();
    assert_eq!(snapshot.defects, []);
    let found = check(&snapshot, &Options::default()).findings;
    let codes: BTreeSet<&str> = found.iter().map(|f| f.code.name()).collect();
    let expected = "affinity-block-mismatch block-of-missing-node block-without-affinity borrowed-tunnel-address \
        orphan-handle";
    assert_eq!(codes, expected.split_whitespace().collect());
    assert!(
        found.iter().all(|f| f.message().len() < 2_000),
        "messages are kept short"
    );
}

#[test]
fn keys_of_arbitrary_bytes_do_not_break_a_check() {
    let cluster = healthy();
    let mut rng = Rng::new(79);
    for prefix in [
        "/calico/ipam/v2/",
        "/calico/resources/v3/projectcalico.org/ippools/",
        "",
    ] {
        for _ in 0..rounds(40) {
            let mut key = prefix.as_bytes().to_vec();
            key.extend((0..=rng.below(12)).map(|_| rng.next() as u8));
            judge(&cluster, &key, br#"{"spec":{"cidr":"192.0.2.0/24"}}"#);
        }
    }
    let mut undecodable = cluster.clone();
    undecodable.put_raw(b"/calico/ipam/v2/\xff".as_slice(), "{}");
    let defects = undecodable.snapshot().defects;
    assert!(matches!(defects[..], [ref defect] if matches!(defect.kind, DefectKind::Key(_))));
}

#[test]
fn a_number_beyond_a_double_in_an_unknown_field_changes_nothing() {
    let cluster = healthy();
    for (key, value) in to_corrupt(&cluster) {
        let value = String::from_utf8(value).unwrap();
        for (at, field) in [
            ("{", r#"{"x":1e400,"#),
            (r#""spec":{"#, r#""spec":{"x":[{"y":-1e400}],"#),
        ] {
            let value = value.replacen(at, field, 1).replace(",}", "}");
            let found = judge(&cluster, &key, value.as_bytes());
            assert!(found.is_empty(), "{found:?}: {value}");
        }
    }
}
