//! Errors name the cause, the object, and the next step. Options that have no effect are refused, not ignored.

use calipam_testkit::servers::Etcd;

use super::program::{Run, calipam, example, expected, file, on_example, prepare};

#[test]
fn a_datastore_that_is_none() {
    for (name, options) in [
        ("no-such-file", "--datastore nowhere.jsonl"),
        ("no-data-file", "--datastore README.md"),
        ("refused", "--etcd-endpoints http://127.0.0.1:1"),
        ("no-endpoints", "--datastore etcd"),
    ] {
        expected!(
            format!("error-{name}"),
            calipam(&format!("check {options}")).transcript()
        );
    }
    let whole = example();
    let (_folder, cut) = file("cut.jsonl", &whole[..whole.len() / 2]);
    calipam(&format!("check --datastore {cut}"))
        .refused(3, "error: ")
        .says("\nhint: ");
}

#[test]
fn a_misspelt_field_of_the_settings_is_named() {
    let text = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  etcdEndpoint: http://127.0.0.1:1\n";
    let (_folder, path) = file("calicoctl.cfg", text);
    let run = calipam(&format!("check --config {path}")).exits(2);
    let says = format!("error: {path}: unknown field `etcdEndpoint`\nhint: did you mean `etcdEndpoints`?\n");
    assert_eq!(run.stderr, says);
}

/// Passwords in the environment or in URLs are never printed.
#[test]
fn secrets_are_not_printed() {
    for (endpoint, level) in [
        ("http://root:hunter2@127.0.0.1:1", "-v"),
        ("http://127.0.0.1:1", "-vv"),
        ("http://127.0.0.1:1", "-vvv"),
    ] {
        let mut program = prepare(&["check", level]);
        program
            .env("ETCD_ENDPOINTS", endpoint)
            .env("ETCD_USERNAME", "root")
            .env("ETCD_PASSWORD", "hunter2");
        assert_ne!(Run::of(program).hides("hunter2").code, 0);
    }
}

/// The error names the options for etcd and for Kubernetes.
#[test]
fn the_error_lists_all_ways_to_name_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let run = Run::of(prepare("check").env("HOME", home.path())).exits(3);
    for way in [
        "KUBECONFIG",
        "ETCD_ENDPOINTS",
        "--etcd-endpoints URL",
        "--datastore FILE",
    ] {
        assert!(run.stderr.contains(way), "{way}: {}", run.stderr);
    }
}

/// `-vv` logs requests. Only `-vvv` also logs the details of HTTP/2 and TLS.
#[test]
fn vv_logs_requests_but_no_frames() {
    let etcd = Etcd::start().unwrap();
    let check = |level: &str| Run::of(prepare(&["check", level]).env("ETCD_ENDPOINTS", etcd.endpoint()));
    check("-vv")
        .says(&format!("{}: read ", etcd.endpoint()))
        .hides("h2::")
        .hides("hyper");
    check("-vvv").says(" h2::");
    // This etcd is empty.
    check("-v").refused(3, "holds no Calico data").says("\nhint: ");
}

#[test]
fn values_that_make_no_sense_are_usage_errors() {
    for line in [
        "check --settle soon",
        "check --grace -5m",
        "check --pool-threshold 101",
        "check -o xml",
        "check --fail-on everything",
        "check -v -q",
        "show --ip 10.244.1",
        "show --ip 10.244.1.7 --blocks",
        "show --quick",
        "completion csh",
        "ipam ipam",
    ] {
        calipam(line).refused(2, "error: ").says_first("error: ");
    }
}

#[test]
fn filters_that_leave_nothing() {
    on_example("check --rule orphan-handle,leaked-address --skip-rule leaked-address")
        .refused(2, "error: --rule and --skip-rule both name leaked-address\n");
    on_example("check --node node-1 --pool extra-5")
        .refused(1, "error: node-1 and 172.16.5.0/28 have nothing in common\n")
        .says("hint: `calipam show --blocks --datastore");
    for meet in [
        "--node node-1 --pool 10.244.0.0/16",
        "--node node-1,node-2 --pool extra-5,10.244.0.0/16",
    ] {
        on_example(&format!("check {meet} -o json"))
            .prints("CheckReport")
            .completed();
    }
    let block = |name: &str| on_example(&format!("rebuild --block {name}"));
    block("10.99.0.0/26").refused(1, "error: block 10.99.0.0/26 not found\nhint: `calipam show");
    block("10.244.10.0/26,10.99.0.0/26").refused(1, "block 10.99.0.0/26 not found");
    // A block may be named by an address in it.
    block("10.244.10.5/26").prints("10.244.10.");
}

/// A context needs a kubeconfig. Without one, the program would read a cluster other than the named one.
#[test]
fn a_context_without_a_kubeconfig() {
    let says =
        "error: the context \"prod\" is named, but no kubeconfig is\nhint: name the kubeconfig that has it";
    on_example("check --context prod").refused(2, says);
    for more in ["--etcd-endpoints http://127.0.0.1:1", "--datastore kubernetes"] {
        calipam(&format!("check --context prod {more}")).failed(2, says);
    }
}

/// An invalid call exits with 2, and an unreadable file with 3.
#[test]
fn files_that_cannot_be_read() {
    for line in [
        "check -d nowhere.jsonl",
        "check -d ./nowhere",
        "check --config /nonexistent/nowhere.cfg",
        "check -d kubernetes --kubeconfig /nonexistent/nowhere",
        "undo /nonexistent/nowhere --etcd-endpoints http://127.0.0.1:1",
    ] {
        calipam(line).refused(3, "nowhere");
    }
    on_example("check --ignore /nonexistent/accepted")
        .refused(3, "cannot read /nonexistent/accepted: No such file");
    for file in ["/nonexistent/report", "README.md"] {
        on_example(&format!("release --from-report {file}")).refused(3, file);
    }
    // A word is no path.
    calipam("check -d kuberntes").exits(2);
}

#[test]
fn a_file_is_not_to_be_written() {
    for (line, what, hint) in [
        (
            "release --leaked --yes --lock",
            "release --yes",
            "release --leaked --lock --dry-run --datastore",
        ),
        ("rebuild --apply", "rebuild --apply", "rebuild --datastore"),
    ] {
        on_example(line)
            .refused(
                2,
                &format!("error: a file is never changed; {what} needs a live datastore\n"),
            )
            .says(&format!("hint: plan on it with `calipam {hint}"));
    }
}

/// YAML 1.1 parsers convert strings that look like times, so these are quoted. Go's format ends with the name of a
/// zone, and is not converted.
#[test]
fn times_are_quoted_in_yaml() {
    let run = on_example("show --ip 10.244.10.6 -o yaml");
    let times = run
        .stdout
        .lines()
        .filter(|line| line.contains("imestamp: ") || line.contains("takenAt: "));
    let times: Vec<&str> = times.collect();
    let is_safe = |line: &&str| line.contains(": \"20") || line.ends_with(" +0000 UTC");
    assert!(times.len() > 1 && times.iter().all(is_safe), "{times:?}");
}

#[test]
fn a_namespace_is_no_object_and_has_a_list() {
    let says = "error: no node, pool or handle has the name \"shop\"\nhint: it is a namespace: `calipam show --namespaces ";
    on_example("show shop").refused(1, says);
}
