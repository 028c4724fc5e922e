//! `calipam diff`: two states of one cluster, from a real etcd and from files.

use std::path::Path;

use calipam_testkit::cluster::wire::Block;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;
use serde_json::Value;

use super::program::{EXAMPLE, GUID, calipam, edited_example, on_example, scratch};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.10.0-26";
const ADDRESS: &str = "10.244.10.6";

/// Lists the changed addresses as `change name`.
pub(super) fn addresses(document: &Value) -> Vec<String> {
    let line = |a: &Value| {
        format!(
            "{} {}",
            a["change"].as_str().unwrap(),
            a["address"].as_str().unwrap()
        )
    };
    document["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(line)
        .collect()
}

#[test]
fn an_export_is_the_same_as_itself() {
    let (_folder, copy) = scratch("copy.jsonl.zst");
    let copy = copy.to_str().unwrap();
    on_example(&["export", copy]).succeeded();
    calipam(&["diff", EXAMPLE, copy])
        .succeeded()
        .prints_last("\nNo difference\n");
    let quiet = calipam(&["diff", "-q", EXAMPLE, copy]);
    assert_eq!(quiet.transcript(), "exit code: 0\n--- stdout\n--- stderr\n");
    let document = calipam(&["diff", EXAMPLE, copy, "-o", "json"]).json();
    assert_eq!(
        (&document["kind"], &document["same"]),
        (&"Difference".into(), &true.into())
    );
}

/// Frees an address of the block. Returns the revision before the write.
fn release(etcd: &Etcd, address: &str) -> i64 {
    let mut block = Block::read(&etcd.entries().unwrap()[BLOCK].0).unwrap();
    block.free(address.parse().unwrap());
    etcd.put(BLOCK, block.value()).unwrap() - 1
}

#[test]
fn changes_of_a_live_etcd() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let (_folder, backup) = scratch("backup.db");
    etcd.save_snapshot(&backup).unwrap();
    let backup = backup.to_str().unwrap();
    let diff = |arguments: &[&str]| {
        let endpoint = etcd.endpoint();
        calipam(
            &[
                &["diff", "--settle", "0"],
                arguments,
                &["--etcd-endpoints", &endpoint],
            ]
            .concat(),
        )
    };
    diff(&[backup, "etcd"]).succeeded();

    let revision = release(&etcd, ADDRESS);
    let past = format!("etcd@{revision}");
    for old in [backup, &past] {
        let document = diff(&[old, "etcd", "-o", "json"]).exits(1).json();
        assert_eq!(addresses(&document), [format!("released {ADDRESS}")]);
        let before = &document["addresses"][0]["before"];
        let expected = (&"default/queue-49".into(), &"node-10".into());
        assert_eq!((&before["allocatedTo"], &before["node"]), expected);
        let gone = document["findings"]["gone"].as_array().unwrap();
        let is_leak = |f: &Value| f["code"] == "leaked-address" && f["subject"]["name"] == ADDRESS;
        assert!(gone.iter().any(is_leak), "{gone:?}");
        assert_eq!(document["sums"]["total"]["released"], 1);
    }
    // The output names a past revision by its number, and a pod with its node.
    let text =
        diff(&[&past, "etcd", "--ip", ADDRESS, "-o", "wide"]).prints(&format!("· revision {revision} ·"));
    let line = format!("address  released    {ADDRESS}");
    let is_released = |l: &str| l.starts_with(&line) && l.contains("pod default/queue-49 on node-10");
    assert!(text.stdout.lines().any(is_released), "{text:?}");
    diff(&[&past, "etcd", "--block", "10.244.1.0/26"]).succeeded();
    // Compares the states in reverse, as before a restore. The address was assigned after the backup.
    diff(&[&past, backup, "--node", "node-10"])
        .succeeded()
        .prints("No difference");
    diff(&[&past, "etcd", "--node", "node-99"]).failed(1, "node \"node-99\" not found");

    diff(&["etcd", "etcd@999999999"]).failed(3, "has not reached revision 999999999\nhint: ");
    etcd.compact(revision + 1).unwrap();
    let compacted = diff(&[&past, "etcd"]).refused(3, &format!("revision {revision} has been compacted"));
    compacted.says(&format!("hint: `etcd@{}` can be read", revision + 1));
}

#[test]
fn two_clusters_are_compared_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let other = edited_example(folder.path(), "other.jsonl", &[(GUID, &"f".repeat(32))]);
    calipam(&["diff", EXAMPLE, &other])
        .refused(2, "from different clusters: 0f0e1d2c")
        .says("--force");
    calipam(&["diff", EXAMPLE, &other, "--force"])
        .exits(1)
        .prints("clusterGUID");
    let unknown = edited_example(folder.path(), "unknown.jsonl", &[(GUID, "")]);
    calipam(&["diff", EXAMPLE, &unknown]).failed(1, "does not name its cluster");
}

#[test]
fn calls_that_cannot_be_meant() {
    for (arguments, said) in [
        (&["diff", EXAMPLE][..], "<NEW>"),
        (&["diff", EXAMPLE, "etcd@soon"], "expected a revision"),
        (&["diff", "-", "-"], "stdin cannot be both"),
        (&["diff", EXAMPLE, EXAMPLE, "--datastore", "etcd"], "OLD and NEW"),
        (
            &["diff", EXAMPLE, EXAMPLE, "-o", "prometheus"],
            "`diff` has no format `prometheus`",
        ),
    ] {
        calipam(arguments).failed(2, said);
    }
    // Several names of one kind widen the comparison, and each further kind narrows it.
    let differ = |more: &[&str]| calipam(&[&["diff", EXAMPLE, EXAMPLE], more].concat());
    differ(&["--block", "10.244.1.0/26", "--pool", "172.16.5.0/28"])
        .refused(1, "10.244.1.0/26 and 172.16.5.0/28 have nothing in common");
    differ(&[
        "--block",
        "10.244.1.0/26",
        "--pool",
        "10.244.0.0/16",
        "--ip",
        "10.244.1.7",
    ])
    .succeeded();
    calipam(&["diff", EXAMPLE, "/no/such/file.db"]).exits(3);
    calipam(&[
        "diff",
        "etcd@5",
        EXAMPLE,
        "--etcd-endpoints",
        "http://127.0.0.1:1",
    ])
    .exits(3);
}

/// Compares a healthy cluster with one that has every fault. The faults are new findings in the difference.
#[test]
fn a_fault_is_a_new_finding() {
    let folder = tempfile::tempdir().unwrap();
    let spec = || ClusterSpec::new(11).at(Timestamp::now());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    Cluster::small(spec())
        .write_export(Path::new(&at("healthy.jsonl")))
        .unwrap();
    Cluster::all_faults(spec(), 1)
        .write_export(Path::new(&at("faulty.jsonl")))
        .unwrap();
    let run = calipam(&[
        "diff",
        &at("healthy.jsonl"),
        &at("faulty.jsonl"),
        "-o",
        "json",
        "--force",
    ])
    .exits(1);
    let new = run.json()["findings"]["new"].as_array().unwrap().clone();
    for code in ["duplicate-address", "leaked-address", "orphan-handle"] {
        assert!(
            new.iter().any(|finding| finding["code"] == code),
            "{code} is not among {new:?}"
        );
    }
}
