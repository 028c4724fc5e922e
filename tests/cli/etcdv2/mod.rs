//! Clusters of Calico 2.x, whose data is in the v2 tree of a real etcd 3.4.

mod killed;
mod skipped;
mod with_kubernetes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use calipam_testkit::calico2::{Calico2, block_key, endpoint_key, handle_key};
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdTls, EtcdVersion, Tool, left_out};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::program::{Run, Runs, calipam, command_in};

/// The blocks of the two hosts.
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 0);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 168, 2, 0);

struct Site {
    calico: Calico2,
    home: TempDir,
}

impl Site {
    /// Starts an etcd 3.4. Returns `None` if that version is not available, so that the test is skipped.
    fn start() -> Option<Self> {
        if left_out(&[Tool::OldEtcd]) {
            return None;
        }
        Some(Self {
            calico: Calico2::start().unwrap(),
            home: tempfile::tempdir().unwrap(),
        })
    }

    fn rebuild(&self, more: &[&str]) -> Run {
        self.run_at_once(&["rebuild", "--endpoints-only"], more)
    }

    #[track_caller]
    fn is_healthy(&self) {
        assert_eq!(self.findings(&[]), BTreeSet::new());
    }

    /// Asserts that a check has these findings, among others. Each is a code with a subject.
    #[track_caller]
    fn finds(&self, expected: &[&str]) {
        let found = self.findings(&[]);
        let is_missing = |wanted: &&&str| !found.iter().any(|line| line.ends_with(&format!(" {wanted}")));
        assert_eq!(expected.iter().find(is_missing), None, "{found:?}");
    }

    /// Returns the values below the key of IPAM. They are decoded, because the order of their fields may change.
    fn dump(&self) -> BTreeMap<String, Value> {
        let client = self.calico.client;
        let keys = client.keys("/calico/ipam/v2").unwrap().into_iter();
        keys.map(|key| (key.clone(), client.json(&key).unwrap()))
            .collect()
    }

    /// Undoes the newest run, and asserts that the values are those of `before`.
    #[track_caller]
    fn undo_to(&self, before: &BTreeMap<String, Value>) {
        let journal = self.journals().pop().expect("a journal");
        let undone = self.undo(journal.to_str().unwrap());
        assert_eq!(&self.dump(), before, "{undone:?}");
    }
}

impl Runs for Site {
    fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(self.home.path(), arguments);
        command
            .env("DATASTORE_TYPE", "etcdv2")
            .env("ETCD_ENDPOINTS", self.calico.etcd.endpoint());
        command
    }
}

#[test]
fn a_cluster_is_shown_checked_and_exported_and_two_pods_on_one_address_are_reported() {
    let Some(site) = Site::start() else { return };
    site.is_healthy();
    site.run(&["show", "--blocks", "-o", "json"])
        .succeeded()
        .prints("192.168.1.0/26");
    site.run(&["show", "--ip", "192.168.1.1"])
        .succeeded()
        .prints("a-1");

    let export = site.home.path().join("export.jsonl");
    site.run(&["export", export.to_str().unwrap()]).succeeded();
    let of_file = calipam(&["check", "--datastore", export.to_str().unwrap(), "-o", "json"]);
    let document = of_file.prints("Calico 2.x has none").json();
    assert_eq!(document["findings"], json!([]));
    assert_eq!(document["cluster"]["datastore"], "etcdv2", "{document}");

    // Two pods have one address. A host has a tunnel address in the other host's block, and that block has no owner.
    let client = site.calico.client;
    client
        .set_endpoint("node-2", "default.twin", &["192.168.1.1"])
        .unwrap();
    site.finds(&["duplicate-address 192.168.1.1"]);
    client
        .set("/calico/v1/host/node-1/config/IpInIpTunnelAddr", "192.168.2.9")
        .unwrap();
    let mut block = client.json(&block_key(SECOND)).unwrap();
    block.as_object_mut().unwrap().remove("affinity");
    client.set(&block_key(SECOND), &block.to_string()).unwrap();
    let before = site.dump();
    let skipped = site.rebuild(&["-o", "json"]).json()["skipped"].to_string();
    assert!(skipped.contains("duplicate-owners"), "{skipped}");
    assert_eq!(site.dump(), before, "nothing is written without --apply");
}

#[test]
fn the_faults_of_the_documents_are_found_repaired_and_brought_back() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    // A pod of a StatefulSet has moved, and its address on the first host is still recorded.
    let earlier = client.start_pod("node-1", "default.web-0").unwrap();
    client.delete(&endpoint_key("node-1", "default.web-0")).unwrap();
    let later = client.start_pod("node-2", "default.web-0").unwrap();
    // An orphan handle, and an address without a pod.
    client
        .set(&handle_key("default.gone"), r#"{"block":{"192.168.1.0/26":1}}"#)
        .unwrap();
    let leaked = client.assign("node-1", "kube-system.lost-1").unwrap();
    // A pod whose address is not recorded, one with an address of the other host's block, and one with an IPv6 address
    // in a missing block.
    client
        .set_endpoint("node-1", "default.unknown", &["192.168.1.40"])
        .unwrap();
    client
        .set_endpoint("node-1", "default.borrower", &["192.168.2.41"])
        .unwrap();
    client
        .set(
            "/calico/v1/ipam/v6/pool/fd00::-64",
            r#"{"cidr":"fd00::/64","ipam":true}"#,
        )
        .unwrap();
    client
        .set_endpoint("node-1", "default.six", &["fd00::5"])
        .unwrap();

    site.finds(&[
        "shared-legacy-handle default.web-0",
        "orphan-handle default.gone",
        &format!("leaked-address {earlier}"),
        &format!("leaked-address {leaked}"),
        "unallocated-in-use 192.168.1.40",
        "unallocated-in-use 192.168.2.41",
    ]);
    let before = site.dump();
    let unlocked = client.get("/calico/v1/Ready").unwrap().unwrap().1;

    site.release(&["--leaked", "--lock"]).succeeded();
    let (ready, written) = client.get("/calico/v1/Ready").unwrap().unwrap();
    assert!(
        ready == "true" && written > unlocked,
        "it was locked, and is not any more"
    );
    let first = client.json(&block_key(FIRST)).unwrap();
    for freed in [earlier, leaked] {
        let ordinal = (u32::from(freed) - u32::from(FIRST)) as usize;
        assert!(first["allocations"][ordinal].is_null(), "{first}");
    }
    for field in ["sequenceNumber", "sequenceNumberForAllocation", "deleted"] {
        assert!(first.get(field).is_none(), "Calico 2.x knows no {field}: {first}");
    }
    let handle = client.json(&handle_key("default.web-0")).unwrap();
    assert_eq!(
        handle,
        json!({"block": {"192.168.2.0/26": 1}}),
        "the handle of {later}"
    );
    assert!(client.get(&handle_key("kube-system.lost-1")).unwrap().is_none());

    site.undo_to(&before);
    site.release(&["--leaked"]).succeeded();
    let between = site.dump();

    let output = site.home.path().join("output");
    site.rebuild(&["--apply", "--yes", "--output-dir", output.to_str().unwrap()])
        .succeeded();
    site.is_healthy();
    let first = client.json(&block_key(FIRST)).unwrap();
    let index = first["allocations"][40].as_u64().unwrap() as usize;
    assert_eq!(
        first["attributes"][index],
        json!({"handle_id": "default.unknown", "secondary": null})
    );
    let borrower = client.json(&handle_key("default.borrower")).unwrap();
    assert_eq!(borrower, json!({"block": {"192.168.2.0/26": 1}}));
    let created = client
        .json("/calico/ipam/v2/assignment/ipv6/block/fd00::-122")
        .unwrap();
    assert_eq!(
        (&created["affinity"], &created["strictAffinity"]),
        (&json!("host:node-1"), &json!(false))
    );
    assert_eq!(
        client
            .json("/calico/ipam/v2/host/node-1/ipv6/block/fd00::-122")
            .unwrap(),
        json!({})
    );
    // Like the rebuild scripts of Calico 2.0, a rebuild writes one file per host with the host's blocks.
    let text = std::fs::read_to_string(output.join("node-1.json")).unwrap();
    let mut written = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(written.any(|block| block == first), "{text}");
    // Both states of the block, before and after, have the fields that Calico 2.x stores.
    let file = std::fs::read_to_string(output.join("192-168-1-0-26.json")).unwrap();
    assert!(
        !file.contains("sequenceNumber") && !file.contains("\"deleted\""),
        "{file}"
    );

    site.undo_to(&between);
}

#[test]
fn a_rebuild_beside_a_busy_allocator_loses_nothing() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    for number in 40..60 {
        let address = format!("192.168.1.{number}");
        client
            .set_endpoint("node-1", &format!("default.unrecorded-{number}"), &[&address])
            .unwrap();
    }
    // A host starts a few pods per second. On a slow machine, it starts fewer, since otherwise every rebuild would come
    // too late.
    let begun = Instant::now();
    assert_eq!(site.rebuild(&[]).code, 0);
    let pause = begun.elapsed().max(Duration::from_millis(100));
    let (ended, pods) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut started = Vec::new();
            for number in 0.. {
                let workload = format!("default.busy-{number}");
                client.start_pod("node-1", &workload).unwrap();
                started.push(workload);
                if started.len() > 8 {
                    client.stop_pod("node-1", &started.remove(0)).unwrap();
                }
                pods.store(number + 1, Ordering::Relaxed);
                std::thread::sleep(pause);
                if ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            site.rebuild(&["--apply", "--yes"]).completed();
            let missing = client
                .get(&handle_key("default.unrecorded-59"))
                .unwrap()
                .is_none();
            let is_busy = pods.load(Ordering::Relaxed) > 1;
            if !missing && is_busy || Instant::now() > deadline {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(pods.load(Ordering::Relaxed) > 1);
    });
    site.rebuild(&["--apply", "--yes"]).succeeded();
    site.is_healthy();
}

#[test]
fn connections_that_fail_say_why() {
    let current = Etcd::start().unwrap();
    calipam(&[
        "check",
        "--datastore",
        "etcdv2",
        "--etcd-endpoints",
        &current.endpoint(),
    ])
    .failed(3, "does not serve etcd's v2 API")
    .says("--enable-v2");

    let Some(site) = Site::start() else { return };
    site.calico.client.require_login("s3cret").unwrap();
    site.run(&["check"]).failed(3, "user name and password");
    let login = |password: &str| {
        let mut command = site.command(&["check"]);
        Run::of(
            command
                .env("ETCD_USERNAME", "root")
                .env("ETCD_PASSWORD", password),
        )
    };
    login("s3cret").succeeded();
    login("wrong").exits(3).does_not_say("wrong\"");

    let folder = tempfile::tempdir().unwrap();
    for part in ["member/snap", "member/wal"] {
        std::fs::create_dir_all(folder.path().join(part)).unwrap();
    }
    calipam(&["check", "--datastore", folder.path().to_str().unwrap()]).failed(3, "--force-new-cluster");
}

#[test]
fn certificates_are_shown_and_looked_at() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let options = EtcdOptions::new()
        .version(EtcdVersion::V3_4)
        .tls(EtcdTls::ClientCertificates);
    let etcd = options.argument("--enable-v2=true").start().unwrap();
    let pki = etcd.pki.as_ref().unwrap();
    let endpoint = etcd.endpoint();
    let [ca, certificate, key] =
        [&pki.ca, &pki.client.certificate, &pki.client.key].map(|p| p.to_str().unwrap());
    let run = |more: &[&str]| {
        calipam(
            &[
                &["check", "--datastore", "etcdv2", "--etcd-endpoints", &endpoint],
                more,
            ]
            .concat(),
        )
    };
    // It was connected.
    run(&["--etcd-cacert", ca, "--etcd-cert", certificate, "--etcd-key", key]).says("holds no Calico data");
    run(&[]).says("certificate");
    run(&["--etcd-cacert", ca]).failed(3, "certificate");
}
