//! The generated objects on a real API server, created and read through its API.

use std::collections::BTreeSet;
use std::time::Instant;

use calipam_testkit::World;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Form, KubeCluster};
use calipam_testkit::datastore::observe;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::findings::{complaints, distinct_lines, findings, in_etcd, in_list, unexplained};
use super::views::views_agree;

/// The code of a finding that cannot occur on a server. The server sets the creation times of objects, so all services
/// are younger than the grace period.
const TOO_YOUNG: [&str; 2] = ["service-without-address ", "pod-without-address "];

async fn a_server_gives_the_same_findings(flavour: Flavour, seed: u64) {
    let spec = ClusterSpec::new(seed).at(Timestamp::now());
    let mut cluster = Cluster::small(spec);
    let features = (0..Cluster::FEATURES).filter(|feature| *feature != Cluster::LOAD_BALANCER_OFF);
    features.for_each(|feature| cluster.add_feature(feature));
    cluster.inject_all(Fault::all_in(Form::of(flavour)), 1);
    let kubernetes = cluster.kubernetes(flavour);
    let begin = Instant::now();
    let world = World::kubernetes_of(&kubernetes);
    println!("{} objects in {:?}", kubernetes.objects.len(), begin.elapsed());
    let store = world.open().await;
    let found = findings(&observe(&store).await);
    let is_too_young = |line: &String| TOO_YOUNG.iter().any(|code| line.starts_with(code));
    let lacking: Vec<String> = kubernetes
        .truth()
        .lines()
        .into_iter()
        .filter(is_too_young)
        .collect();
    assert_eq!(lacking.len(), 2);
    let mut wrong = complaints(&found, kubernetes.truth());
    wrong.retain(|complaint| {
        lacking
            .iter()
            .all(|line| *complaint != format!("missing: {line}"))
    });
    wrong.extend(unexplained(&in_etcd(&cluster), &found, &kubernetes));
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut from_list: BTreeSet<String> = distinct_lines(&in_list(&kubernetes).await);
    assert!(lacking.iter().all(|line| from_list.remove(line)));
    assert_eq!(distinct_lines(&found), from_list);
    views_agree(&store).await;
    assert_excluded_faults_are_rejected(world.server(), &kubernetes);
}

/// Objects that the server rejects. Each entry is a kind, the field that a fault would break, and the broken value.
fn impossible(flavour: Flavour) -> Vec<(&'static str, &'static str, Value)> {
    let mut all = vec![
        ("ipamblocks", "/spec/allocations", Value::Null),
        ("ipamblocks", "/spec/unallocated", json!(["one"])),
        ("ipamhandles", "/spec/block", json!(["10.244.1.0/26"])),
        ("ipamhandles", "/spec/block", Value::Null),
        ("ipamhandles", "/metadata/name", json!("handle\r\neth0")),
        ("ipamhandles", "/metadata/name", json!("Handle")),
        ("ipamhandles", "/metadata/name", json!("handle/eth0")),
        ("blockaffinities", "/spec/deleted", json!(7)),
        ("kubecontrollersconfigurations", "/spec", json!(7)),
        (flavour.ipam_config().0, "/spec/strictAffinity", json!("yes")),
    ];
    if flavour == Flavour::Native {
        all.extend([
            ("ipamblocks", "/spec/cidr", json!("10.244.300.0/26")),
            ("blockaffinities", "/spec/deleted", json!("perhaps")),
            ("blockaffinities", "/spec/state", json!("perhaps")),
            ("ippools", "/spec/cidr", json!("198.18.0.0/444")),
            ("ipreservations", "/spec/reservedCIDRs", json!(["10.244.0.0/33"])),
        ]);
    }
    all
}

/// Asserts that the server rejects the faults that [`Fault::exists_in`](calipam_testkit::cluster::Fault::exists_in)
/// excludes.
fn assert_excluded_faults_are_rejected(server: &KubeApiserver, cluster: &KubeCluster) {
    for (plural, field, value) in impossible(cluster.flavour) {
        let object = cluster
            .objects
            .iter()
            .find(|object| object.plural == plural)
            .unwrap();
        let mut json = object.json.clone();
        json["metadata"]["name"] = "another".into();
        *json.pointer_mut(field).unwrap() = value;
        let path = object.collection(cluster.flavour);
        let response = server.request("POST", &path, &json.to_string()).unwrap();
        assert!(
            matches!(response.status, 400 | 422),
            "{plural} {field}: {} {}",
            response.status,
            response.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_classic_group_on_a_server_gives_the_same_findings() {
    a_server_gives_the_same_findings(Flavour::Classic, 21).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_group_on_a_server_gives_the_same_findings() {
    a_server_gives_the_same_findings(Flavour::Native, 22).await;
}
