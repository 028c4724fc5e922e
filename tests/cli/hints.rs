//! Hints can be pasted: each is understood and reaches the cluster of the call that printed it, by every name of the
//! program.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::{fs, thread};

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;
use tempfile::TempDir;

use super::program::{Run, calipam, command};

/// What people type before a command.
const NAMES: [&str; 4] = ["calipam", "ipam", "kubectl ipam", "kubectl calico ipam"];
/// A kubectl that knows nothing but plugins.
const KUBECTL: &str = "#!/bin/sh\nplugin=$1\nshift\nexec \"kubectl-$plugin\" \"$@\"\n";

/// A shell in which every name of the program is a command, and whose settings lead to another place.
struct Shell {
    folder: TempDir,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(calipam(&["install-links", folder.path().to_str().unwrap()]).code, 0);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_calipam"), at("calipam")).unwrap();
        fs::write(at("kubectl"), KUBECTL).unwrap();
        fs::set_permissions(at("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn command(&self, line: &str) -> Command {
        let mut shell = command("sh");
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        shell.args(["-c", line]).env("PATH", path).stdin(Stdio::null());
        shell.env("XDG_STATE_HOME", self.folder.path().join("state"));
        shell.env("ETCD_ENDPOINTS", "http://127.0.0.1:1").env("ETCD_USERNAME", "root");
        shell.env("ETCD_PASSWORD", "hunter2");
        shell
    }

    fn run(&self, line: &str) -> Run {
        Run::of(self.command(line).output().unwrap())
    }

    /// Runs lines, some at the same time: most of their time is waiting.
    fn run_all<'a>(&self, lines: &'a [String]) -> Vec<(&'a str, Run)> {
        let mut all = Vec::new();
        for together in lines.chunks(4) {
            all.extend(thread::scope(|scope| {
                let runs: Vec<_> = together
                    .iter()
                    .map(|line| (line.as_str(), scope.spawn(move || self.run(line))))
                    .collect();
                let ended = runs.into_iter().map(|(line, run)| (line, run.join().unwrap()));
                ended.collect::<Vec<_>>()
            }));
        }
        all
    }
}

/// The commands in backquotes of what a run printed. What a hint has in backquotes is a command, never an option alone.
fn commands(name: &str, run: &Run) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in run.stdout.lines().chain(run.stderr.lines()) {
        for quoted in line.split('`').skip(1).step_by(2) {
            assert!(!quoted.starts_with('-') || !line.starts_with("hint: "), "an option alone: {line}");
            if let Some(rest) = quoted.strip_prefix(name).filter(|rest| rest.starts_with(' ')) {
                found.insert(format!("{name}{rest}"));
            }
        }
        // What a hint says for one name must not be said for another.
        let others = NAMES.iter().filter(|other| **other != name && line.starts_with("hint: "));
        for other in others.copied().chain((name != "calipam").then_some("calipam")) {
            assert!(!line.contains(&format!("`{other} ")), "called as {name}: {line}");
        }
    }
    found
}

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

/// Runs every command by a name with `connection`, and every hint as it is printed. Each has to read `place`.
fn follow(shell: &Shell, name: &str, printing: &[&str], connection: &str, place: &str) -> usize {
    let lines: Vec<String> = printing.iter().map(|words| format!("{name} {words} {connection}")).collect();
    let mut hints = BTreeSet::new();
    for (line, run) in shell.run_all(&lines) {
        assert!(run.code <= 2 && !run.stderr.contains("Usage:"), "{line}: {run:?}");
        assert!(!run.transcript().contains("hunter2"), "{line}: {run:?}");
        hints.extend(commands(name, &run));
    }

    // What agrees to a write comes last: it changes what the others see.
    let (writing, reading): (Vec<_>, Vec<_>) = hints.iter().partition(|line| line.contains(" --yes"));
    let verbose: Vec<String> = reading.iter().chain(&writing).map(|line| format!("{line} -v")).collect();
    let (reading, writing) = verbose.split_at(reading.len());
    let mut followed = shell.run_all(reading);
    for line in writing {
        followed.push((line, shell.run(line)));
    }
    for (line, run) in &followed {
        assert!(run.code <= 2 && !run.stderr.contains("Usage:"), "{line}: {run:?}");
        let reads = !line.starts_with(&format!("{name} explain "));
        assert!(!reads || run.stderr.starts_with(&format!("reading {place}\n")), "{line}: {run:?}");
        assert!(run.code != 2 || run.stderr.contains("terminal"), "{line}: {run:?}");
        assert!(!run.transcript().contains("hunter2"), "{line}: {run:?}");
    }
    let wrote = followed.iter().filter(|(line, _)| line.contains(" --yes"));
    let undo = wrote.flat_map(|(_, run)| commands(name, run)).find(|line| line.contains(" undo "));
    let undone = shell.run(&format!("{} --yes -v", undo.expect("something was written")));
    assert!(undone.stderr.starts_with(&format!("reading {place}\n")), "{undone:?}");
    assert!(undone.code <= 1, "{undone:?}");
    hints.len()
}

#[test]
fn every_hint_is_run_as_printed_through_each_name() {
    let cluster = Cluster::all_faults(ClusterSpec::new(7).at(Timestamp::now()).wide(), 1);
    for (place, name) in NAMES.into_iter().enumerate() {
        let etcd = Etcd::start().unwrap();
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        // All of them by one name; by the others what a newcomer types.
        let printing = if place == 0 { &PRINTING[..] } else { &PRINTING[..4] };
        let connection = format!("--etcd-endpoints {}", etcd.endpoint());
        let hints = follow(&Shell::new(), name, printing, &connection, &etcd.endpoint());
        assert!(hints >= if place == 0 { 12 } else { 5 }, "{name}: {hints}");
    }
}
