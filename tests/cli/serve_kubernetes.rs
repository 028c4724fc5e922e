//! `calipam serve` follows a Kubernetes datastore. It finds changes without complete reads, and reports them as Events.

use std::time::{Duration, Instant};

use calipam_testkit::kube::{Flavour, create, install_kubevirt};
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, connection, pod};
use super::program::{self, items};
use super::scheduled::{create_all, documents};
use super::serve::Server;

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(cluster: &KubeCluster, options: &str) -> Server {
    Server::start(&format!("{options} {}", connection(&cluster.server)))
}

/// Starts a server with an interval of one hour, and waits for its first check.
fn serve(cluster: &KubeCluster, options: &str) -> Server {
    let server = start(cluster, &format!("--interval 1h {options}"));
    server.wait("/healthz", |answer| answer.status == 200);
    server
}

/// Creates a record of a pod that does not exist.
fn gone(ordinal: u64) -> Record {
    Record::of_pod(ordinal, "default", &format!("gone-{ordinal}"), "node-1")
}

/// Creates a node with a block that records the running pod `web-0`, and `number` pods that do not exist.
fn cluster(number: u64) -> KubeCluster {
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-1"]);
    let web = Record::of_pod(0, "default", "web-0", "node-1");
    let records: Vec<Record> = [web].into_iter().chain((1..=number).map(gone)).collect();
    cluster.add_block("10.0.0.0/26", "node-1", &records);
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
    cluster
        .server
        .etcd()
        .delete("/registry/pods/default/web-0")
        .unwrap();
}

#[test]
fn a_change_is_found_after_the_settle_time() {
    let cluster = cluster(0);
    let server = serve(&cluster, "--settle 1s");
    assert_eq!(findings(&server.get("/report.json").body), [""; 0]);
    let whole = whole_reads(&server);

    let begin = Instant::now();
    delete_pod(&cluster);
    let leaked = "leaked-address 10.0.0.0".to_owned();
    server.wait("/report.json", |answer| findings(&answer.body).contains(&leaked));
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.0", 2)]);
    server.wait("/report.json", |answer| findings(&answer.body).is_empty());
    assert_eq!(whole_reads(&server), whole, "only what has changed was read");
}

/// Returns true for an Event about a leak or an address that is not recorded. On a busy machine, there can also be
/// events about a block that was written before its affinity and handle.
fn is_about_address(event: &Value) -> bool {
    event["reason"] == "LeakedAddress" || event["reason"] == "UnallocatedInUse"
}

/// Lists the type, the kind and name of the object, and the reason of each counted Event that this program has sent.
fn events(cluster: &KubeCluster, is_counted: fn(&Value) -> bool) -> Vec<String> {
    let answer = cluster
        .server
        .request("GET", "/apis/events.k8s.io/v1/events", "")
        .unwrap();
    let list: Value = serde_json::from_str(&answer.body).unwrap();
    let is_wanted = |event: &&Value| event["reportingController"] == "calipam.io/serve" && is_counted(event);
    let line = |event: &Value| {
        let regarding = &event["regarding"];
        assert!(
            regarding["uid"].is_string() && event["note"].is_string(),
            "{event}"
        );
        let words = [
            &event["type"],
            &regarding["kind"],
            &regarding["name"],
            &event["reason"],
        ];
        words.map(|word| word.as_str().unwrap()).join(" ")
    };
    let mut lines: Vec<String> = items(&list["items"]).iter().filter(is_wanted).map(line).collect();
    lines.sort();
    lines
}

fn wait_for_events(
    cluster: &KubeCluster,
    is_counted: fn(&Value) -> bool,
    wanted: impl Fn(&[String]) -> bool,
) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let events = events(cluster, is_counted);
        if wanted(&events) {
            return events;
        }
        assert!(begin.elapsed() < PATIENCE, "{events:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Each finding has one event, even if several servers find it and one of them is killed.
#[test]
fn new_findings_are_events_that_are_sent_once_at_a_limited_rate() {
    let cluster = cluster(12);
    let server = serve(&cluster, "--settle 0 --events");
    let begin = Instant::now();
    let first = wait_for_events(&cluster, |_| true, |events| !events.is_empty());
    assert!(first.len() <= 10, "{first:#?}");
    let all = wait_for_events(&cluster, |_| true, |events| events.len() >= 12);
    assert!(
        begin.elapsed() > Duration::from_secs(3),
        "they are told at a pace: {:?}",
        begin.elapsed()
    );
    assert_eq!(all, ["Warning Node node-1 LeakedAddress"; 12]);

    // Both servers find the next leak and a pod with a free address at the same time, and either could send the events.
    let another = serve(&cluster, "--settle 0 --events");
    let mut free = pod("default", "web-1", "node-1", "10.0.0.40", 3);
    free["metadata"]["annotations"] = cni_annotations("container", "10.0.0.40");
    free["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    cluster.add_pods(&[free]);
    cluster.add_block("10.0.0.64/26", "node-1", &[gone(13)]);
    wait_for_events(&cluster, is_about_address, |events| events.len() >= 14);
    std::thread::sleep(Duration::from_secs(7));
    let told = events(&cluster, is_about_address);
    assert_eq!(told.len(), 14, "{told:#?}");
    assert!(
        told.contains(&"Warning Pod web-1 UnallocatedInUse".to_owned()),
        "{told:#?}"
    );

    let killed = server.kill();
    cluster.add_block("10.0.0.128/26", "node-1", &[gone(14)]);
    let told = wait_for_events(&cluster, is_about_address, |events| events.len() >= 15);
    assert_eq!(told.len(), 15, "{told:#?}");
    let (status, said) = another.terminate();
    assert_eq!(status, Some(0));

    // Two servers that start together send the event of a new finding once.
    cluster.add_block("10.0.0.192/26", "node-1", &[gone(15)]);
    let replicas = [(); 2].map(|()| start(&cluster, "--interval 1h --settle 0 --events"));
    wait_for_events(&cluster, is_about_address, |events| events.len() >= 16);
    std::thread::sleep(Duration::from_secs(7));
    let told = events(&cluster, is_about_address);
    assert_eq!(told.len(), 16, "{told:#?}");
    for said in [killed, said].into_iter().chain(replicas.map(Server::kill)) {
        assert!(
            !said.contains("not told") && !said.contains(cluster.server.token()),
            "{said}"
        );
    }
}

/// If the account may not watch, each check reads everything. Another role is needed to send Events.
#[test]
fn watching_and_sending_events_need_permissions() {
    let cluster = cluster(0);
    let mut objects = documents("rbac.yaml");
    for rules in objects
        .iter_mut()
        .filter_map(|object| object["rules"].as_array_mut())
    {
        rules.iter_mut().for_each(|rule| {
            rule["verbs"]
                .as_array_mut()
                .unwrap()
                .retain(|verb| verb != "watch")
        });
        rules.retain(|rule| rule["verbs"] != json!([]));
    }
    create_all(&cluster.server, &objects);
    let account = "--as system:serviceaccount:calipam:calipam";
    let mut server = start(&cluster, &format!("--interval 1s --settle 0 --events {account}"));
    server.wait_for_line("each check reads everything: changes cannot be watched: ");
    server.wait("/healthz", |answer| answer.status == 200);
    delete_pod(&cluster);
    let leaked = "leaked-address 10.0.0.0".to_owned();
    server.wait("/report.json", |answer| {
        findings(&answer.body) == [leaked.as_str()]
    });
    assert_eq!(whole_reads(&server), "", "it does not follow");

    let mut binding = objects
        .iter()
        .find(|object| object["kind"] == "ClusterRoleBinding")
        .unwrap()
        .clone();
    binding["metadata"]["name"] = "calipam-events".into();
    binding["roleRef"]["name"] = "calipam-events".into();
    server.wait_for_line("cannot send findings to the API server: ");
    assert_eq!(events(&cluster, |_| true), [""; 0]);
    create_all(&cluster.server, [&binding]);
    wait_for_events(
        &cluster,
        |_| true,
        |events| events == ["Warning Node node-1 LeakedAddress"],
    );
    assert_eq!(server.terminate().0, Some(0));
}

/// KubeVirt is installed while the server follows the cluster. When the first pod of a machine appears, all machines
/// are read.
#[test]
fn a_kind_that_is_installed_later_is_followed_too() {
    let cluster = cluster(0);
    let server = serve(&cluster, "--settle 0");
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

    let deleted = cluster
        .server
        .request("DELETE", &format!("{machines_path}/vm"), "")
        .unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    server.wait("/report.json", |answer| findings(&answer.body) == leaked);
}
