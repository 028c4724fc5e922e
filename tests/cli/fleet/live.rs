//! Fleets of live servers, and ctrl-c.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::states::events;
use super::{between, fleet, unreadable};
use crate::cli::kube_cluster::{KubeCluster, Record, pod};
use crate::cli::program::{Run, calipam, prepare, started};
use crate::cli::pty::interrupt;

/// Starts a cluster. Its only pod has the second address of a block that is the same in all clusters.
fn cluster(guid: &str, owner: &str) -> KubeCluster {
    let cluster = KubeCluster::start_as(Flavour::Classic, guid);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", json!({}));
    cluster.add_block(
        "10.0.0.0/26",
        "node-1",
        &[Record::of_pod(1, "shop", owner, "node-1")],
    );
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
        add(
            "clusters",
            json!({"name": name, "cluster": one["clusters"][0]["cluster"]}),
        );
        add("users", json!({"name": name, "user": one["users"][0]["user"]}));
        add(
            "contexts",
            json!({"name": name, "context": {"cluster": name, "user": name}}),
        );
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
    let run = |line: &str| calipam(&format!("{line} --kubeconfig {kubeconfig} --context *"));

    let check = "check --routed --settle 0 -o json";
    let checked = run(check).exits(1).says_nothing();
    let expected = [
        ["east", "address-in-several-clusters", "10.0.0.1"],
        ["east", "overlapping-cluster-pools", "10.0.0.0/16"],
    ];
    assert_eq!(
        between(&checked.json()),
        expected.map(|finding| finding.map(str::to_owned)).into()
    );

    let known = run("history --ip 10.0.0.1 -o json")
        .succeeded()
        .says_nothing()
        .json();
    let events = events(&known)
        .into_iter()
        .filter(|(_, event)| event["subject"]["kind"] == "address");
    let holders: BTreeSet<_> = events
        .map(|(cluster, event)| (cluster, event["after"]["allocatedTo"].as_str().unwrap()))
        .collect();
    assert_eq!(holders, [("east", "shop/web-0"), ("west", "shop/api-0")].into());
    let wanted = "east/pool/default-ipv4-ippool\nwest/pool/default-ipv4-ippool\n";
    assert_eq!(run("show -o name").stdout, wanted);

    // A command is for the context of its cluster, not for the current one.
    west.add_block("10.0.0.64/26", "gone", &[]);
    let of_west = format!("--node gone --datastore kubernetes --kubeconfig {kubeconfig} --context west");
    for format in ["table", "wide", "json", "html"] {
        run(&format!("check --settle 0 -o {format}"))
            .exits(1)
            .prints(&format!("calipam release {of_west}"));
    }

    // An unreachable cluster is reported, and the other one is read.
    west.server.end();
    assert_eq!(between(&run(check).exits(3).json()), [unreadable("west")].into());
}

/// Ctrl-c stops all parallel reads, and the call reports the interruption.
#[test]
fn ctrl_c_ends_all_and_leaves_no_file() {
    let (folder, _) = fleet(&[]);
    // These listeners accept connections but never answer.
    let silent: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let entries = silent.iter().enumerate().map(|(number, silent)| {
        format!(
            "- {{name: silent-{number}, etcdEndpoints: \"http://{}\"}}\n",
            silent.local_addr().unwrap()
        )
    });
    let text = entries.collect::<String>() + "- {name: a, datastore: data/a.jsonl}\n";
    folder.write("fleet.yaml", format!("clusters:\n{text}"));
    fs::create_dir(folder.at("out")).unwrap();
    folder.write("out/old.json", "old");

    let files = ["report", "old"]
        .map(|name| format!("--output-file json={}", folder.at(&format!("out/{name}.json"))));
    let check = format!(
        "check --fleet {} --parallel 2 {}",
        folder.at("fleet.yaml"),
        files.join(" ")
    );
    let child = started(&mut prepare(&check));
    let _connections: Vec<_> = silent[..2]
        .iter()
        .map(|silent| silent.accept().unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    interrupt(&child);
    let run = Run::ended(child.wait_with_output().unwrap())
        .exits(130)
        .prints_nothing();
    assert_eq!(run.stderr, "error: interrupted\n");
    let left = fs::read_dir(folder.at("out"))
        .unwrap()
        .map(|file| file.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["old.json"]);
    assert_eq!(folder.read("out/old.json"), "old");
}
