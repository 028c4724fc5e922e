//! Options that have no effect are refused, not ignored.

use super::program::{calipam, on_example};

fn refused(arguments: &[&str], code: i32, told: &str) {
    on_example(arguments).exits(code).prints_nothing().says(told);
}

#[test]
fn filters_that_leave_nothing() {
    let same = ["check", "--rule", "orphan-handle,leaked-address", "--skip-rule", "leaked-address"];
    refused(&same, 2, "error: --rule and --skip-rule both name leaked-address\n");
    let apart = ["check", "--node", "node-1", "--pool", "extra-5"];
    refused(
        &apart,
        1,
        "error: node-1 and 172.16.5.0/28 have nothing in common\nhint: `calipam show --blocks --datastore",
    );
    for meet in [["node-1", "10.244.0.0/16"], ["node-1,node-2", "extra-5,10.244.0.0/16"]] {
        let run = on_example(&["check", "--node", meet[0], "--pool", meet[1], "-o", "json"]);
        assert!(run.code <= 1 && run.stdout.contains("CheckReport"), "{meet:?}: {run:?}");
    }
}

/// A context needs a kubeconfig. Without one, the program would read a cluster other than the named one.
#[test]
fn a_context_without_a_kubeconfig() {
    let told =
        "error: the context \"prod\" is named, but no kubeconfig is\nhint: name the kubeconfig that has it";
    refused(&["check", "--context", "prod"], 2, told);
    for more in [&["--etcd-endpoints", "http://127.0.0.1:1"][..], &["--datastore", "kubernetes"]] {
        calipam(&[&["check", "--context", "prod"], more].concat()).failed(2, told);
    }
}

/// An invalid call exits with 2, and an unreadable file with 3.
#[test]
fn files_that_cannot_be_read() {
    let etcd = ["--etcd-endpoints", "http://127.0.0.1:1"];
    let cases: [&[&str]; 8] = [
        &["check", "-d", "nowhere.jsonl"],
        &["check", "-d", "./nowhere"],
        &["check", "--config", "/nonexistent/calicoctl.cfg"],
        &["check", "-d", "kubernetes", "--kubeconfig", "/nonexistent/config"],
        &["check", "-d", super::program::EXAMPLE, "--ignore", "/nonexistent/accepted"],
        &["release", "-d", super::program::EXAMPLE, "--from-report", "/nonexistent/report"],
        &["release", "-d", super::program::EXAMPLE, "--from-report", "README.md"],
        &["undo", "/nonexistent/journal", etcd[0], etcd[1]],
    ];
    for arguments in cases {
        let run = calipam(arguments).exits(3).prints_nothing();
        let file = run.stderr.contains("nonexistent") || run.stderr.contains("nowhere");
        assert!(file || run.stderr.contains("README.md"), "{arguments:?}: {run:?}");
    }
    let word = calipam(&["check", "-d", "kuberntes"]);
    assert_eq!(word.code, 2, "a word is no path: {word:?}");
}

#[test]
fn a_block_that_does_not_exist() {
    refused(
        &["rebuild", "--block", "10.99.0.0/26"],
        1,
        "error: block 10.99.0.0/26 not found\nhint: `calipam show",
    );
    refused(&["rebuild", "--block", "10.244.10.0/26,10.99.0.0/26"], 1, "block 10.99.0.0/26 not found");
    let run = on_example(&["rebuild", "--block", "10.244.10.5/26"]);
    assert!(run.stdout.contains("10.244.10."), "a block may be named by an address in it: {run:?}");
}

#[test]
fn a_file_is_not_to_be_written() {
    let cases: [(&[&str], &str, &str); 2] = [
        (
            &["release", "--leaked", "--yes", "--lock"],
            "release --yes",
            "`calipam release --leaked --lock --dry-run --datastore",
        ),
        (&["rebuild", "--apply"], "rebuild --apply", "`calipam rebuild --datastore"),
    ];
    for (arguments, what, hint) in cases {
        refused(arguments, 2, &format!("error: a file is never changed; {what} needs a live datastore\n"));
        refused(arguments, 2, &format!("hint: plan on it with {hint}"));
    }
}

/// YAML 1.1 parsers convert strings that look like times, so these are quoted. Go's format ends with the name of a
/// zone, and is not converted.
#[test]
fn times_are_quoted_in_yaml() {
    let run = calipam(&["show", "--ip", "10.244.10.6", "-o", "yaml", "-d", super::program::EXAMPLE]);
    let times = run.stdout.lines().filter(|line| line.contains("imestamp: ") || line.contains("takenAt: "));
    let times: Vec<&str> = times.collect();
    let is_safe = |line: &&str| line.contains(": \"20") || line.ends_with(" +0000 UTC");
    assert!(times.len() > 1 && times.iter().all(is_safe), "{times:?}");
}
