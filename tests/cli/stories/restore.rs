//! An etcd was restored from a backup that is older than the running pods.

use calipam_testkit::cluster::Fault;
use calipam_testkit::kube::{Kinds, create_in_etcd, lease, seed_nodes};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use super::*;
use crate::cli::kube_cluster;

const CONTROLLERS: &str = "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default";

#[test]
fn after_an_etcd_restore() {
    let mut cluster = Cluster::plain(ClusterSpec::new(13).v4_only(), 3, 3);
    shorten_grace(&mut cluster);
    // The backup contains allocations that were in progress.
    cluster.inject(Fault::AffinityPending, 1);
    cluster.inject(Fault::OrphanHandle, 1);
    let pods = endpoints(&cluster);
    let (ended, started) = (&pods[0], [&pods[3], &pods[6]]);
    // All pods are running except one that has ended since the backup.
    let server = lease(Kinds::Kubernetes).unwrap();
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    seed_nodes(&server, &names).unwrap();
    let running = (1..)
        .zip(&pods[1..])
        .map(|(number, living)| pod(&cluster, living, number));
    create_in_etcd(&server, "/registry/pods/", &running.collect::<Vec<_>>()).unwrap();
    // Two pods are not in the backup.
    for living in started {
        forget(&mut cluster, living);
    }
    let etcd = Etcd::of(&cluster).unwrap();
    let kubeconfig = server.kubeconfig();
    let mut story = Story::begin(etcd).with_kubeconfig(kubeconfig.to_str().unwrap());

    assert_eq!(story.tell("calipam check").code, 1);
    assert_eq!(story.tell("calipam rebuild").code, 1, "some of it is skipped");
    story
        .tell("calipam rebuild --apply --yes")
        .prints("Done: 2 of 2 steps");

    delete(&mut story, &server, &started, ended);
    assert_eq!(story.tell("calipam check").code, 1);
    story.tell("calipam release --leaked --yes").succeeded();
    story.tell("calipam check").succeeded().prints("No findings");
    check_document("restore", &story.told);
}

/// Shortens the grace period of the cluster for the test.
fn shorten_grace(cluster: &mut Cluster) {
    cluster.json_mut(CONTROLLERS)["spec"]["controllers"]["node"]["leakGracePeriod"] = json!("2s");
}

/// Creates a pod as the kubelet does. With the etcd datastore, Calico writes no annotation.
fn pod(cluster: &Cluster, living: &Living, number: usize) -> Value {
    let spec = &cluster.json(&living.key)["spec"];
    let [address, node] = [&spec["ipNetworks"][0], &spec["node"]].map(|text| text.as_str().unwrap());
    let address = address.split('/').next().unwrap();
    let mut pod = kube_cluster::pod(&living.namespace, &living.pod, node, address, number);
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    pod
}

/// Removes the data of a pod that started after the backup.
fn forget(cluster: &mut Cluster, living: &Living) {
    let endpoint = cluster.remove(&living.key).json();
    for network in endpoint["spec"]["ipNetworks"].as_array().unwrap() {
        let address = network.as_str().unwrap().split('/').next().unwrap();
        let address: std::net::IpAddr = address.parse().unwrap();
        let block = cluster
            .blocks()
            .find(|block| block.cidr.contains(&address))
            .unwrap()
            .cidr;
        cluster.free(address, block);
    }
}

/// Recreates the pods that started since the backup on other nodes, and deletes the endpoint of the pod that ended.
fn delete(story: &mut Story, server: &KubeApiserver, started: &[&Living], ended: &Living) {
    for living in started {
        let Living { namespace, pod, .. } = living;
        story.tell_deletion(living);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}?gracePeriodSeconds=0");
        let response = server.request("DELETE", &path, "").unwrap();
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let (namespace, key) = (&ended.namespace, ended.key.clone());
    let name = key.rsplit('/').next().unwrap();
    story.told.push(format!(
        "$ calicoctl delete workloadendpoint --namespace {namespace} {name}\nSuccessfully deleted 1 'WorkloadEndpoint' resource(s)\n"
    ));
    assert_eq!(story.etcd().delete(&key).unwrap(), 1);
}
