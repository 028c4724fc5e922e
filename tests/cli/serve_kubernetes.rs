//! `calipam serve` follows a Kubernetes datastore. It finds changes without complete reads, and reports them as Events.

use std::time::{Duration, Instant};

use calipam_testkit::kube::{Flavour, create, install_kubevirt};
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, pod};
use super::program;
use super::scheduled::{collection, documents};
use super::serve::Server;

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server with an interval of one hour.
fn serve(cluster: &KubeCluster, options: &[&str]) -> Server {
    let kubeconfig = cluster.server.kubeconfig();
    let datastore = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let server = Server::start(&[&["--interval", "1h"], options, &datastore].concat());
    server.wait("/healthz", |answer| answer.status == 200);
    server
}

/// Creates a node with a block that records the running pod `web-0`, and `gone` pods that do not exist.
fn cluster(gone: u64) -> KubeCluster {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-1", json!({}));
    let web = Record::of_pod(0, "default", "web-0", "node-1");
    let gone = (1..=gone).map(|n| Record::of_pod(n, "default", &format!("gone-{n}"), "node-1"));
    cluster.add_block("10.0.0.0/26", "node-1", &[web].into_iter().chain(gone).collect::<Vec<_>>());
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.0", 1)]);
    cluster
}

fn findings(report: &str) -> Vec<String> {
    program::findings(&serde_json::from_str(report).unwrap(), &["code", "name"])
}

/// Returns the metric that counts complete reads.
fn whole_reads(server: &Server) -> String {
    let metrics = server.get("/metrics").body;
    let is_wanted = |line: &&str| line.starts_with("calipam_live_reads ");
    metrics.lines().find(is_wanted).unwrap_or_default().to_owned()
}

/// Deletes the recorded pod.
fn delete_pod(cluster: &KubeCluster) {
    cluster.server.etcd().delete("/registry/pods/default/web-0").unwrap();
}

#[test]
fn a_change_is_found_after_the_settle_time() {
    let cluster = cluster(0);
    let server = serve(&cluster, &["--settle", "1s"]);
    assert_eq!(findings(&server.get("/report.json").body), [""; 0]);
    let whole = whole_reads(&server);

    let begin = Instant::now();
    delete_pod(&cluster);
    let leaked = "leaked-address 10.0.0.0".to_owned();
    server.wait("/report.json", |answer| findings(&answer.body).contains(&leaked));
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    println!("found after {:?}", begin.elapsed());
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.0", 2)]);
    server.wait("/report.json", |answer| findings(&answer.body).is_empty());
    assert_eq!(whole_reads(&server), whole, "only what has changed was read");
}

/// Lists the Events that this program has sent.
pub(super) fn events_of_findings(cluster: &KubeCluster) -> Vec<Value> {
    let answer = cluster.server.request("GET", "/apis/events.k8s.io/v1/events", "").unwrap();
    let list: Value = serde_json::from_str(&answer.body).unwrap();
    let ours = list["items"].as_array().unwrap().iter();
    ours.filter(|event| event["reportingController"] == "calipam.io/serve").cloned().collect()
}

/// Lists the type, the kind and name of the object, and the reason of each Event.
fn events(cluster: &KubeCluster) -> Vec<String> {
    let line = |event: &Value| {
        let regarding = &event["regarding"];
        assert!(regarding["uid"].is_string() && event["note"].is_string(), "{event}");
        let words = [&event["type"], &regarding["kind"], &regarding["name"], &event["reason"]];
        words.map(|word| word.as_str().unwrap()).join(" ")
    };
    let mut lines: Vec<String> = events_of_findings(cluster).iter().map(line).collect();
    lines.sort();
    lines
}

fn wait_for_events(cluster: &KubeCluster, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let events = events(cluster);
        if wanted(&events) {
            return events;
        }
        assert!(begin.elapsed() < PATIENCE, "{events:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn new_findings_are_events_that_are_sent_once_at_a_limited_rate() {
    let cluster = cluster(12);
    let server = serve(&cluster, &["--settle", "0", "--events"]);
    let begin = Instant::now();
    let first = wait_for_events(&cluster, |events| !events.is_empty());
    assert!(first.len() <= 10, "{first:#?}");
    let all = wait_for_events(&cluster, |events| events.len() >= 12);
    assert!(begin.elapsed() > Duration::from_secs(3), "they are told at a pace: {:?}", begin.elapsed());
    assert_eq!(all, ["Warning Node node-1 LeakedAddress"; 12]);

    // The finding is about a pod. Two servers find it, but only one of them sends an event.
    let mut free = pod("default", "web-1", "node-1", "10.0.0.40", 3);
    free["metadata"]["annotations"] = cni_annotations("container", "10.0.0.40");
    free["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    cluster.add_pods(&[free]);
    let another = serve(&cluster, &["--settle", "0", "--events"]);
    let unallocated = "Warning Pod web-1 UnallocatedInUse".to_owned();
    wait_for_events(&cluster, |events| events.contains(&unallocated));
    let told = events(&cluster);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(events(&cluster), told);
    assert_eq!(told.len(), 13, "{told:#?}");

    for server in [server, another] {
        let (status, said) = server.terminate();
        assert_eq!(status, Some(0));
        assert!(!said.contains("not told") && !said.contains(cluster.server.token()), "{said}");
    }
}

/// If the account may not watch, each check reads everything. Another role is needed to send Events.
#[test]
fn watching_and_sending_events_need_permissions() {
    let cluster = cluster(0);
    let mut objects = [documents("namespace.yaml"), documents("rbac.yaml")].concat();
    for rule in objects.iter_mut().filter_map(|object| object["rules"].as_array_mut()).flatten() {
        rule["verbs"].as_array_mut().unwrap().retain(|verb| verb != "watch");
    }
    for object in &mut objects {
        if let Some(rules) = object["rules"].as_array_mut() {
            rules.retain(|rule| rule["verbs"] != json!([]));
        }
        create(&cluster.server, &collection(object), std::slice::from_ref(object)).unwrap();
    }
    let kubeconfig = cluster.server.kubeconfig();
    let datastore = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let account = ["--as", "system:serviceaccount:calipam:calipam"];
    let options = ["--settle", "0", "--interval", "1s", "--events"];
    let mut server = Server::start(&[&options[..], &account, &datastore].concat());
    server.wait_for_line("each check reads everything: changes cannot be watched: ");
    server.wait("/healthz", |answer| answer.status == 200);
    delete_pod(&cluster);
    let leaked = "leaked-address 10.0.0.0".to_owned();
    server.wait("/report.json", |answer| findings(&answer.body) == [leaked.as_str()]);
    assert_eq!(whole_reads(&server), "", "it does not follow");

    let mut binding = objects.iter().find(|object| object["kind"] == "ClusterRoleBinding").unwrap().clone();
    binding["metadata"]["name"] = "calipam-events".into();
    binding["roleRef"]["name"] = "calipam-events".into();
    server.wait_for_line("cannot send findings to the API server: ");
    assert_eq!(events(&cluster), [""; 0]);
    create(&cluster.server, &collection(&binding), &[binding]).unwrap();
    wait_for_events(&cluster, |events| events == ["Warning Node node-1 LeakedAddress"]);
    assert_eq!(server.terminate().0, Some(0));
}

/// KubeVirt is installed while the server follows the cluster. When the first pod of a machine appears, all machines
/// are read.
#[test]
fn a_kind_that_is_installed_later_is_followed_too() {
    let cluster = cluster(0);
    let server = serve(&cluster, &["--settle", "0"]);
    let machines =
        |report: &str| serde_json::from_str::<Value>(report).unwrap()["coverage"]["machines"].clone();
    assert_ne!(machines(&server.get("/report.json").body), "read");

    install_kubevirt(&cluster.server).unwrap();
    let metadata = json!({"name": "vm", "namespace": "default"});
    let machine =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": {}});
    let machines_path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    create(&cluster.server, machines_path, &[machine]).unwrap();
    let mut stopped = Record::new(1, "k8s-pod-network.vmi.default.vm", json!({}));
    stopped.attribute.as_object_mut().unwrap().remove("secondary");
    cluster.add_block("10.0.1.0/26", "node-1", &[stopped]);
    let leaked = vec!["leaked-address 10.0.1.1".to_owned()];
    let mut launcher = pod("default", "virt-launcher-other", "node-1", "192.168.0.9", 7);
    launcher["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "controller": true,
        "kind": "VirtualMachineInstance", "name": "other", "uid": "0b1f7d1c"}]);
    cluster.add_pods(&[launcher]);
    server.wait("/report.json", |answer| machines(&answer.body) == "read");
    assert_eq!(findings(&server.get("/report.json").body), [""; 0]);

    let deleted = cluster.server.request("DELETE", &format!("{machines_path}/vm"), "").unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    server.wait("/report.json", |answer| findings(&answer.body) == leaked);
}
