//! A cluster in its own etcd, and runs of the program that repair it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use calipam_model::IpNet;
use calipam_testkit::cluster::wire::{Block, key};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Pod};
pub(super) use calipam_testkit::servers::Entries;
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::program::{self, Run, command};
use crate::cli::pty::{Shown, Terminal};

/// The options for a single check, without waiting for a second one.
pub(super) const AT_ONCE: [&str; 4] = ["--grace", "0", "--settle", "0"];

/// The cluster to repair.
pub(super) struct Site {
    pub etcd: Etcd,
    pub home: TempDir,
}

/// Creates a healthy cluster at the current time: three nodes with four pods each.
pub(super) fn healthy() -> Cluster {
    Cluster::plain(ClusterSpec::new(31).at(Timestamp::now()), 3, 4)
}

/// Adds a leaked pod, whose addresses have no endpoint.
pub(super) fn leak(cluster: &mut Cluster, node: usize) -> Pod {
    let pod = cluster.add_pod_on(node);
    cluster.remove(&pod.endpoint);
    pod
}

impl Site {
    /// Stores a cluster in an etcd.
    pub(super) fn of(cluster: &Cluster) -> Self {
        Self::with(cluster, Etcd::start().unwrap())
    }

    /// Stores a cluster in this etcd.
    pub(super) fn with(cluster: &Cluster, etcd: Etcd) -> Self {
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        Self { etcd, home: tempfile::tempdir().unwrap() }
    }

    /// Stores a healthy cluster with a leaked pod.
    pub(super) fn leaky() -> (Self, Pod) {
        let mut cluster = healthy();
        let pod = leak(&mut cluster, 0);
        (Self::of(&cluster), pod)
    }

    /// Prepares a run of the program on the cluster. Journals are written to a folder of the test.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(crate::cli::PROGRAM);
        command.args(arguments).env("ETCD_ENDPOINTS", self.etcd.endpoint());
        command.env("XDG_STATE_HOME", self.home.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program.
    pub(super) fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments))
    }

    /// Runs the program on a terminal, and types an answer at the question.
    pub(super) fn asked(&self, arguments: &[&str], answer: &str) -> Shown {
        self.asked_while("[y/N] ", arguments, answer, || ())
    }

    /// Runs the program on a terminal. When it prints `prompt`, calls `meanwhile` and then types an answer.
    pub(super) fn asked_while(
        &self,
        prompt: &str,
        arguments: &[&str],
        answer: &str,
        meanwhile: impl FnOnce(),
    ) -> Shown {
        let mut command = self.command(arguments);
        Terminal::new(250).converse(command.env("TERM", "dumb"), prompt, |terminal, _| {
            meanwhile();
            terminal.write_all(answer.as_bytes()).unwrap();
        })
    }

    /// Runs `release` after a single check, with `--yes`.
    pub(super) fn release(&self, targets: &[&str]) -> Run {
        self.run(&[&["release", "--yes"], &AT_ONCE[..], targets].concat())
    }

    /// Undoes a run with `--yes`.
    pub(super) fn undo(&self, journal: &str) -> Run {
        self.run(&["undo", journal, "--yes"])
    }

    /// Checks the cluster, and lists findings as `severity code subject`.
    pub(super) fn findings(&self, arguments: &[&str]) -> BTreeSet<String> {
        findings(&self.run(&[&["check", "-o", "json"], &AT_ONCE[..], arguments].concat()))
    }

    /// Returns all keys and values of etcd.
    pub(super) fn dump(&self) -> Entries {
        self.etcd.entries().unwrap()
    }

    /// Stores a value, as another client would.
    pub(super) fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.etcd.put(key, value).unwrap();
    }

    /// Deletes a key, as another client would.
    pub(super) fn delete(&self, key: &str) {
        assert_eq!(self.etcd.delete(key).unwrap(), 1);
    }

    /// Returns the value of a key, if there is one.
    pub(super) fn value(&self, key: &str) -> Option<Vec<u8>> {
        Some(self.dump().remove(key)?.0)
    }

    /// Returns every past value of a key, each with its revision.
    pub(super) fn history(&self, key: &str) -> Vec<(i64, Vec<u8>)> {
        let (key, last) = (key.to_owned(), self.dump()[key].1);
        let options = etcd_client::WatchOptions::new().with_start_revision(1);
        let history = self.etcd.with_client(async |mut client| {
            let mut stream = client.watch(key, Some(options)).await?;
            let mut values = Vec::new();
            while values.last().is_none_or(|(revision, _)| *revision < last) {
                let Some(response) = stream.message().await? else { break };
                let events = response.events().iter().filter_map(|event| event.kv());
                values.extend(events.map(|kv| (kv.mod_revision(), kv.value().to_vec())));
            }
            Ok(values)
        });
        history.unwrap()
    }

    /// Changes a block, as another client would.
    pub(super) fn change_block(&self, block: IpNet, change: impl FnOnce(&mut Block)) {
        let key = key::block(block);
        let mut stored = Block::read(&self.value(&key).unwrap()).unwrap();
        change(&mut stored);
        self.put(&key, stored.value());
    }

    /// Lists the journals in the default folder.
    pub(super) fn journals(&self) -> Vec<PathBuf> {
        journals_in(self.home.path())
    }
}

/// Lists the findings of a check as `severity code subject`.
pub(super) fn findings(check: &Run) -> BTreeSet<String> {
    program::findings(&check.json(), &["severity", "code", "name"])
}

/// Lists the journals below a state folder, in their default subfolder.
pub(super) fn journals_in(state: &Path) -> Vec<PathBuf> {
    let Ok(folder) = std::fs::read_dir(state.join("calipam")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Returns the journal that the last hint of a run names.
pub(super) fn journal_of(run: &Run) -> String {
    let (_, rest) = run.stderr.rsplit_once("`calipam undo ").unwrap_or_else(|| panic!("no journal: {run:?}"));
    rest.split(['`', ' ']).next().unwrap().to_owned()
}

/// Lists the changes of a plan as `action subject`.
pub(super) fn changes(plan: &Value) -> BTreeSet<String> {
    lines(plan, "changes", "action")
}

/// Lists the skipped objects of a plan as `reason subject`.
pub(super) fn skips(plan: &Value) -> BTreeSet<String> {
    lines(plan, "skipped", "reason")
}

fn lines(plan: &Value, list: &str, first: &str) -> BTreeSet<String> {
    let line = |value: &Value| {
        format!("{} {}", value[first].as_str().unwrap(), value["subject"]["name"].as_str().unwrap())
    };
    plan[list].as_array().unwrap().iter().map(line).collect()
}

/// Collects the lines that a test expects.
pub(super) fn set<T: ToString>(lines: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    lines.into_iter().map(|line| line.to_string()).collect()
}

/// Returns the values, without the sequence numbers of blocks, which always increase.
pub(super) fn values(entries: &Entries) -> BTreeMap<&str, Value> {
    let value = |raw: &[u8]| match serde_json::from_slice::<Value>(raw) {
        Ok(mut value) => {
            if let Some(fields) = value.as_object_mut().filter(|fields| fields.contains_key("allocations")) {
                fields.remove("sequenceNumber");
                fields.remove("sequenceNumberForAllocation");
            }
            value
        }
        Err(_) => Value::String(String::from_utf8_lossy(raw).into_owned()),
    };
    entries.iter().map(|(key, (raw, _))| (key.as_str(), value(raw))).collect()
}

/// Returns the keys whose values or revisions differ.
pub(super) fn differing(before: &Entries, after: &Entries) -> BTreeSet<String> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
}

/// Returns the addresses that blocks record for an owner, with their handles.
pub(super) fn recorded(entries: &Entries) -> BTreeMap<IpAddr, Option<String>> {
    let blocks = entries.iter().filter(|(key, _)| key.contains("/assignment/"));
    let blocks: Vec<Block> = blocks.filter_map(|(_, (raw, _))| Block::read(raw)).collect();
    let records = blocks.iter().flat_map(Block::records);
    let held = records.filter(|(_, record)| record.released_at.is_none());
    held.map(|(address, record)| (address, record.handle.clone())).collect()
}
