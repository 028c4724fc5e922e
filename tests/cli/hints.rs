//! Hints can be pasted: under every name of the program, each command is valid and reaches the cluster of its call.

use std::collections::BTreeSet;

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::{Flavour, Kinds, lease};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;

use super::kube_cluster::connection;
use super::program::Run;
use super::shell::{NAMES, Shell};

/// Creates a shell whose environment names the wrong cluster: an etcd that cannot be reached, and a user and password
/// for it.
fn misled(more: Option<(&'static str, &str)>) -> Shell {
    let etcd = [
        ("ETCD_ENDPOINTS", "http://127.0.0.1:1"),
        ("ETCD_USERNAME", "root"),
        ("ETCD_PASSWORD", "hunter2"),
    ];
    Shell::new(
        etcd.into_iter()
            .chain(more)
            .map(|(name, value)| (name, value.to_owned())),
    )
}

/// Returns the commands in backquotes. In hints, backquotes contain commands, never options alone.
fn commands(name: &str, run: &Run) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in run.stdout.lines().chain(run.stderr.lines()) {
        for quoted in line.split('`').skip(1).step_by(2) {
            assert!(
                !quoted.starts_with('-') || !line.starts_with("hint: "),
                "an option alone: {line}"
            );
            if let Some(rest) = quoted.strip_prefix(name).filter(|rest| rest.starts_with(' ')) {
                found.insert(format!("{name}{rest}"));
            }
        }
        // A hint for one name of the program does not contain another one.
        let others = NAMES
            .iter()
            .filter(|other| **other != name && line.starts_with("hint: "));
        for other in others.copied().chain((name != "calipam").then_some("calipam")) {
            assert!(!line.contains(&format!("`{other} ")), "called as {name}: {line}");
        }
    }
    found
}

/// The placeholders in hints.
const PLACEHOLDERS: [&str; 3] = [" FILE", " NAME", " https://HOST:2379"];

/// Commands that print hints on a damaged cluster.
const PRINTING: [&str; 12] = [
    "check --settle 0",
    "check -o wide --settle 0",
    "release --leaked --orphan-handles --grace 0 --settle 0 --dry-run",
    "release --leaked --orphan-handles --grace 0 --settle 0",
    "release --leaked --grace 0 --settle 0 --max-changes 1",
    "rebuild --settle 0 --grace 0",
    "rebuild --apply --settle 0 --grace 0",
    "release --node node-0 --settle 0 -o json",
    "show --ip 10.128.0.9",
    "show --ip 192.0.2.1",
    "show --handle nowhere",
    "check --node nowhere --settle 0",
];

/// Runs all commands of [`PRINTING`] by a name of the program with the options in `connection`, and then every printed
/// hint. Each hint must read the datastore at `place`. Returns the number of hints.
fn follow(shell: &Shell, name: &str, connection: &str, place: &str) -> usize {
    let lines: Vec<String> = PRINTING
        .iter()
        .map(|words| format!("{name} {words} {connection}"))
        .collect();
    let mut hints = BTreeSet::new();
    for (line, run) in shell.run_all(&lines) {
        assert!(run.code <= 2 && !run.stderr.contains("Usage:"), "{line}: {run:?}");
        assert!(!run.transcript().contains("hunter2"), "{line}: {run:?}");
        hints.extend(commands(name, &run));
    }
    hints.retain(|line| {
        let is_whole = !PLACEHOLDERS.iter().any(|value| line.contains(value));
        assert!(
            is_whole || line.contains(connection),
            "{line} is for another cluster"
        );
        is_whole
    });

    // Commands that write run last, since they change the data that the other commands read.
    let (writing, reading): (Vec<_>, Vec<_>) = hints.iter().partition(|line| line.contains(" --yes"));
    let verbose: Vec<String> = reading
        .iter()
        .chain(&writing)
        .map(|line| format!("{line} -v"))
        .collect();
    let (reading, writing) = verbose.split_at(reading.len());
    let mut followed = shell.run_all(reading);
    for line in writing {
        followed.push((line, shell.run(line)));
    }
    for (line, run) in &followed {
        assert!(run.code <= 2 && !run.stderr.contains("Usage:"), "{line}: {run:?}");
        let needs_no_data = ["explain", "undo --list"];
        let reads = !needs_no_data
            .iter()
            .any(|words| line.starts_with(&format!("{name} {words} ")));
        assert!(
            !reads || run.stderr.starts_with(&format!("reading {place}\n")),
            "{line}: {run:?}"
        );
        assert!(
            run.code != 2 || run.stderr.contains("terminal"),
            "{line}: {run:?}"
        );
        assert!(!run.transcript().contains("hunter2"), "{line}: {run:?}");
    }
    // Undoes the runs in reverse order, so that the cluster is as it was before.
    let wrote = followed.iter().rev().filter(|(line, _)| line.contains(" --yes"));
    let undo = wrote
        .flat_map(|(_, run)| commands(name, run))
        .filter(|line| line.contains(" undo "));
    let undo: Vec<String> = undo.collect();
    assert!(!undo.is_empty(), "something was written");
    for line in undo {
        shell
            .run(&format!("{line} --yes -v"))
            .says_first(&format!("reading {place}\n"))
            .completed();
    }
    hints.len()
}

#[test]
fn every_hint_is_run_as_printed_through_each_name() {
    let every_fault = Cluster::all_faults(ClusterSpec::new(7).at(Timestamp::now()).wide(), 1);
    let example = Cluster::example();
    for (place, name) in NAMES.into_iter().enumerate() {
        let etcd = Etcd::of(if place == 0 { &every_fault } else { &example }).unwrap();
        let connection = format!("--etcd-endpoints {}", etcd.endpoint());
        let hints = follow(&misled(None), name, &connection, &etcd.endpoint());
        assert!(hints >= 12, "{name}: {hints}");
    }
}

#[test]
fn on_kubernetes_too() {
    let flavour = Flavour::Classic;
    let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
    Cluster::example()
        .kubernetes(flavour)
        .write_to_server(&server)
        .unwrap();

    let shell = misled(Some(("KUBECONFIG", "/nonexistent/kubeconfig")));
    // One name is enough here. All names were tested with etcd, and the name does not determine the datastore.
    let hints = follow(&shell, NAMES[0], &connection(&server), &server.url());
    assert!(hints >= 12, "{hints}");
}
