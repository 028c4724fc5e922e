//! The time since a pod finished. If the pod finished long ago, a single check is enough to release its addresses.

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, pod};
use super::program::{Run, calipam, items, scratch};

const LONG_AGO: &str = "2026-05-01T11:00:00Z";

/// Returns finished pods, each with its name, the status of its containers, and the time at which it ended, if known.
fn finished() -> [(&'static str, Value, Option<String>); 6] {
    let ended = |at: &str| {
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "startedAt": "2026-05-01T10:00:00Z", "finishedAt": at}}})
    };
    let waiting = json!({"name": "d", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "PodInitializing"}}});
    let mut unseen = ended(LONG_AGO);
    unseen["state"] = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null}});
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())
        .unwrap()
        .to_string();
    let long_ago = || Some(LONG_AGO.to_owned());
    [
        (
            "job",
            json!({"containerStatuses": [ended("2026-05-01T10:30:00Z"), ended(LONG_AGO)]}),
            long_ago(),
        ),
        (
            "init",
            json!({"initContainerStatuses": [ended(LONG_AGO)], "containerStatuses": [waiting]}),
            long_ago(),
        ),
        (
            "debugged",
            json!({"containerStatuses": [ended("2026-05-01T10:30:00Z")],
            "ephemeralContainerStatuses": [ended(LONG_AGO)]}),
            long_ago(),
        ),
        (
            "just-now",
            json!({"containerStatuses": [ended(LONG_AGO), ended(&now)]}),
            Some(now),
        ),
        (
            "unseen",
            json!({"containerStatuses": [ended(LONG_AGO), unseen]}),
            None,
        ),
        ("evicted", json!({"reason": "Evicted"}), None),
    ]
}

/// Returns the finished pods that a check reports, with their times.
fn told(check: &Run) -> Vec<(String, Option<String>)> {
    let report = check.json();
    let leaks = items(&report["findings"])
        .iter()
        .filter(|f| f["code"] == "leaked-address");
    let pod = |finding: &Value| {
        let owner = &finding["evidence"]["owners"][0];
        let name = owner["name"]
            .as_str()
            .unwrap()
            .trim_start_matches("default/")
            .to_owned();
        (name, owner["finishedAt"].as_str().map(str::to_owned))
    };
    let mut pods: Vec<_> = leaks.map(pod).collect();
    pods.sort();
    pods
}

#[test]
fn pods_that_finished_long_ago_are_released_after_one_check() {
    let cluster = KubeCluster::with_nodes(Flavour::Native, &["node-1"]);
    let (mut pods, mut records, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (name, containers, since)) in finished().into_iter().enumerate() {
        let address = format!("10.0.0.{number}");
        let mut made = pod("default", name, "node-1", &address, number);
        made["metadata"]["annotations"] = cni_annotations("3f9a", &address);
        made["status"]["phase"] = "Failed".into();
        made["status"]
            .as_object_mut()
            .unwrap()
            .extend(containers.as_object().unwrap().clone());
        pods.push(made);
        records.push(Record::of_pod(number as u64, "default", name, "node-1"));
        expected.push((name.to_owned(), since));
    }
    cluster.add_block("10.0.0.0/26", "node-1", &records);
    cluster.add_pods(&pods);
    expected.sort();
    let check = "check -o json --settle 0";
    assert_eq!(told(&cluster.run(check)), expected);

    // A check of an export reports the same.
    let (_folder, export) = scratch("export.jsonl");
    let export = export.display();
    cluster.run(&format!("export {export}")).succeeded();
    assert_eq!(told(&calipam(&format!("{check} --datastore {export}"))), expected);

    // Three of the six addresses in the plan need no second check. For the other three, the plan assumes that a second
    // check finds the same.
    let dry = cluster
        .run("release --leaked --dry-run -o json --settle 0")
        .says("3 addresses or handles were found unused once; the plan assumes");
    assert_eq!(dry.json()["totals"]["addresses"], 6, "{dry:?}");
}
