//! `check` of a real etcd.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdTls};
use jiff::Timestamp;
use serde_json::Value;

use super::program::{Run, calipam, findings, on_etcd, prepare};
use super::pty::Terminal;

/// Creates a cluster with every fault. Its data is as of now, since a check of a live etcd uses the machine's clock.
fn faulty() -> Cluster {
    Cluster::all_faults(ClusterSpec::new(7).at(Timestamp::now()).wide(), 1)
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

    let live = on_etcd(&etcd, "check -o json --settle 0").exits(1);
    assert_eq!(lines(&live), truth);

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    on_etcd(&etcd, &["export", &at("export.jsonl.zst")]).succeeded();
    etcd.save_snapshot(Path::new(&at("snapshot.db"))).unwrap();
    for name in ["export.jsonl.zst", "snapshot.db"] {
        let offline = calipam(&["check", "-o", "json", "--datastore", &at(name)]);
        assert_eq!(lines(&offline), truth, "{name}");
        assert_eq!(comparable(&offline), comparable(&live), "{name}");
    }
}

#[test]
fn only_findings_that_a_second_read_confirms_are_reported() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let once = on_etcd(&etcd, "check -o json --settle 0");
    let begun = Instant::now();
    let run = on_etcd(&etcd, "check -o json --settle 1s --confirm 1s");
    assert!(
        begun.elapsed() >= Duration::from_secs(3),
        "two looks of a second each, and one between"
    );
    assert_eq!(run.json()["rechecked"], true);
    assert_eq!(lines(&run), lines(&once), "nothing has changed");

    // The wait is shown on a terminal only.
    let check = || {
        let mut program = prepare("check --settle 1s --etcd-endpoints");
        program.arg(etcd.endpoint()).env("TERM", "xterm");
        program
    };
    Terminal::new(150)
        .run(&mut check())
        .exits(1)
        .shows("waiting to recheck: 1 s");
    let quiet = Terminal::new(150).run(check().arg("-q")).exits(1);
    assert!(!quiet.text.contains("waiting"), "{:?}", quiet.text);
    Run::of(check()).exits(1).hides("waiting").hides("\u{1b}");

    let orphans = |run: &Run| {
        lines(run)
            .iter()
            .filter(|l| l.starts_with("orphan-handle"))
            .count()
    };
    assert!(orphans(&once) > 0);
    let watched = thread::scope(|scope| {
        let check = scope.spawn(|| on_etcd(&etcd, "check -o json --settle 3s"));
        thread::sleep(Duration::from_millis(1500));
        etcd.delete_below("/calico/ipam/v2/handle/").unwrap();
        check.join().unwrap()
    });
    assert_eq!(orphans(&watched), 0, "{:?}", lines(&watched));
}

#[test]
fn users_and_passwords() {
    let etcd = EtcdOptions::new()
        .login("root", "pw")
        .reader("guest", "secret", "/calico/")
        .start()
        .unwrap();
    let check = |name: &str, password: &str| {
        let mut program = prepare("check --etcd-endpoints");
        let user = [("ETCD_USERNAME", name), ("ETCD_PASSWORD", password)];
        Run::of(
            program
                .arg(etcd.endpoint())
                .envs(user.into_iter().filter(|(_, value)| !value.is_empty())),
        )
    };
    check("", "").failed(
        3,
        "the server requires a user name and password\nhint: set ETCD_USERNAME",
    );
    check("guest", "wrong")
        .failed(3, "the user name or password is wrong")
        .hides("guest:wrong");
    // The user may read, but the cluster contains no data.
    check("guest", "secret").says("holds no Calico data");
}

/// A server that requires certificates. Options are enough to name them; they are those of `etcdctl`.
#[test]
fn certificates() {
    let etcd = EtcdOptions::new()
        .tls(EtcdTls::ClientCertificates)
        .start()
        .unwrap();
    let plain = etcd.endpoint().replace("https://", "http://");
    calipam(&["check", "--etcd-endpoints", &plain])
        .failed(3, "the server requires TLS\nhint: write the endpoint as https://");
    on_etcd(&etcd, "check").failed(3, "ETCD_CA_CERT_FILE");

    let pki = etcd.pki.as_ref().unwrap();
    let ca = format!("show --etcd-cacert {}", pki.ca.display());
    on_etcd(&etcd, &ca).failed(3, "--etcd-cert FILE --etcd-key FILE`");
    let (cert, key) = (pki.client.certificate.display(), pki.client.key.display());
    // The handshake has succeeded, since the error is about the contents of this etcd, which is empty.
    on_etcd(&etcd, &format!("{ca} --etcd-cert {cert} --etcd-key {key}")).says("holds no Calico data");

    // A missing file and a certificate without a key are errors.
    let check = "check --etcd-endpoints https://127.0.0.1:1";
    calipam(&format!("{check} --etcd-cacert /nonexistent/ca.pem")).failed(3, "/nonexistent/ca.pem");
    calipam(&format!("{check} --etcd-cert README.md")).exits(2);
}
