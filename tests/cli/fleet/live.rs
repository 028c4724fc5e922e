//! Fleets of live servers, and ctrl-c.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use calipam_testkit::kube::Flavour;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::states::events;
use super::{at, between, fleet};
use crate::cli::kube_cluster::{KubeCluster, Record, pod};
use crate::cli::program::{calipam, command};

/// Starts a cluster. Its only pod has the second address of a block that is the same in all clusters.
fn cluster(guid: &str, owner: &str) -> KubeCluster {
    let cluster = KubeCluster::start_as(Flavour::Classic, guid);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", json!({}));
    cluster.add_block("10.0.0.0/26", "node-1", &[Record::of_pod(1, "shop", owner, "node-1")]);
    cluster.add_pods(&[pod("shop", owner, "node-1", "10.0.0.1", 1)]);
    cluster
}

/// Writes a kubeconfig with a context for each cluster.
fn kubeconfig(folder: &Path, clusters: [(&str, &KubeCluster); 2]) -> String {
    let mut joined =
        json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
    for (name, cluster) in clusters {
        let text = fs::read_to_string(cluster.server.kubeconfig()).unwrap();
        let one: Value = serde_yaml::from_str(&text).unwrap();
        let mut add = |list: &str, value: Value| joined[list].as_array_mut().unwrap().push(value);
        add("clusters", json!({"name": name, "cluster": one["clusters"][0]["cluster"]}));
        add("users", json!({"name": name, "user": one["users"][0]["user"]}));
        add("contexts", json!({"name": name, "context": {"cluster": name, "user": name}}));
    }
    let path = folder.join("kubeconfig");
    fs::write(&path, joined.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_contexts_of_a_kubeconfig_are_read_side_by_side() {
    let east = cluster("00000000000000000000000000000001", "web-0");
    let west = cluster("00000000000000000000000000000002", "api-0");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path(), [("east", &east), ("west", &west)]);
    let run =
        |arguments: &[&str]| calipam(&[arguments, &["--kubeconfig", &kubeconfig, "--context", "*"]].concat());

    let checked = run(&["check", "--routed", "--settle", "0", "-o", "json"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (1, ""));
    let expected = ["east", "west"].map(|name| {
        [("address-in-several-clusters", "10.0.0.1"), ("overlapping-cluster-pools", "10.0.0.0/16")]
            .map(|(code, subject)| [name, code, subject].map(str::to_owned))
    });
    assert_eq!(between(&checked.json()), expected.into_iter().flatten().collect());

    let known = run(&["history", "--ip", "10.0.0.1", "-o", "json"]);
    assert_eq!((known.code, known.stderr.as_str()), (0, ""));
    let known = known.json();
    let events = events(&known).into_iter().filter(|(_, event)| event["subject"]["kind"] == "address");
    let holders: BTreeSet<[String; 2]> = events
        .map(|(cluster, event)| [cluster, event["after"]["allocatedTo"].as_str().unwrap()].map(str::to_owned))
        .collect();
    let expected = [["east", "shop/web-0"], ["west", "shop/api-0"]].map(|pair| pair.map(str::to_owned));
    assert_eq!(holders, expected.into());
    let wanted = "east/pool/default-ipv4-ippool\nwest/pool/default-ipv4-ippool\n";
    assert_eq!(run(&["show", "-o", "name"]).stdout, wanted);

    // An unreachable cluster is reported, and the other one is read.
    west.server.end();
    let checked = run(&["check", "--routed", "--settle", "0", "-o", "json"]).exits(3);
    let unreadable = [["west", "cluster-unreadable", "west"].map(str::to_owned)];
    assert_eq!(between(&checked.json()), unreadable.into());
}

/// Ctrl-c stops all parallel reads, and the call reports the interruption.
#[test]
fn ctrl_c_ends_all_and_leaves_no_file() {
    let (folder, _) = fleet(&[]);
    // These listeners accept connections but never answer.
    let silent: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let entries = silent.iter().enumerate().map(|(number, silent)| {
        format!("- {{name: silent-{number}, etcdEndpoints: \"http://{}\"}}\n", silent.local_addr().unwrap())
    });
    let text = entries.collect::<String>() + "- {name: a, datastore: data/a.jsonl}\n";
    fs::write(folder.path().join("fleet.yaml"), format!("clusters:\n{text}")).unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/old.json"), "old").unwrap();

    let file = format!("json={}", at(&folder, "out/report.json"));
    let old = format!("json={}", at(&folder, "out/old.json"));
    let mut child = command(crate::cli::PROGRAM)
        .args(["check", "--fleet", &at(&folder, "fleet.yaml"), "--parallel", "2"])
        .args(["--output-file", &file, "--output-file", &old])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _connections: Vec<_> = silent[..2].iter().map(|silent| silent.accept().unwrap()).collect();
    std::thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(said, ["", "error: interrupted\n"]);
    let files = fs::read_dir(folder.path().join("out")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["old.json"]);
    assert_eq!(fs::read_to_string(folder.path().join("out/old.json")).unwrap(), "old");
}
