//! `calipam serve` follows an etcd. After any change or failure of etcd, its report equals that of a check.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use etcd_client::{Txn, TxnOp};
use rustix::process::Signal;
use serde_json::Value;

use super::live::{self, Changing};
use super::program::{calipam, command};
use super::serve::Server;

/// The stored keys and values.
type Entries = Vec<(String, Vec<u8>)>;

fn faulty() -> (Etcd, Entries) {
    let spec = ClusterSpec::new(32).at(jiff::Timestamp::now());
    let etcd = Etcd::of(&Cluster::all_faults(spec, 1)).unwrap();
    let entries = etcd
        .entries()
        .unwrap()
        .into_iter()
        .map(|(key, (value, _))| (key, value))
        .collect();
    (etcd, entries)
}

/// Starts a server that checks at an interval.
fn serve(etcd: &Etcd, interval: &str, settle: &str) -> Server {
    live::serve(&[
        "--interval",
        interval,
        "--settle",
        settle,
        "--etcd-endpoints",
        &etcd.endpoint(),
    ])
}

fn check(etcd: &Etcd) -> Value {
    calipam(&[
        "check",
        "-o",
        "json",
        "--settle",
        "0",
        "--etcd-endpoints",
        &etcd.endpoint(),
    ])
    .json()
}

/// Returns the number of findings of a report.
fn found(report: &str) -> usize {
    json(report)["findings"].as_array().unwrap().len()
}

/// Writes and deletes keys in one transaction, and returns the transaction's revision.
fn write(etcd: &Etcd, writes: &[(&str, Option<&[u8]>)]) -> i64 {
    let writes: Vec<TxnOp> = writes
        .iter()
        .map(|(key, value)| match value {
            Some(value) => TxnOp::put(*key, *value, None),
            None => TxnOp::delete(*key, None),
        })
        .collect();
    let written = etcd.with_client(async |mut client| client.txn(Txn::new().and_then(writes.clone())).await);
    written.unwrap().header().unwrap().revision()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn revision(report: &Value) -> i64 {
    report["cluster"]["revision"].as_str().unwrap().parse().unwrap()
}

/// Waits for a report of this revision or a later one, and compares it with the report of a check.
fn assert_is_checked(server: &Server, etcd: &Etcd, written: i64, name: &str) {
    let report = json(
        &server
            .wait("/report.json", |answer| revision(&json(&answer.body)) >= written)
            .body,
    );
    let check = check(etcd);
    for part in ["findings", "counts", "notes"] {
        assert_eq!(report[part], check[part], "{name}: {part}");
    }
}

fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.get("/metrics").body;
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))
        .expect(name);
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn after_each_change_the_report_is_that_of_a_check() {
    let (etcd, entries) = faulty();
    let server = serve(&etcd, "1h", "0");
    let mut random = 7_usize;
    let mut below = |most: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let is_common = |key: &str| key.contains("/ipam/") || key.contains("workloadendpoints");
    let common: Vec<&(String, Vec<u8>)> = entries.iter().filter(|(key, _)| is_common(key)).collect();
    for round in 0..12 {
        let mut writes = BTreeMap::new();
        for _ in 0..=below(4) {
            let (key, value) = common[below(common.len())];
            writes.insert(key.as_str(), (below(3) > 0).then_some(value.as_slice()));
        }
        let name = format!("round {round}: {:?}", writes.keys());
        let written = write(&etcd, &writes.into_iter().collect::<Vec<_>>());
        assert_is_checked(&server, &etcd, written, &name);
    }
    let metrics = server.get("/metrics").body;
    assert!(metric(&server, "calipam_live_checks") > 3.0, "{metrics}");
    assert!(metric(&server, "calipam_live_changes") >= 12.0, "{metrics}");
    assert_eq!(metric(&server, "calipam_live_reads"), 1.0, "{metrics}");
}

#[test]
fn everything_is_read_again_after_a_compaction() {
    let (etcd, entries) = faulty();
    let server = serve(&etcd, "1h", "0");
    server.signal(Signal::STOP);
    let (key, value) = entries.iter().find(|(key, _)| key.contains("/handle/")).unwrap();
    let mut written = 0;
    for value in [None, Some(value.as_slice()), None] {
        written = write(&etcd, &[(key, value)]);
    }
    etcd.compact(written).unwrap();
    server.signal(Signal::CONT);
    assert_is_checked(&server, &etcd, written, "after the compaction");
    let (code, said) = server.terminate();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("error: "), "{said}");
}

/// Another cluster answers at the same address, so the data of the first one is dropped.
#[test]
fn another_cluster_in_the_place_of_the_first_is_read_anew() {
    let (mut etcd, _) = faulty();
    let server = serve(&etcd, "2s", "0");
    etcd.kill();
    std::fs::remove_dir_all(etcd.data_dir()).unwrap();
    etcd.restart().unwrap();
    let other = Cluster::plain(ClusterSpec::new(33).at(jiff::Timestamp::now()), 3, 2);
    other.write_to_etcd(&etcd.endpoint()).unwrap();
    let checked = check(&etcd);
    server.wait("/report.json", |answer| {
        json(&answer.body)["cluster"]["guid"] == checked["cluster"]["guid"] && found(&answer.body) == 0
    });
    assert_is_checked(&server, &etcd, revision(&checked), "the other cluster");
}

/// The same etcd returns with an earlier state, as from a copy of its disk, so later data is dropped.
#[test]
fn a_datastore_that_comes_back_older_is_read_anew() {
    let (mut etcd, entries) = faulty();
    let (data, copy) = (etcd.data_dir(), etcd.data_dir().with_extension("copy"));
    etcd.kill();
    let copied = command("cp")
        .args(["-r".as_ref(), data.as_os_str(), copy.as_os_str()])
        .status()
        .unwrap();
    assert!(copied.success());
    etcd.restart().unwrap();
    let server = serve(&etcd, "2s", "0");
    let handles: Vec<_> = entries
        .iter()
        .filter(|(key, _)| key.contains("/handle/"))
        .take(3)
        .collect();
    let mut written = 0;
    for (key, _) in &handles {
        written = write(&etcd, &[(key, None)]);
    }
    assert_is_checked(&server, &etcd, written, "before");

    etcd.kill();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    etcd.restart().unwrap();
    let (key, value) = handles[0];
    let again = write(&etcd, &[(key, Some(value))]);
    assert!(again < written);
    server.wait("/report.json", |answer| revision(&json(&answer.body)) == again);
    assert_is_checked(&server, &etcd, again, "afterwards");
    let (code, said) = server.terminate();
    assert!(
        code == Some(0) && said.contains("everything was read again"),
        "{said}"
    );
}

#[test]
fn a_finding_is_reported_after_the_settle_time() {
    let Changing { etcd, handle, value } = Changing::start();
    let server = serve(&etcd, "1h", "4s");

    // The change is undone within the settle time, so it causes no finding.
    write(&etcd, &[(&handle, None)]);
    thread::sleep(Duration::from_millis(1500));
    let written = write(&etcd, &[(&handle, Some(&value))]);
    let report = server.wait("/report.json", |answer| revision(&json(&answer.body)) >= written);
    assert_eq!(found(&report.body), 0);
    let begin = Instant::now();
    let written = write(&etcd, &[(&handle, None)]);
    let report = server.wait("/report.json", |answer| revision(&json(&answer.body)) >= written);
    assert_eq!(
        (found(&report.body), &json(&report.body)["rechecked"]),
        (0, &Value::Bool(true))
    );
    server.wait("/report.json", |answer| found(&answer.body) == 1);
    assert!(begin.elapsed() >= Duration::from_secs(4), "{:?}", begin.elapsed());
}
