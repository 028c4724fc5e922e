//! Tests of generated clusters.

use calipam_testkit::cluster::{Cluster, ClusterSpec, Object};

#[test]
fn the_same_specification_gives_the_same_bytes() {
    let entries = |cluster: &Cluster| {
        let mut all = Vec::new();
        cluster.for_each_entry(|key, value| all.push((key.to_vec(), value.to_vec())));
        all
    };
    let spec = ClusterSpec::new(42);
    let (one, two) = (Cluster::all_faults(spec, 2), Cluster::all_faults(spec, 2));
    assert!(entries(&one) == entries(&two));
    assert!(one.truth().iter().eq(two.truth().iter()));
    assert!(entries(&one) != entries(&Cluster::all_faults(ClusterSpec::new(43), 2)));
}

#[test]
fn the_newest_object_of_a_cluster_is_older_than_its_clock() {
    let cluster = Cluster::small(ClusterSpec::new(1));
    let snapshot = cluster.snapshot();
    assert!(snapshot.newest_creation.unwrap() < snapshot.taken_at);
    let endpoints = cluster
        .keys()
        .filter(|k| k.windows(17).any(|w| w == b"workloadendpoints"))
        .count();
    assert_eq!(snapshot.endpoints.len(), endpoints);
    assert!(matches!(
        cluster.get("/calico/ipam/v2/config"),
        Some(Object::Json(_))
    ));
}
