//! Plans for clusters in which one thing is very large. A search that reads a list for each of its items shows as a
//! factor of four when the size doubles.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::measured::Measured;
use crate::process::run;

pub(super) const TITLES: &str = "size | <what is large | <command | time | of twice the size | factor";

/// The number of runs of each command, of which the fastest counts.
const RUNS: usize = 3;

/// The commands, which only plan.
const COMMANDS: [&str; 4] = [
    "check --settle 0 --grace 0 --fail-on never",
    "release --leaked --orphan-handles --dry-run --settle 0 --grace 0",
    "release --node gone --dry-run --settle 0 --grace 0",
    "rebuild --endpoints-only --settle 0 --grace 0",
];

/// Objects of a kind of which there are many, and the rest of their cluster.
type Objects = fn(u32, &mut Export);

const LARGE: [(&str, Objects); 5] = [
    ("the blocks of a handle", one_handle),
    ("the orphan handles of a block", one_block),
    ("the blocks of a node", one_node),
    ("the blocks of a pool", one_pool),
    ("the findings of a rule", one_rule),
];

/// Sizes are numbers of blocks, handles or findings.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let size = u32::try_from(bench.number()?)?;
    let folder = tempfile::tempdir()?;
    for (what, objects) in LARGE {
        let path = |times: u32| folder.path().join(format!("{times}.jsonl"));
        for times in [1, 2] {
            let mut export = Export::new();
            objects(size * times, &mut export);
            fs::write(path(times), export.ended())?;
        }
        for command in COMMANDS {
            let [once, twice] = [1, 2].map(|times| fastest(bench.program, command, &path(times)));
            let once = once?.seconds;
            let twice = twice?.seconds;
            let short = command.split(" --settle").next().unwrap_or_default();
            bench.row(
                0,
                &format!(
                    "{what} | `{short}` | {once:.2} s | {twice:.2} s | {:.1}",
                    twice / once
                ),
            );
        }
    }
    Ok(())
}

fn fastest(program: &str, command: &str, cluster: &Path) -> Result<Measured> {
    let once = || {
        let mut calipam = Command::new(program);
        calipam.args(command.split(' ')).arg("--datastore").arg(cluster);
        calipam.stdout(Stdio::null()).stderr(Stdio::null());
        let (measured, ended, _) = run(&mut calipam, "", None)?;
        ensure!(
            matches!(ended.code(), Some(0 | 1)),
            "{calipam:?} ended with {ended}"
        );
        Ok(measured)
    };
    Measured::best((0..RUNS).map(|_| once()).collect::<Result<_>>()?)
}

/// The text of an export.
struct Export {
    text: String,
    entries: u32,
}

impl Export {
    fn new() -> Self {
        let sources = [
            "affinities",
            "blocks",
            "clusterInformation",
            "endpoints",
            "handles",
            "ipamConfig",
            "ipamConfiguration",
            "kubeControllersConfiguration",
            "nodes",
            "pools",
            "reservations",
        ];
        let coverage: serde_json::Map<String, Value> = sources
            .map(|source| (source.to_owned(), "read".into()))
            .into_iter()
            .collect();
        let head = json!({"format": "calipam-export", "version": 1, "datastore": "etcd", "location": "none",
            "guid": "growth", "revision": "9", "takenAt": "2026-06-01T08:00:00Z", "coverage": coverage});
        let mut export = Self {
            text: format!("{head}\n"),
            entries: 0,
        };
        let resource =
            |kind: &str, name: &str| format!("/calico/resources/v3/projectcalico.org/{kind}/{name}");
        let pool = json!({"metadata": {"name": "pool"},
            "spec": {"cidr": "10.0.0.0/8", "blockSize": 30, "nodeSelector": "all()"}});
        export.put(&resource("ippools", "pool"), pool);
        let information = json!({"metadata": {"name": "default"},
            "spec": {"clusterGUID": "growth", "datastoreReady": true}});
        export.put(&resource("clusterinformations", "default"), information);
        export.node("node");
        export
    }

    fn put(&mut self, key: &str, value: Value) {
        let line = json!({"key": key, "revision": "7", "value": value});
        writeln!(self.text, "{line}").expect("a text takes every line");
        self.entries += 1;
    }

    fn ended(self) -> String {
        let Self { text, entries } = self;
        format!("{text}{}\n", json!({"entries": entries}))
    }

    fn node(&mut self, name: &str) {
        let key = format!("/calico/resources/v3/projectcalico.org/nodes/{name}");
        self.put(&key, json!({"metadata": {"name": name}, "spec": {}}));
    }

    /// A block of a node with its affinity. Its first address has this handle.
    fn block(&mut self, number: u32, node: &str, handle: Option<&str>) {
        let cidr = block(number);
        let name = block(number).replace('/', "-");
        let owner = json!({"namespace": "default", "pod": "gone", "node": node});
        let record = |id: &str| json!({"handle_id": id, "secondary": owner});
        let (allocations, free) = match handle {
            Some(_) => (json!([0, null, null, null]), json!([1, 2, 3])),
            None => (json!([null, null, null, null]), json!([0, 1, 2, 3])),
        };
        let value = json!({"cidr": cidr, "affinity": format!("host:{node}"), "allocations": allocations,
            "unallocated": free, "attributes": handle.map(record).into_iter().collect::<Vec<_>>(),
            "sequenceNumber": 5, "sequenceNumberForAllocation": {"0": 4}, "deleted": false});
        self.put(&format!("/calico/ipam/v2/assignment/ipv4/block/{name}"), value);
        self.affinity(number, node);
    }

    fn affinity(&mut self, number: u32, node: &str) {
        let name = block(number).replace('/', "-");
        let value = json!({"state": "confirmed", "deleted": false});
        self.put(&format!("/calico/ipam/v2/host/{node}/ipv4/block/{name}"), value);
    }

    fn handle(&mut self, id: &str, blocks: impl IntoIterator<Item = u32>) {
        let counts: serde_json::Map<String, Value> = blocks
            .into_iter()
            .map(|number| (block(number), 1.into()))
            .collect();
        let value = json!({"handleID": id, "block": counts, "deleted": false});
        self.put(&format!("/calico/ipam/v2/handle/{id}"), value);
    }
}

/// The CIDR of a block of four addresses.
fn block(number: u32) -> String {
    let address = std::net::Ipv4Addr::from(0x0A00_0000 + 4 * number);
    format!("{address}/30")
}

fn one_handle(size: u32, export: &mut Export) {
    (0..size).for_each(|number| export.block(number, "gone", Some("net.one")));
    export.handle("net.one", 0..size);
}

fn one_block(size: u32, export: &mut Export) {
    export.block(0, "node", None);
    (0..size).for_each(|number| export.handle(&format!("net.{number}"), [0]));
}

fn one_node(size: u32, export: &mut Export) {
    for number in 0..size {
        let id = format!("net.{number}");
        export.block(number, "gone", Some(&id));
        export.handle(&id, [number]);
    }
}

fn one_pool(size: u32, export: &mut Export) {
    for number in 0..size {
        let node = format!("node-{number}");
        export.node(&node);
        export.block(number, &node, None);
    }
}

/// Two affinities for each block, one of which is stale.
fn one_rule(size: u32, export: &mut Export) {
    export.node("other");
    for number in 0..size {
        export.block(number, "node", None);
        export.affinity(number, "other");
    }
}
