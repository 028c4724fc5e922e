//! Options and words that all commands share: calicoctl's spellings, `help`, `version`, durations, and certificates for
//! etcd.

use calipam_testkit::servers::{EtcdOptions, EtcdTls};
use serde_json::Value;

use super::program::{EXAMPLE, Run, calipam, command, expected, on_example, scratch};
use super::selection::column;

#[test]
fn calicoctl_s_spellings_are_understood() {
    for (theirs, ours) in [
        (&["show", "--show-blocks"][..], &["show", "--blocks"][..]),
        (&["ipam", "show", "--show-borrowed"], &["show", "--borrowed"]),
        (&["show", "--show-configuration"], &["show", "--configuration"]),
    ] {
        let (theirs, ours) = (on_example(theirs), on_example(ours));
        assert_eq!(theirs.stdout, ours.stdout);
        assert_eq!(theirs.code, ours.code);
    }
}

#[test]
fn help_is_a_command() {
    assert_eq!(calipam(&["help", "show"]).stdout, calipam(&["show", "--help"]).stdout);
    assert_eq!(calipam(&["help"]).stdout, calipam(&["--help"]).stdout);
    calipam(&["help", "chek"]).exits(2);
}

#[test]
fn the_version_says_what_is_read() {
    expected!("version", calipam(&["version"]).transcript());
    let run = calipam(&["version", "-o", "json"]);
    let json = run.json();
    assert_eq!((&json["kind"], &json["program"]), (&"Version".into(), &"calipam".into()));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_string(), "{json}");
    assert!(json["reads"]["datastores"].as_array().unwrap().len() == 4, "{json}");
    let example = std::fs::read_to_string(super::program::root().join(EXAMPLE)).unwrap();
    let header: Value = serde_json::from_str(example.lines().next().unwrap()).unwrap();
    assert_eq!(json["reads"]["exportVersion"], header["version"], "{json}");
    assert_eq!(json["cluster"], Value::Null, "no cluster is asked");
}

#[test]
fn a_version_of_calico_is_known_or_not() {
    let example = std::fs::read_to_string(super::program::root().join(EXAMPLE)).unwrap();
    let (_folder, file) = scratch("cluster.jsonl");
    let name = file.to_str().unwrap();
    for (version, is_known, said) in [
        ("v3.32.1", true, "Cluster     Calico v3.32.1, which calipam knows\n"),
        ("v3.99.0", false, "Cluster     Calico v3.99.0, which calipam does not know\n"),
        ("", false, "Cluster     does not name its Calico version\n"),
    ] {
        let field = |version| format!("\"calicoVersion\":\"{version}\"");
        std::fs::write(&file, example.replace(&field("v3.32.1"), &field(version))).unwrap();
        let run = calipam(&["version", "--check-compat", "--datastore", name]);
        assert_eq!(run.code, i32::from(!is_known), "{run:?}");
        assert!(run.stdout.ends_with(said), "{run:?}");
        let json = calipam(&["version", "--check-compat", "--datastore", name, "-o", "json"]).json();
        assert_eq!(json["cluster"], serde_json::json!({"calicoVersion": version, "isKnown": is_known}));
    }
    assert_eq!(calipam(&["version", "--check-compat", "--datastore", "nowhere.jsonl"]).code, 3);
}

#[test]
fn days_are_durations() {
    let leaks = |grace| {
        let run = on_example(&["check", "--rule", "leaked-address", "-o", "json", "--grace", grace]);
        column(&run, "findings", "code").len()
    };
    assert_eq!((leaks("1d"), leaks("365d")), (leaks("24h"), leaks("8760h")));
    assert!(leaks("1d") > leaks("365d"));
}

/// The options for etcd certificates are those of `etcdctl`. A missing file and a certificate without a key are errors.
#[test]
fn certificates_of_etcd_are_options() {
    calipam(&["check", "--etcd-endpoints", "https://127.0.0.1:1", "--etcd-cacert", "/nonexistent/ca.pem"])
        .failed(3, "/nonexistent/ca.pem");
    let run = Run::of(command(crate::cli::PROGRAM).args([
        "check",
        "--etcd-endpoints",
        "https://127.0.0.1:1",
        "--etcd-cert",
        "README.md",
    ]));
    assert_eq!(run.code, 2, "{run:?}");
}

/// A server that requires certificates can be used with command-line options only.
#[test]
fn a_server_with_tls_is_read_by_options() {
    let etcd = EtcdOptions::new().tls(EtcdTls::ClientCertificates).start().unwrap();
    let pki = etcd.pki().unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let run =
        |options: &[&str]| calipam(&[&["show", "--etcd-endpoints", &etcd.endpoint()], options].concat());
    let (ca, cert, key) = (path(&pki.ca), path(&pki.client.certificate), path(&pki.client.key));
    run(&["--etcd-cacert", &ca]).failed(3, "--etcd-cert FILE --etcd-key FILE`");
    let with = run(&["--etcd-cacert", &ca, "--etcd-cert", &cert, "--etcd-key", &key]);
    // The handshake has succeeded, since the error is about the contents of this etcd, which is empty.
    assert!(with.stderr.contains("holds no Calico data"), "{with:?}");
}
