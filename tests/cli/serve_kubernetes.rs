//! `calipam serve` of a Kubernetes datastore that it follows: what has changed is found without reading everything, and told by Events.

use std::time::{Duration, Instant};

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, pod};
use super::serve::Server;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that would look by itself after an hour.
fn serve(cluster: &KubeCluster, options: &[&str]) -> Server {
    let kubeconfig = cluster.server.kubeconfig();
    let datastore = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let server = Server::start(&[&["--interval", "1h"], options, &datastore].concat());
    server.wait("/healthz", |answer| answer.status == 200);
    server
}

/// A node whose block records the pod `web-0`, which is there, and others that are not.
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
    let report: Value = serde_json::from_str(report).unwrap();
    let line =
        |finding: &Value| format!("{} {}", finding["code"], finding["subject"]["name"]).replace('"', "");
    report["findings"].as_array().unwrap().iter().map(line).collect()
}

/// The metric that counts what was read as a whole.
fn whole_reads(server: &Server) -> String {
    let metrics = server.get("/metrics").body;
    let is_wanted = |line: &&str| line.starts_with("calipam_live_checks{scope=\"everything\"}");
    metrics.lines().find(is_wanted).unwrap_or_default().to_owned()
}

#[test]
fn a_change_is_found_once_it_has_stood() {
    let cluster = cluster(0);
    let server = serve(&cluster, &["--settle", "1s"]);
    assert_eq!(findings(&server.get("/report.json").body), [""; 0]);
    let whole = whole_reads(&server);

    let begin = Instant::now();
    let deleted = cluster
        .server
        .etcd()
        .with_client(async |mut client| client.delete("/registry/pods/default/web-0", None).await.map(drop));
    deleted.unwrap();
    let leaked = "leaked-address 10.0.0.0".to_owned();
    server.wait("/report.json", |answer| findings(&answer.body).contains(&leaked));
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    println!("found after {:?}", begin.elapsed());
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.0", 2)]);
    server.wait("/report.json", |answer| findings(&answer.body).is_empty());
    assert_eq!(whole_reads(&server), whole, "only what has changed was checked");
}

/// Events of this program: the kind and name of what each is about, and its reason.
fn events(cluster: &KubeCluster) -> Vec<String> {
    let answer = cluster.server.request("GET", "/apis/events.k8s.io/v1/events", "").unwrap();
    let list: Value = serde_json::from_str(&answer.body).unwrap();
    let ours = list["items"].as_array().unwrap().iter();
    let ours = ours.filter(|event| event["reportingController"] == "calipam.io/serve");
    let line = |event: &Value| {
        let regarding = &event["regarding"];
        assert!(regarding["uid"].is_string() && event["note"].is_string(), "{event}");
        let words = [&event["type"], &regarding["kind"], &regarding["name"], &event["reason"]];
        words.map(|word| word.as_str().unwrap()).join(" ")
    };
    let mut lines: Vec<String> = ours.map(line).collect();
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
fn new_findings_are_events_of_their_node_or_pod_told_once_and_not_all_at_once() {
    let cluster = cluster(12);
    let server = serve(&cluster, &["--settle", "0", "--events"]);
    let begin = Instant::now();
    let first = wait_for_events(&cluster, |events| !events.is_empty());
    assert!(first.len() <= 10, "{first:#?}");
    let all = wait_for_events(&cluster, |events| events.len() >= 12);
    assert!(begin.elapsed() > Duration::from_secs(3), "they are told at a pace: {:?}", begin.elapsed());
    assert_eq!(all, ["Warning Node node-1 LeakedAddress"; 12]);

    // One on a pod. Another process, such as the next one to hold the lease, tells nothing again.
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
