//! `calipam serve --lease`: two replicas on a real API server, of which one checks.

use std::time::{Duration, Instant};

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record};
use super::serve::Server;
use super::serve_kubernetes::events_of_findings;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/calipam/leases/calipam-serve";

fn replica(cluster: &KubeCluster) -> Server {
    let kubeconfig = cluster.server.kubeconfig();
    let lease = ["--lease", "calipam/calipam-serve", "--settle", "0", "--interval", "1h", "--events"];
    let datastore = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    Server::start(&[&lease[..], &datastore].concat())
}

fn lease(cluster: &KubeCluster) -> Value {
    serde_json::from_str(&cluster.server.request("GET", LEASE, "").unwrap().body).unwrap()
}

/// The processes that have told of findings, one for each Event.
fn tellers(cluster: &KubeCluster) -> Vec<String> {
    let events = events_of_findings(cluster);
    let mut tellers: Vec<String> =
        events.iter().map(|event| event["reportingInstance"].as_str().unwrap().to_owned()).collect();
    tellers.sort();
    tellers
}

fn wait_for_tellers(cluster: &KubeCluster, number: usize) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let tellers = tellers(cluster);
        if tellers.len() == number {
            return tellers;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{tellers:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A block with the address of a pod that does not exist.
fn add_leak(cluster: &KubeCluster, cidr: &str) {
    cluster.add_block(
        cidr,
        "node-1",
        &[Record::of_pod(0, "default", &format!("gone-{}", cidr.len()), "node-1")],
    );
}

#[test]
fn one_replica_checks_and_another_takes_over_when_it_is_killed() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("calipam");
    cluster.add_node("node-1", json!({}));
    add_leak(&cluster, "10.0.0.0/26");
    let first = replica(&cluster);
    first.wait("/healthz", |answer| answer.status == 200);
    let second = replica(&cluster);
    let stands_by = "another replica checks the cluster: this one stands by\n";
    let health = second.wait("/healthz", |answer| answer.body == stands_by);
    assert_eq!(health.status, 503);
    assert_eq!(second.get("/livez").status, 200);
    let metrics = second.get("/metrics").body;
    assert!(metrics.contains("\ncalipam_standby 1\n") && !metrics.contains("calipam_up"), "{metrics}");
    assert_eq!(second.get("/report.json").status, 503);
    let held = lease(&cluster);
    assert_eq!(held["spec"]["leaseTransitions"], 0);

    // The one that checks tells of findings, and no other.
    let told = wait_for_tellers(&cluster, 1);
    assert!(told[0].contains(&format!("_{}_", first.process_id())), "{told:?}");

    // It is dropped without a word.
    let begin = Instant::now();
    drop(first);
    second.wait("/healthz", |answer| answer.status == 200);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(took > Duration::from_secs(5), "the lease was still held: {took:?}");
    assert_eq!(lease(&cluster)["spec"]["leaseTransitions"], 1);

    add_leak(&cluster, "10.0.0.64/26");
    let told = wait_for_tellers(&cluster, 2);
    let of_second = format!("_{}_", second.process_id());
    assert_eq!(told.iter().filter(|teller| teller.contains(&of_second)).count(), 1, "{told:?}");

    // One that ends by itself gives the lease back.
    let third = replica(&cluster);
    third.wait("/healthz", |answer| answer.body == stands_by);
    assert_eq!(second.terminate().0, Some(0));
    let begin = Instant::now();
    third.wait("/healthz", |answer| answer.status == 200);
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    assert_eq!(lease(&cluster)["spec"]["leaseTransitions"], 2);
}

/// A replica that cannot renew the lease stops before another may take it, and says so.
#[test]
fn a_replica_that_cannot_renew_the_lease_stands_by() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("calipam");
    let only = replica(&cluster);
    only.wait("/healthz", |answer| answer.status == 200);
    let mut other = lease(&cluster);
    other["spec"]["holderIdentity"] = "another".into();
    let put = cluster.server.request("PUT", LEASE, &other.to_string()).unwrap();
    assert_eq!(put.status, 200, "{}", put.body);
    only.wait("/healthz", |answer| answer.status == 503 && answer.body.starts_with("another replica"));
    // The other one does not renew it.
    only.wait("/healthz", |answer| answer.status == 200);
}
