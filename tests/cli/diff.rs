//! `calipam diff`: two states of one cluster, from a real etcd and from files.

use std::fs;
use std::path::Path;

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;
use serde_json::Value;

use super::program::{EXAMPLE, calipam, on_example, root, scratch};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.10.0-26";
const ADDRESS: &str = "10.244.10.6";

/// Lists the changed addresses as `change name`.
fn addresses(document: &Value) -> Vec<String> {
    let line = |a: &Value| format!("{} {}", a["change"].as_str().unwrap(), a["address"].as_str().unwrap());
    document["addresses"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn an_export_is_the_same_as_itself() {
    let (_folder, copy) = scratch("copy.jsonl.zst");
    let copy = copy.to_str().unwrap();
    assert_eq!(on_example(&["export", copy]).code, 0);
    let run = calipam(&["diff", EXAMPLE, copy]).succeeded();
    assert!(run.stdout.ends_with("\nNo difference\n"), "{run:?}");
    let quiet = calipam(&["diff", "-q", EXAMPLE, copy]);
    assert_eq!((quiet.code, quiet.transcript().as_str()), (0, "exit code: 0\n--- stdout\n--- stderr\n"));
    let document = calipam(&["diff", EXAMPLE, copy, "-o", "json"]).json();
    assert_eq!((&document["kind"], &document["same"]), (&"Difference".into(), &true.into()));
}

/// Frees an ordinal in the block. Returns the revision before the write.
fn release(etcd: &Etcd, ordinal: usize) -> i64 {
    etcd.with_client(async |mut client| {
        let found = client.get(BLOCK, None).await?;
        let revision = found.header().unwrap().revision();
        let mut block: Value = serde_json::from_slice(found.kvs()[0].value()).unwrap();
        let index = block["allocations"][ordinal].as_u64().unwrap();
        block["allocations"][ordinal] = Value::Null;
        block["unallocated"].as_array_mut().unwrap().push(ordinal.into());
        block["attributes"].as_array_mut().unwrap().remove(index as usize);
        for entry in block["allocations"].as_array_mut().unwrap() {
            if let Some(other) = entry.as_u64().filter(|other| *other > index) {
                *entry = (other - 1).into();
            }
        }
        client.put(BLOCK, block.to_string(), None).await?;
        Ok(revision)
    })
    .unwrap()
}

#[test]
fn changes_of_a_live_etcd() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let (_folder, backup) = scratch("backup.db");
    etcd.save_snapshot(&backup).unwrap();
    let backup = backup.to_str().unwrap();
    let diff = |arguments: &[&str]| {
        let endpoint = etcd.endpoint();
        calipam(&[&["diff", "--settle", "0"], arguments, &["--etcd-endpoints", &endpoint]].concat())
    };
    diff(&[backup, "etcd"]).succeeded();

    let revision = release(&etcd, 6);
    let past = format!("etcd@{revision}");
    for old in [backup, &past] {
        let run = diff(&[old, "etcd", "-o", "json"]).exits(1);
        let document = run.json();
        assert_eq!(addresses(&document), [format!("released {ADDRESS}")]);
        let before = &document["addresses"][0]["before"];
        let expected = (&"default/queue-49".into(), &"node-10".into());
        assert_eq!((&before["allocatedTo"], &before["node"]), expected);
        let gone = document["findings"]["gone"].as_array().unwrap();
        assert!(
            gone.iter().any(|f| f["code"] == "leaked-address" && f["subject"]["name"] == ADDRESS),
            "{gone:?}"
        );
        assert_eq!(document["sums"]["total"]["released"], 1);
    }
    // The output names a past revision by its number, and a pod with its node.
    let text = diff(&[&past, "etcd", "--ip", ADDRESS, "-o", "wide"]);
    assert!(text.stdout.contains(&format!("· revision {revision} ·")), "{text:?}");
    let line = format!("address  released    {ADDRESS}");
    assert!(
        text.stdout.lines().any(|l| l.starts_with(&line) && l.contains("pod default/queue-49 on node-10"))
    );
    diff(&[&past, "etcd", "--block", "10.244.1.0/26"]).succeeded();
    // Compares the states in reverse, as before a restore. The address was assigned after the backup.
    diff(&[&past, backup, "--node", "node-10"]).succeeded().prints("No difference");
    diff(&[&past, "etcd", "--node", "node-99"]).failed(1, "node \"node-99\" not found");

    diff(&["etcd", "etcd@999999999"]).failed(3, "has not reached revision 999999999\nhint: ");
    etcd.compact(revision + 1).unwrap();
    let compacted = diff(&[&past, "etcd"]).refused(3, &format!("revision {revision} has been compacted"));
    let hint = format!("hint: `etcd@{}` can be read", revision + 1);
    assert!(compacted.stderr.contains(&hint), "{compacted:?}");
}

/// Writes a copy of the example in which `from` is replaced by `to`, and returns its path.
fn edited(folder: &Path, name: &str, from: &str, to: &str) -> String {
    let text = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    assert!(text.contains(from), "{from}");
    let path = folder.join(name);
    fs::write(&path, text.replace(from, to)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn two_clusters_are_compared_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let other = edited(
        folder.path(),
        "other.jsonl",
        "0f0e1d2c3b4a59687786951423324150",
        "ffffffffffffffffffffffffffffffff",
    );
    calipam(&["diff", EXAMPLE, &other]).refused(2, "from different clusters: 0f0e1d2c").says("--force");
    calipam(&["diff", EXAMPLE, &other, "--force"]).exits(1).prints("clusterGUID");
    let unknown = edited(folder.path(), "unknown.jsonl", "0f0e1d2c3b4a59687786951423324150", "");
    calipam(&["diff", EXAMPLE, &unknown]).failed(1, "does not name its cluster");
}

#[test]
fn calls_that_cannot_be_meant() {
    for (arguments, said) in [
        (&["diff", EXAMPLE][..], "<NEW>"),
        (&["diff", EXAMPLE, "etcd@soon"], "expected a revision"),
        (&["diff", "-", "-"], "stdin cannot be both"),
        (&["diff", EXAMPLE, EXAMPLE, "--datastore", "etcd"], "OLD and NEW"),
        (&["diff", EXAMPLE, EXAMPLE, "-o", "prometheus"], "`diff` has no format `prometheus`"),
    ] {
        calipam(arguments).failed(2, said);
    }
    calipam(&["diff", EXAMPLE, "/no/such/file.db"]).exits(3);
    calipam(&["diff", "etcd@5", EXAMPLE, "--etcd-endpoints", "http://127.0.0.1:1"]).exits(3);
}

/// Compares a healthy cluster with one that has every fault. The faults are new findings in the difference.
#[test]
fn a_fault_is_a_new_finding() {
    let folder = tempfile::tempdir().unwrap();
    let spec = || ClusterSpec::new(11).at(Timestamp::now());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    Cluster::small(spec()).write_export(Path::new(&at("healthy.jsonl"))).unwrap();
    Cluster::all_faults(spec(), 1).write_export(Path::new(&at("faulty.jsonl"))).unwrap();
    let run = calipam(&["diff", &at("healthy.jsonl"), &at("faulty.jsonl"), "-o", "json", "--force"]).exits(1);
    let document = run.json();
    let new: Vec<&str> =
        document["findings"]["new"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    for code in ["duplicate-address", "leaked-address", "orphan-handle"] {
        assert!(new.contains(&code), "{code} is not among {new:?}");
    }
}

/// Several names of one kind widen the comparison, and each further kind narrows it.
#[test]
fn each_kind_of_name_narrows_the_comparison() {
    let differ = |more: &[&str]| calipam(&[&["diff", EXAMPLE, EXAMPLE], more].concat());
    differ(&["--block", "10.244.1.0/26", "--pool", "172.16.5.0/28"])
        .refused(1, "10.244.1.0/26 and 172.16.5.0/28 have nothing in common");
    differ(&["--block", "10.244.1.0/26", "--pool", "10.244.0.0/16", "--ip", "10.244.1.7"]).succeeded();
}
