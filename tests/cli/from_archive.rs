//! An archive of exports as a source for `history`, `diff` and `show`, for rates, and for the last use of leaked
//! addresses.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use calipam_testkit::kube::Flavour;
use serde_json::Value;

use super::history::{events, is_told};
use super::kube_cluster::{KubeCluster, Record, pod};
use super::program::{EXAMPLE, Run, calipam, edited_example, items, prepare, root, scratch};

/// Starts a cluster with a pod, whose address is recorded.
fn with_pod() -> KubeCluster {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", serde_json::json!({}));
    cluster.add_block(
        "10.0.0.0/26",
        "node-1",
        &[Record::of_pod(3, "shop", "web-0", "node-1")],
    );
    cluster.add_pods(&[pod("shop", "web-0", "node-1", "10.0.0.3", 1)]);
    cluster
}

/// Deletes the pod, so that its address leaks.
fn delete_pod(cluster: &KubeCluster) {
    let path = "/api/v1/namespaces/shop/pods/web-0?gracePeriodSeconds=0";
    assert_eq!(cluster.server.request("DELETE", path, "").unwrap().status, 200);
}

/// Simulates a minute with rates from an archive or etcd.
pub(super) fn simulate(rates_from: &str, more: &[&str]) -> Run {
    let simulate = [
        "simulate",
        "--rates-from",
        rates_from,
        "--duration",
        "1m",
        "-o",
        "json",
    ];
    calipam(&[&simulate, more].concat())
}

/// Adds an export to an archive, and waits until the API server's time has changed. Its resolution is one second.
fn export(cluster: &KubeCluster, archive: &str, more: &[&str]) -> Run {
    let run = cluster
        .run(&[&["export", "--archive", archive], more].concat())
        .succeeded();
    thread::sleep(Duration::from_millis(1100));
    run
}

#[test]
fn kubernetes_has_an_archive() {
    is_told("calipam export --archive /var/lib/calipam/archive --keep 24h:all,30d:daily,1y:monthly");
    is_told("calipam history --archive /var/lib/calipam/archive --ip 10.0.0.3");
    let cluster = with_pod();
    let (folder, archive) = scratch("archive");
    let archive = archive.to_str().unwrap();
    // The home folder contains the journals.
    let in_home = |arguments: &[&str]| {
        Run::of(
            cluster
                .command(arguments)
                .env("HOME", folder.path())
                .stdin(Stdio::null()),
        )
    };
    let export = || export(&cluster, archive, &["--keep", "24h:all,30d:daily,1y:monthly"]);
    export().says("the archive holds 1 export\n");
    delete_pod(&cluster);
    export();
    in_home(&[
        "release", "--ip", "10.0.0.3", "--yes", "--grace", "0", "--settle", "0",
    ])
    .succeeded();
    export();

    let run = in_home(&["history", "--archive", archive, "--ip", "10.0.0.3", "-o", "json"]).succeeded();
    let told = run.json();
    assert_eq!(
        events(&told),
        ["known", "known", "known", "pod-gone", "released"],
        "{told}"
    );
    for (place, field, subject, detail) in [
        (1, "kind", "affinity", "confirmed"),
        (2, "name", "shop/web-0", "10.0.0.3 on node-1"),
    ] {
        let event = &told["events"][place];
        assert_eq!(
            (&event["subject"][field], &event["detail"]),
            (&subject.into(), &detail.into())
        );
    }
    assert_eq!(told["events"][4]["by"]["command"], "release --ip", "{told}");
    let without = calipam(&["history", "--archive", archive, "--ip", "10.0.0.3", "-o", "json"]);
    assert!(
        without.json()["events"][4]["by"].is_null(),
        "the journals are those of this user: {without:?}"
    );
    let times: Vec<&str> = items(&told["exports"])
        .iter()
        .map(|time| time.as_str().unwrap())
        .collect();
    assert_eq!(times.len(), 3);
    let gone = &told["events"][3]["time"];
    assert_eq!(
        (&gone["after"], &gone["before"]),
        (&times[0].into(), &times[1].into())
    );
    let released = &told["events"][4];
    // The release is after the start of its run, which is later than the export before it. The API server's times have
    // no fractions of seconds, so the export after it may seem to be earlier than the start.
    let (began, after) = (&released["by"]["startedAt"], &released["time"]["after"]);
    assert!(after == began || *after == times[2], "{released}");
    assert_eq!(released["time"]["before"], times[2]);
    assert_eq!(
        (&released["origin"], released.get("revision")),
        (&"archive".into(), None)
    );
    let text = cluster
        .run(&["history", "--archive", archive, "--ip", "10.0.0.3"])
        .stdout;
    assert!(
        text.contains("3 exports from ") && text.contains("the longest gap is "),
        "{text}"
    );

    // Compares the two exports before and after a time. An export is not compared with the live state.
    let diff = calipam(&["diff", "--archive", archive, "--at", times[1], "-o", "json"]).exits(1);
    assert_eq!(diff.json()["addresses"][0]["change"], "released");
    // --datastore means nothing here.
    cluster
        .run(&["diff", "--archive", archive, "--at", times[1]])
        .exits(2);
    // For a time between two exports, the message names the time of the state, and the time until which nothing else is
    // known.
    let known = |at: &str| calipam(&["show", "--archive", archive, "--at", at, "--ip", "10.0.0.3"]).stderr;
    let between = format!(
        "this is the state of {}: nothing is known after it until {}\n",
        times[0], times[1]
    );
    assert!(known(&times[0].replace('Z', ".5Z")).contains(&between));
    let last = format!("this is the state of {}: nothing is known after it\n", times[2]);
    assert!(known("2999-01-01T00:00Z").contains(&last));
    assert!(!known(times[1]).contains("nothing is known"));
    assert!(
        text.contains("changes between two exports, and after the last one, are not known"),
        "{text}"
    );
    // Headings name the archive and the time in the user's zone, whatever file holds the state.
    let local = |words: &[&str]| Run::of(prepare(words).env("TZ", "UTC-3"));
    let shown = local(&["show", "--archive", archive, "--at", "1s ago"]).succeeded();
    let heading = shown.stdout.lines().next().unwrap();
    assert!(
        heading.contains(&format!("kubernetes {archive} at 20")),
        "{heading}"
    );
    assert!(heading.contains(" +03:00 (exported from "), "{heading}");
    let compared = local(&["diff", "--archive", archive, "--at", times[0]]).exits(1);
    assert!(compared.stdout.starts_with("OLD  Cluster "), "{compared:?}");
    assert_eq!(
        compared.stdout.matches(&format!("{archive} at 20")).count(),
        2,
        "{compared:?}"
    );
    calipam(&["diff", "--archive", archive, "--at", "2020-01-01T00:00Z"])
        .failed(2, "has no export from 2020-01-01T00:00:00Z or before");
    calipam(&["diff", "--archive", archive, "--at", "2999-01-01T00:00Z"]).failed(2, "no export after");
    calipam(&["diff", "--archive", archive, "--at", "tomorrow"]).failed(2, "yesterday 14:00");
}

#[test]
fn a_leak_says_when_it_was_last_in_use() {
    is_told("calipam check --archive /var/lib/calipam/archive");
    let cluster = with_pod();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    export(&cluster, archive, &[]);
    delete_pod(&cluster);
    let check = |more: &[&str]| {
        let arguments = [
            "check",
            "--grace",
            "0",
            "--settle",
            "0",
            "--rule",
            "leaked-address",
            "-o",
            "json",
        ];
        cluster.run(&[&arguments, more].concat()).json()
    };
    let evidence = |report: &Value| report["findings"][0]["evidence"]["lastInUse"].clone();
    assert!(evidence(&check(&[])).is_null());
    let found = check(&["--archive", archive]);
    let last = evidence(&found);
    assert!(last.is_object(), "{found}");
    assert!(last["by"].as_str().unwrap().contains("shop/web-0"), "{found}");
    assert!(
        last["at"].as_str().unwrap() < last["notAt"].as_str().unwrap(),
        "{last}"
    );
    assert!(
        found["findings"][0]["message"]
            .as_str()
            .unwrap()
            .contains("; last seen in use at "),
        "{found}"
    );

    let load = || simulate(archive, &["--pool", "10.0.0.0/16", "--lifetime", "2h"]);
    load().failed(2, " gives no rates: it has one state");
    cluster.run(&["export", "--archive", archive]).succeeded();
    let two = load();
    let least = " 0 pods started and 0 pods ended; the average number of pods was 1; pods that started and ended \
                 between two exports are not counted\n";
    assert_eq!(two.succeeded().says(least).json()["scenario"]["lifetime"], "2h");
}

/// An undecodable endpoint in an export may use the address, so the end of its use is unknown.
#[test]
fn an_undecodable_endpoint_hides_the_end_of_use() {
    const ENDPOINT: &str = "workloadendpoints/batch/node--1-k8s-report--6799fc88d8--fjfvs-eth0";
    let (folder, archive) = scratch("archive");
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let line = example.lines().find(|line| line.contains(ENDPOINT)).unwrap();
    let entry: Value = serde_json::from_str(line).unwrap();
    let address = entry["value"]["spec"]["ipNetworks"][0]
        .as_str()
        .unwrap()
        .trim_end_matches("/32")
        .to_owned();
    let at = |day: u32, line_then: &str| {
        let taken = format!("2026-06-0{day}T08:00:00Z");
        let edits = [("2026-06-01T08:00:00Z", taken.as_str()), (line, line_then)];
        edited_example(folder.path(), &format!("{day}.jsonl"), &edits)
    };
    let broken = format!(
        r#"{{"key":{},"revision":"40200","value":{{"spec":5}}}}"#,
        entry["key"]
    );
    let gone = line.replace("workloadendpoints/batch", "others/batch");
    for export in [at(1, line), at(2, &broken)] {
        calipam(&[
            "export",
            "--archive",
            archive.to_str().unwrap(),
            "--datastore",
            &export,
        ])
        .succeeded();
    }
    let checked = [
        "check",
        "--rule",
        "leaked-address",
        "-o",
        "json",
        "--datastore",
        &at(3, &gone),
    ];
    let found = calipam(&[&checked[..], &["--archive", archive.to_str().unwrap()]].concat()).json();
    let findings = found["findings"].as_array().unwrap();
    let leak = findings
        .iter()
        .find(|finding| finding["subject"]["name"] == address.as_str())
        .unwrap();
    let last = &leak["evidence"]["lastInUse"];
    let expected = (&"2026-06-01T08:00:00Z".into(), &"2026-06-03T08:00:00Z".into());
    assert_eq!((&last["at"], &last["notAt"]), expected);
}
