//! `check` of a real etcd.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdTls};
use jiff::Timestamp;
use serde_json::Value;

use super::program::{Run, calipam, command, findings};
use super::pty::Terminal;

/// Creates a cluster with every fault. Its data is as of now, since a check of a live etcd uses the machine's clock.
fn faulty() -> Cluster {
    Cluster::all_faults(ClusterSpec::new(7).at(Timestamp::now()).wide(), 1)
}

fn on_etcd(etcd: &Etcd, arguments: &[&str]) -> Run {
    calipam(&[arguments, &["--etcd-endpoints", &etcd.endpoint()]].concat())
}

/// Lists the findings as `code subject`, sorted.
fn lines(run: &Run) -> Vec<String> {
    let mut lines: Vec<String> = findings(&run.json(), &["code", "name"]);
    lines.sort();
    lines
}

/// Removes the parts of a report that depend on the source of the data.
fn comparable(run: &Run) -> Value {
    let mut json = run.json();
    for field in ["location", "takenAt", "revision"] {
        json["cluster"][field].take();
    }
    json["rechecked"].take();
    json
}

#[test]
fn etcd_export_and_snapshot_give_the_same_correct_report() {
    let cluster = faulty();
    let etcd = Etcd::of(&cluster).unwrap();
    let mut truth = cluster.truth().lines();
    truth.sort();

    let live = on_etcd(&etcd, &["check", "-o", "json", "--settle", "0"]).exits(1);
    assert_eq!(lines(&live), truth);

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(on_etcd(&etcd, &["export", &at("export.jsonl.zst")]).code, 0);
    etcd.save_snapshot(Path::new(&at("snapshot.db"))).unwrap();
    for name in ["export.jsonl.zst", "snapshot.db"] {
        let offline = calipam(&["check", "-o", "json", "--datastore", &at(name)]);
        assert_eq!(lines(&offline), truth, "{name}");
        assert_eq!(comparable(&offline), comparable(&live), "{name}");
    }
}

#[test]
fn unchanged_findings_remain_after_the_second_read() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let begun = Instant::now();
    let run = on_etcd(&etcd, &["check", "-o", "json", "--settle", "1s", "--confirm", "1s"]);
    assert!(begun.elapsed() >= Duration::from_secs(3), "two looks of a second each, and one between");
    let json = run.json();
    assert_eq!(json["rechecked"], true);
    assert_eq!(lines(&run), lines(&on_etcd(&etcd, &["check", "-o", "json", "--settle", "0"])));
}

#[test]
fn findings_that_change_between_two_reads_are_not_reported() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let orphans = |run: &Run| lines(run).iter().filter(|l| l.starts_with("orphan-handle")).count();
    let before = orphans(&on_etcd(&etcd, &["check", "-o", "json", "--settle", "0"]));
    assert!(before > 0);
    let watched = thread::scope(|scope| {
        let check = scope.spawn(|| on_etcd(&etcd, &["check", "-o", "json", "--settle", "3s"]));
        thread::sleep(Duration::from_millis(1500));
        etcd.delete_below("/calico/ipam/v2/handle/").unwrap();
        check.join().unwrap()
    });
    assert_eq!(orphans(&watched), 0, "{:?}", lines(&watched));
}

#[test]
fn one_address_needs_few_requests() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let run = on_etcd(&etcd, &["show", "--ip", "10.244.10.6", "--quick", "-v"]).succeeded();
    assert!(run.stdout.contains("default/queue-49, which was not found"), "{run:?}");
    let requests = run.stderr.lines().find_map(|line| line.strip_suffix(" requests")).unwrap();
    let number: u32 = requests.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(number <= 4, "{run:?}");
}

#[test]
fn an_etcd_without_calico_is_named() {
    let etcd = Etcd::start().unwrap();
    on_etcd(&etcd, &["check"]).refused(3, "holds no Calico data").says("\nhint: ");
}

#[test]
fn waiting_is_shown_on_a_terminal_only() {
    let cluster = Cluster::example();
    let etcd = Etcd::of(&cluster).unwrap();
    let check = || {
        let mut program = command(crate::cli::PROGRAM);
        program.args(["check", "--settle", "1s", "--etcd-endpoints", &etcd.endpoint()]).env("TERM", "xterm");
        program
    };
    let shown = Terminal::new(150).run(&mut check());
    assert!(shown.text.contains("waiting to recheck: 1 s"), "{:?}", shown.text);
    let quiet = Terminal::new(150).run(check().arg("-q"));
    assert!(!quiet.text.contains("waiting"), "{:?}", quiet.text);
    let piped = Run::of(check());
    assert!(!piped.transcript().contains("waiting") && !piped.transcript().contains('\u{1b}'), "{piped:?}");
    assert_eq!((shown.code, quiet.code, piped.code), (Some(1), Some(1), 1));
}

#[test]
fn users_and_passwords() {
    let etcd = EtcdOptions::new().login("root", "pw").reader("guest", "secret", "/calico/").start().unwrap();
    let check = |user: Option<(&str, &str)>| {
        let mut program = command(crate::cli::PROGRAM);
        program.args(["check", "--etcd-endpoints", &etcd.endpoint()]);
        if let Some((name, password)) = user {
            program.env("ETCD_USERNAME", name).env("ETCD_PASSWORD", password);
        }
        Run::of(program)
    };
    check(None).failed(3, "the server requires a user name and password\nhint: set ETCD_USERNAME");
    let wrong = check(Some(("guest", "wrong"))).failed(3, "the user name or password is wrong");
    assert!(!wrong.transcript().contains("guest:wrong"), "{wrong:?}");
    // The user may read, but the cluster contains no data.
    check(Some(("guest", "secret"))).says("holds no Calico data");
}

#[test]
fn certificates() {
    let etcd = EtcdOptions::new().tls(EtcdTls::ClientCertificates).start().unwrap();
    let plain = etcd.endpoint().replace("https://", "http://");
    calipam(&["check", "--etcd-endpoints", &plain])
        .failed(3, "the server requires TLS\nhint: write the endpoint as https://");
    on_etcd(&etcd, &["check"]).failed(3, "ETCD_CA_CERT_FILE");
}
