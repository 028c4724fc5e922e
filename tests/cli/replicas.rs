//! Replicas of `calipam serve --events` on a real API server. All of them check, and each finding has one event.

use std::time::{Duration, Instant};

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record};
use super::serve::Server;
use super::serve_kubernetes::events_of_findings;

fn replica(cluster: &KubeCluster) -> Server {
    let kubeconfig = cluster.server.kubeconfig();
    let options = ["--settle", "0", "--interval", "1h", "--events"];
    let datastore = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    Server::start(&[&options[..], &datastore].concat())
}

/// Returns the events about leaks. On a busy machine, there can also be events about a block that was written before
/// its affinity and handle.
fn leaks_told(cluster: &KubeCluster) -> Vec<Value> {
    events_of_findings(cluster).into_iter().filter(|event| event["reason"] == "LeakedAddress").collect()
}

fn wait_for_events(cluster: &KubeCluster, number: usize) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let events = leaks_told(cluster);
        if events.len() >= number {
            return events;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{events:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Adds a block with the address of a missing pod.
fn add_leak(cluster: &KubeCluster, cidr: &str) {
    cluster.add_block(
        cidr,
        "node-1",
        &[Record::of_pod(0, "default", &format!("gone-{}", cidr.len()), "node-1")],
    );
}

#[test]
fn replicas_report_each_finding_once_even_if_one_is_killed() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-1", json!({}));
    add_leak(&cluster, "10.0.0.0/26");
    let replicas = [replica(&cluster), replica(&cluster)];
    for replica in &replicas {
        replica.wait("/healthz", |answer| answer.status == 200);
    }
    wait_for_events(&cluster, 1);

    // Both replicas find the next leak at the same time, and either could send its event.
    add_leak(&cluster, "10.0.0.64/26");
    wait_for_events(&cluster, 2);
    std::thread::sleep(Duration::from_secs(7));
    let told = leaks_told(&cluster);
    assert_eq!(told.len(), 2, "{told:#?}");

    let [killed, other] = replicas;
    drop(killed);
    add_leak(&cluster, "10.0.0.128/26");
    let told = wait_for_events(&cluster, 3);
    assert_eq!(told.len(), 3, "{told:#?}");
    assert_eq!(other.terminate().0, Some(0));
}
