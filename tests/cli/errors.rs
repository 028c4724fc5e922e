//! Errors name the cause, the object, and the next step.

use std::fs;

use calipam_testkit::servers::Etcd;

use super::program::{Run, calipam, command, expected, scratch};

#[test]
fn a_datastore_that_is_none() {
    expected!("error-no-such-file", calipam(&["check", "--datastore", "nowhere.jsonl"]).transcript());
    expected!("error-no-data-file", calipam(&["check", "--datastore", "README.md"]).transcript());
    expected!("error-refused", calipam(&["check", "--etcd-endpoints", "http://127.0.0.1:1"]).transcript());
    expected!("error-no-endpoints", calipam(&["check", "--datastore", "etcd"]).transcript());
}

#[test]
fn an_export_that_is_cut() {
    let (_folder, path) = scratch("cut.jsonl");
    let whole = fs::read_to_string(super::program::root().join(super::program::EXAMPLE)).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    calipam(&["check", "--datastore", path.to_str().unwrap()]).refused(3, "error: ").says("\nhint: ");
}

#[test]
fn a_misspelt_field_of_the_settings_is_named() {
    let (_folder, path) = scratch("calicoctl.cfg");
    fs::write(
        &path,
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  etcdEndpoint: http://127.0.0.1:1\n",
    )
    .unwrap();
    let text = path.to_str().unwrap();
    let run = calipam(&["check", "--config", text]).exits(2);
    assert_eq!(
        run.stderr,
        format!("error: {text}: unknown field `etcdEndpoint`\nhint: did you mean `etcdEndpoints`?\n")
    );
}

/// Passwords in the environment or in URLs are never printed.
#[test]
fn secrets_are_not_printed() {
    let mut program = command(crate::cli::PROGRAM);
    program.env("ETCD_ENDPOINTS", "http://root:hunter2@127.0.0.1:1");
    program.env("ETCD_USERNAME", "root").env("ETCD_PASSWORD", "hunter2");
    for level in ["-v", "-vv", "-vvv"] {
        let run = Run::of(program.args(["check", level]));
        assert_ne!(run.code, 0);
        assert!(!run.transcript().contains("hunter2"), "{}", run.transcript());
        program = {
            let mut next = command(crate::cli::PROGRAM);
            next.env("ETCD_ENDPOINTS", "http://127.0.0.1:1").env("ETCD_USERNAME", "root");
            next.env("ETCD_PASSWORD", "hunter2");
            next
        };
    }
}

/// The error names the options for etcd and for Kubernetes.
#[test]
fn the_error_lists_all_ways_to_name_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let mut program = command(crate::cli::PROGRAM);
    let run = Run::of(program.arg("check").env("HOME", home.path()).env_remove("KUBECONFIG")).exits(3);
    for way in ["KUBECONFIG", "ETCD_ENDPOINTS", "--etcd-endpoints URL", "--datastore FILE"] {
        assert!(run.stderr.contains(way), "{way}: {}", run.stderr);
    }
}

/// `-vv` logs requests. Only `-vvv` also logs the details of HTTP/2 and TLS.
#[test]
fn vv_logs_requests_but_no_frames() {
    let etcd = Etcd::start().unwrap();
    let said = |level: &str| {
        let mut program = command(crate::cli::PROGRAM);
        program.env("ETCD_ENDPOINTS", etcd.endpoint()).args(["check", level]);
        Run::of(program).stderr
    };
    let requests = said("-vv");
    assert!(requests.contains(&format!("{}: read ", etcd.endpoint())), "{requests}");
    assert!(!requests.contains("h2::") && !requests.contains("hyper"), "{requests}");
    assert!(said("-vvv").contains(" h2::"));
}

#[test]
fn values_that_make_no_sense_are_usage_errors() {
    for arguments in [
        &["check", "--settle", "soon"][..],
        &["check", "--grace", "-5m"],
        &["check", "--pool-threshold", "101"],
        &["check", "-o", "xml"],
        &["check", "--fail-on", "everything"],
        &["check", "-v", "-q"],
        &["show", "--ip", "10.244.1"],
        &["show", "--ip", "10.244.1.7", "--blocks"],
        &["show", "--quick"],
        &["completion", "csh"],
        &["ipam", "ipam"],
    ] {
        let run = calipam(arguments).exits(2).prints_nothing();
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {run:?}");
    }
}
