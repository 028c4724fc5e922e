//! The settings for examples, and the examples that cannot be run.

/// The beginnings of examples that this test runs.
pub(super) const RUN: [&str; 11] = [
    "calipam ",
    "/usr/local/bin/calipam ",
    "out=$(calipam ",
    "ipam ",
    "kubectl ipam ",
    "kubectl calico ",
    "calicoctl ipam ",
    "ln -s \"$(command -v calipam)\" ",
    "ln -s /var/lib/calipam/",
    "install -D -m 0644 /dev/null /etc/",
    "install -m 0644 docs/",
];

/// The beginnings of examples that this test cannot run, each with the reason.
pub(super) const NOT_RUN: [(&str, &str); 19] = [
    ("cargo ", "builds this workspace, and is what runs this test"),
    ("eval \"$(cargo xtask env)\"", "the same"),
    (
        "\"$CALIPAM_TEST_ETCD\" ",
        "a server at a port that may be taken; tests have theirs at free ones",
    ),
    (
        "etcdctl ",
        "no tool of ours; `etcd.rs` connects as a user with such a role",
    ),
    (
        "kubectl get ",
        "no tool of ours; `kubectl_lists.rs` of the datastore reads what it prints",
    ),
    ("G=crd.projectcalico.org", "a variable for the line below it"),
    (
        "kubectl apply ",
        "no tool of ours; `manifests.rs` applies the manifests on an API server",
    ),
    ("kubectl -n calipam ", "needs a kubelet that runs the job"),
    ("skopeo ", "needs a registry"),
    ("curl -fsSL ", "needs the server of the publisher"),
    ("sudo install ", "installs into the system"),
    (
        "install -D -m 0644 docs/",
        "installs into the system; `scheduled.rs` reads the files",
    ),
    ("systemctl ", "needs systemd; `scheduled.rs` reads the units"),
    ("calipam serve", "stays until a signal comes; `serve.rs` runs it"),
    (
        "calipam record",
        "stays until a signal comes; `record.rs` runs it",
    ),
    (
        "calipam export -q --overwrite /exports/",
        "needs a web server to send to; `fleet` checks folders of exports",
    ),
    ("aws ", "needs a bucket; the folder that it fills is there"),
    (
        "DATASTORE_TYPE=etcdv2 ",
        "needs an etcd with the v2 API; `etcdv2.rs` starts one",
    ),
    ("curl -s http://127.0.0.1:9795/", "asks that server"),
];

/// Strings that are replaced in examples, each with its replacement.
pub(super) const REPLACED: [(&str, &str); 8] = [
    // The test's archive has one export before this time and one after it.
    ("2026-11-20T03:12Z", "2026-06-02T03:12Z"),
    ("https://10.0.0.5:2379", "$ENDPOINT"),
    // A revision that exists in the test's etcd.
    ("etcd@48250", "etcd@200"),
    // Folders of the system are replaced by folders of the test.
    ("/etc/", "$ROOT/etc/"),
    ("/var/", "$ROOT/var/"),
    // The test's cluster does not change, so there is nothing to wait for.
    ("--confirm 30s", "--confirm 1s"),
    (" check", " check --settle 0"),
    (" release", " release --settle 0"),
];

/// The folders that must exist for the examples. There is nothing below `/etc/calipam`, because no document tells its
/// reader to put a file there before an example.
pub(super) const FOLDERS: [&str; 13] = [
    ".kube",
    ".config/fish/completions",
    ".config/elvish",
    ".local/bin",
    ".local/state/calipam",
    "bin",
    "functions",
    "etc/bash_completion.d",
    "etc/systemd/system",
    "var/lib/calipam/sent/prod",
    "var/lib/node_exporter/textfile_collector",
    "var/lib/prometheus/node-exporter",
    "var/log",
];

fn has(line: &str, words: &str) -> bool {
    words
        .split(' ')
        .any(|word| line.split(' ').any(|other| other == word))
}

/// Returns the exit codes that a command can have without an error, according to its help.
pub(super) fn exit_codes(line: &str) -> &'static [i32] {
    // Exit code 1 means findings, skipped or changed objects, or differences. calicoctl has no such exit code.
    let reports = "check release rebuild undo assign migrate diff history --compare explain";
    if has(line, reports) && !line.starts_with("calicoctl ") {
        &[0, 1]
    } else {
        &[0]
    }
}

/// True for a command that asks before it writes, so that it needs its own cluster.
pub(super) fn writes(line: &str) -> bool {
    // Even a dry run of `undo` needs an earlier run.
    has(line, "undo") || has(line, "release assign split configure --apply") && !has(line, "--dry-run")
}
