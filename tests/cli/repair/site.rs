//! A cluster in its own etcd, runs of the program that repair it, and the names that all these tests use.

use std::collections::BTreeMap;
pub(super) use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
pub(super) use std::path::{Path, PathBuf};
pub(super) use std::process::{Child, Command, Stdio};
pub(super) use std::thread;
pub(super) use std::time::{Duration, Instant};

pub(super) use calipam_model::IpNet;
pub(super) use calipam_testkit::cluster::wire::{Attribute, Block, key};
pub(super) use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Pod};
pub(super) use calipam_testkit::kube::Flavour;
pub(super) use calipam_testkit::servers::{Entries, Etcd, Tear, Tearing};
pub(super) use jiff::Timestamp;
pub(super) use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::program::started;
pub(super) use crate::cli::program::{AT_ONCE, Run, Runs, command_in};
use crate::cli::pty::Shown;
pub(super) use crate::cli::pty::{Terminal, interrupt};

/// The key of the cluster information, with the lock.
pub(super) const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
/// The key of the allocator's settings.
pub(super) const CONFIG: &str = "/calico/ipam/v2/config";

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

/// Returns the subject of the first fault with this code.
pub(super) fn subject_of(cluster: &Cluster, code: &str) -> String {
    cluster
        .truth()
        .iter()
        .find(|fault| fault.code == code)
        .unwrap()
        .subject
}

impl Site {
    /// Stores a cluster in an etcd.
    pub(super) fn of(cluster: &Cluster) -> Self {
        Self::with(cluster, Etcd::start().unwrap())
    }

    /// Stores a cluster in this etcd.
    pub(super) fn with(cluster: &Cluster, etcd: Etcd) -> Self {
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        Self {
            etcd,
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// Stores a healthy cluster.
    pub(super) fn healthy() -> Self {
        Self::of(&healthy())
    }

    /// Stores a healthy cluster without settings of the allocator.
    pub(super) fn unconfigured() -> Self {
        let site = Self::healthy();
        site.etcd.delete(CONFIG).unwrap();
        site
    }

    /// Stores a healthy cluster with a leaked pod.
    pub(super) fn leaky() -> (Self, Pod) {
        let mut cluster = healthy();
        let pod = leak(&mut cluster, 0);
        (Self::of(&cluster), pod)
    }

    /// Prepares a run of the program that connects through a proxy.
    pub(super) fn command_through(&self, torn: &Tearing, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("ETCD_ENDPOINTS", torn.url());
        command
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

    /// Undoes a run, and asserts that all values are those of `before`.
    #[track_caller]
    pub(super) fn undo_to(&self, run: &Run, before: &Entries) -> Run {
        let undone = self.undo(&journal_of(run)).succeeded();
        assert_eq!(values(&self.dump()), values(before));
        undone
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

    /// Returns the decoded value of a key, or null.
    pub(super) fn json(&self, key: &str) -> Value {
        self.value(key)
            .map_or(Value::Null, |raw| serde_json::from_slice(&raw).unwrap())
    }

    /// Returns the IP pools by name.
    pub(super) fn pools(&self) -> BTreeMap<String, Value> {
        let pool = |(key, (raw, _)): (String, (Vec<u8>, i64))| {
            Some((
                key.strip_prefix(&key::pool(""))?.to_owned(),
                serde_json::from_slice(&raw).unwrap(),
            ))
        };
        self.dump().into_iter().filter_map(pool).collect()
    }

    /// Stores an IP pool.
    pub(super) fn put_pool(&self, name: &str, spec: &Value) {
        let pool = json!({"kind": "IPPool", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
        self.put(&key::pool(name), pool.to_string());
    }

    /// Replaces the GUID of the cluster.
    pub(super) fn become_another_cluster(&self) {
        let information = String::from_utf8(self.value(INFORMATION).unwrap()).unwrap();
        self.put(INFORMATION, information.replace("0f0e1d2c", "ffffffff"));
    }

    /// Returns every past value of a key, each with its revision.
    pub(super) fn history(&self, key: &str) -> Vec<(i64, Vec<u8>)> {
        let (key, last) = (key.to_owned(), self.dump()[key].1);
        let options = etcd_client::WatchOptions::new().with_start_revision(1);
        let history = self.etcd.with_client(async |mut client| {
            let mut stream = client.watch(key, Some(options)).await?;
            let mut values = Vec::new();
            while values.last().is_none_or(|(revision, _)| *revision < last) {
                let Some(response) = stream.message().await? else {
                    break;
                };
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

    /// Changes the block of each address of a pod.
    pub(super) fn change_blocks(&self, pod: &Pod, change: fn(&mut Block, IpAddr)) {
        for (address, block) in &pod.addresses {
            self.change_block(*block, |block| change(block, *address));
        }
    }
}

/// Assigns an address again, for the same handle.
pub(super) fn reassign(block: &mut Block, address: IpAddr) {
    block
        .sequences
        .insert(block.ordinal(address).to_string(), block.sequence);
    block.sequence += 1;
}

/// Records an address for another handle.
pub(super) fn hand_over(block: &mut Block, address: IpAddr) {
    block.record_mut(address).handle = Some("k8s-pod-network.somebody-else".into());
}

impl Runs for Site {
    fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(self.home.path(), arguments);
        command.env("ETCD_ENDPOINTS", self.etcd.endpoint());
        command
    }
}

/// Returns the journal that the last hint of a run names.
pub(super) fn journal_of(run: &Run) -> String {
    let (_, rest) = run
        .stderr
        .rsplit_once("`calipam undo ")
        .unwrap_or_else(|| panic!("no journal: {run:?}"));
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

/// Returns the subjects of the lines that begin with `first`.
pub(super) fn subjects(lines: &BTreeSet<String>, first: &str) -> BTreeSet<String> {
    lines
        .iter()
        .filter_map(|line| line.strip_prefix(first))
        .map(str::to_owned)
        .collect()
}

fn lines(plan: &Value, list: &str, first: &str) -> BTreeSet<String> {
    let line = |value: &Value| {
        format!(
            "{} {}",
            value[first].as_str().unwrap(),
            value["subject"]["name"].as_str().unwrap()
        )
    };
    plan[list].as_array().unwrap().iter().map(line).collect()
}

/// Lists the addresses of pods as `word address`.
pub(super) fn of_pods<'p>(word: &str, pods: impl IntoIterator<Item = &'p Pod>) -> BTreeSet<String> {
    let addresses = pods.into_iter().flat_map(|pod| &pod.addresses);
    addresses
        .map(|(address, _)| format!("{word} {address}"))
        .collect()
}

/// Collects the lines that a test expects.
pub(super) fn set<T: ToString>(lines: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    lines.into_iter().map(|line| line.to_string()).collect()
}

/// Returns the values, without the sequence numbers of blocks, which always increase.
pub(super) fn values(entries: &Entries) -> BTreeMap<&str, Value> {
    let value = |raw: &[u8]| match serde_json::from_slice::<Value>(raw) {
        Ok(mut value) => {
            if let Some(fields) = value
                .as_object_mut()
                .filter(|fields| fields.contains_key("allocations"))
            {
                fields.remove("sequenceNumber");
                fields.remove("sequenceNumberForAllocation");
            }
            value
        }
        Err(_) => Value::String(String::from_utf8_lossy(raw).into_owned()),
    };
    entries
        .iter()
        .map(|(key, (raw, _))| (key.as_str(), value(raw)))
        .collect()
}

/// Returns the keys whose values or revisions differ.
pub(super) fn differing(before: &Entries, after: &Entries) -> BTreeSet<String> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

/// Returns the addresses that blocks record for an owner, except those of some pods, with their handles.
pub(super) fn recorded_without(entries: &Entries, pods: &[Pod]) -> BTreeMap<IpAddr, Option<String>> {
    let mut records = recorded(entries);
    for (address, _) in pods.iter().flat_map(|pod| &pod.addresses) {
        assert!(records.remove(address).is_some(), "{address} was not recorded");
    }
    records
}

/// Returns the addresses that blocks record for an owner, with their handles.
pub(super) fn recorded(entries: &Entries) -> BTreeMap<IpAddr, Option<String>> {
    let blocks = entries.iter().filter(|(key, _)| key.contains("/assignment/"));
    let blocks: Vec<Block> = blocks.filter_map(|(_, (raw, _))| Block::read(raw)).collect();
    let records = blocks.iter().flat_map(Block::records);
    let held = records.filter(|(_, record)| record.released_at.is_none());
    held.map(|(address, record)| (address, record.handle.clone()))
        .collect()
}

/// A number of steps that is large enough to stop a run, or its etcd, in the middle.
pub(super) const MANY: usize = 4_000;

/// A cluster whose repair takes many steps.
pub(super) fn many_orphans() -> Site {
    Site::of(&healthy().with(Fault::OrphanHandleEmpty, MANY / 2))
}

/// The number of handles.
pub(super) fn handles(entries: &Entries) -> usize {
    entries
        .keys()
        .filter(|key| key.starts_with(&key::handle("")))
        .count()
}

/// Starts a release of many orphan handles, and makes it hang in the middle: some handles are deleted, and etcd no
/// longer answers.
pub(super) fn in_the_middle(site: &Site, more: &[&str]) -> Child {
    let arguments = [&["release", "--orphan-handles", "--yes"], &AT_ONCE[..], more].concat();
    let all = handles(&site.dump());
    let child = started(&mut site.command(&arguments));
    wait_for_fewer(&site.etcd, &key::handle(""), all);
    site.etcd.pause().unwrap();
    child
}

/// Waits until an etcd has fewer keys with this prefix than `all`.
pub(super) fn wait_for_fewer(etcd: &Etcd, prefix: &str, all: usize) {
    let since = Instant::now();
    etcd.with_client(async |mut client| {
        let count = etcd_client::GetOptions::new().with_prefix().with_count_only();
        while client.get(prefix, Some(count.clone())).await?.count() == all as i64 {
            assert!(since.elapsed() < Duration::from_secs(60), "it does not begin");
        }
        Ok(())
    })
    .unwrap();
}
