//! The stories of `docs/history.md` on a real etcd: `calipam history`, and what a restore loses.

use std::fs;
use std::path::Path;

use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdVersion};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::diff::addresses;
use super::program::{Run, command_in, items, root};

const CIDR: &str = "10.244.99.0/26";
const KEY: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.99.0-26";
pub(super) const ADDRESS: &str = "10.244.99.7";

/// Returns the kinds of the events, in order.
pub(super) fn events(document: &Value) -> Vec<&str> {
    document["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["what"].as_str().unwrap())
        .collect()
}

/// Asserts that `docs/history.md` contains a command of the stories.
pub(super) fn is_told(line: &str) {
    let document = fs::read_to_string(root().join("docs/history.md")).unwrap();
    assert!(
        document.lines().any(|told| told == line),
        "docs/history.md does not tell: {line}"
    );
}

/// An etcd with the example cluster and another block, and a home folder for journals.
pub(super) struct Site {
    pub etcd: Etcd,
    home: tempfile::TempDir,
    block: Block,
}

impl Site {
    pub(super) fn begin(etcd: Etcd) -> Self {
        Cluster::example().write_to_etcd(&etcd.endpoint()).unwrap();
        let now = Timestamp::now() - SignedDuration::from_hours(2);
        let block = Block::new(
            CIDR.parse().unwrap(),
            Some(BlockOwner::Host("node-1".into())),
            now,
        )
        .unwrap();
        let site = Self {
            etcd,
            home: tempfile::tempdir().unwrap(),
            block,
        };
        site.put();
        site
    }

    /// Stores the block, and returns the revision.
    fn put(&self) -> i64 {
        self.etcd
            .put(KEY, serde_json::to_vec(&self.block).unwrap())
            .unwrap()
    }

    pub(super) fn assign(&mut self, name: &str) -> i64 {
        // The times differ, so that later events are not within the same second.
        let minutes = if name == "web-0" { 30 } else { 20 };
        let at = (Timestamp::now() - SignedDuration::from_mins(minutes))
            .strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
            .to_string();
        let owner = [
            ("namespace", "shop"),
            ("node", "node-1"),
            ("pod", name),
            ("timestamp", at.as_str()),
        ];
        let handle = format!("k8s-pod-network.{name}");
        let record = Attribute::new(Some(handle.as_str()), owner);
        self.block.update(|update| update.assign(7, &record)).unwrap();
        self.put()
    }

    pub(super) fn release(&mut self) -> i64 {
        self.block.update(|update| update.release(&[7]));
        self.put()
    }

    /// Assigns another address, by its ordinal in the block.
    pub(super) fn assign_at(&mut self, place: u32) -> i64 {
        let record = Attribute::new(Some(format!("other.{place}").as_str()), [("pod", "other")]);
        self.block.update(|update| update.assign(place, &record)).unwrap();
        self.put()
    }

    /// Returns the key and the value of the block.
    pub(super) fn block(&self) -> (Vec<u8>, Vec<u8>) {
        (KEY.into(), serde_json::to_vec(&self.block).unwrap())
    }

    /// Stores another key.
    pub(super) fn put_other(&self) {
        self.etcd.put("/calico/ipam/v2/handle/other", "{}").unwrap();
    }

    /// Stores the endpoint of a pod, and returns its key.
    fn put_endpoint(&self, pod: &str, address: &str) -> String {
        let name = format!("node--1-k8s-{}-eth0", pod.replace('-', "--"));
        let key = format!("/calico/resources/v3/projectcalico.org/workloadendpoints/shop/{name}");
        let value = serde_json::json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"orchestrator": "k8s", "node": "node-1", "pod": pod, "endpoint": "eth0",
                "ipNetworks": [format!("{address}/32")]},
        });
        self.etcd.put(&key, value.to_string()).unwrap();
        key
    }

    pub(super) fn compact(&self, revision: i64) {
        self.etcd.compact(revision).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::of(command_in(self.home.path(), arguments).args(["--etcd-endpoints", &self.etcd.endpoint()]))
    }

    fn history(&self) -> Value {
        self.run(&["history", "--ip", ADDRESS, "-o", "json"]).json()
    }
}

/// Two pods have the same address, and the block records one of them. The history contains the start of both endpoints.
#[test]
fn every_user_of_the_address_is_shown() {
    let mut site = Site::begin(Etcd::start().unwrap());
    site.assign("web-0");
    let key = site.put_endpoint("web-0", ADDRESS);
    site.etcd.delete(&key).unwrap();
    let told = site.history();
    assert_eq!(
        events(&told),
        ["block-claimed", "assigned", "endpoint-created", "endpoint-gone"],
        "{told}"
    );
    site.compact(site.put());

    for (pod, address) in [
        ("web-0", ADDRESS),
        ("other-0", ADDRESS),
        ("third-0", "10.244.99.8"),
    ] {
        site.put_endpoint(pod, address);
    }

    let users = |told: &Value| {
        let events = told["events"].as_array().unwrap().iter();
        let of_endpoints = events.filter(|event| event["what"] == "endpoint-created");
        of_endpoints
            .map(|event| event["subject"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        users(&site.history()),
        ["shop/node--1-k8s-web--0-eth0", "shop/node--1-k8s-other--0-eth0"]
    );

    let whole = site.run(&["show", ADDRESS, "-o", "json"]).json();
    let shown = site
        .run(&["show", "--ip", ADDRESS, "--quick", "-o", "json"])
        .json();
    assert_eq!(
        (&whole["partial"], &whole["owners"]),
        (&false.into(), &shown["owners"]),
        "{whole}"
    );
    assert_eq!(shown["owners"].as_array().unwrap().len(), 2, "{shown}");
    assert_eq!(shown["findings"][0]["code"], "duplicate-address", "{shown}");
    let expected = (&true.into(), &["blocks", "nodes", "endpoints"].as_slice().into());
    assert_eq!((&shown["partial"], &shown["partlyRead"]), expected, "{shown}");
    let text = site.run(&["show", "--quick", "10.244.99.9"]).stdout;
    let after_heading = text
        .lines()
        .skip_while(|line| !line.starts_with("10.244.99.9"))
        .nth(1)
        .unwrap();
    assert!(
        after_heading.starts_with("Partial    not all blocks, nodes, endpoints were read"),
        "{text}"
    );
    assert!(
        text.contains("\nFinding    not checked") && !text.contains("Finding    none"),
        "{text}"
    );
}

#[test]
fn history_names_the_owners_of_an_address() {
    is_told("calipam history --ip 10.244.99.7");
    let mut site = Site::begin(Etcd::start().unwrap());
    site.assign("web-0");
    site.release();
    let reused = site.assign("api-0");

    let told = site.history();
    assert_eq!(events(&told), ["block-claimed", "assigned", "released", "reused"]);
    assert_eq!(
        (&told["kind"], &told["oldestRevision"]),
        (&"History".into(), &"1".into())
    );
    let [assigned, released, again] = [1, 2, 3].map(|place| &told["events"][place]);
    assert_eq!(assigned["after"]["allocatedTo"], "shop/web-0");
    assert!(
        assigned["time"]["at"].is_string() && released["time"]["at"].is_null(),
        "{released}"
    );
    assert!(
        released["time"]["after"].is_string() && released["time"]["before"].is_string(),
        "{released}"
    );
    let expected = (&"shop/api-0".into(), &"previously pod shop/web-0".into());
    assert_eq!((&again["after"]["allocatedTo"], &again["detail"]), expected);
    assert_eq!(again["revision"], reused.to_string());

    let text = site
        .run(&["history", "--ip", ADDRESS])
        .prints("etcd has everything from the beginning");
    let is_release = |line: &str| line.contains("released") && line.contains("between ");
    assert!(text.stdout.lines().any(is_release), "{text:?}");
    // The history by handle, block and node.
    let handle = site
        .run(&["history", "--handle", "k8s-pod-network.web-0", "-o", "json"])
        .json();
    assert_eq!(
        events(&handle),
        [""; 0],
        "no object of that name was ever stored: its blocks are not known"
    );
    let block = site.run(&["history", "--block", CIDR, "-o", "json"]).json();
    assert_eq!(
        events(&block),
        ["block-claimed", "assigned", "released", "reused"]
    );
    for object in [ADDRESS, CIDR] {
        let short = site.run(&["history", object, "-o", "json"]).json();
        assert_eq!(short["events"], block["events"], "{object}");
    }
    // The block records a pod that has no endpoint.
    let pod = site.run(&["history", "shop/api-0", "-o", "json"]).json();
    let expected = (vec!["assigned"], &"pod".into(), &"shop/api-0".into());
    assert_eq!((events(&pod), &pod["about"], &pod["name"]), expected);
    assert_eq!(
        site.run(&["history", "--pod", "shop/api-0", "-o", "json"]).json()["events"],
        pod["events"]
    );
    site.run(&["history", "api-0"])
        .failed(1, "say what it was: `calipam history --node api-0 ");
    let nothing = site.run(&["history", "--ip", "192.0.2.1"]).exits(1);
    nothing
        .prints("Nothing is known about ip 192.0.2.1")
        .says("no revision of this etcd names ip 192.0.2.1");
    for nothing in ["--handle", "--node"] {
        site.run(&["history", nothing, ""]).exits(2);
    }

    // calipam puts the address into its cooldown, as its journal shows.
    is_told("calipam release --ip 10.244.99.7");
    site.run(&[
        "release", "--ip", ADDRESS, "--yes", "--grace", "0", "--settle", "0",
    ])
    .succeeded();
    let told = site.history();
    let by = &told["events"][4];
    assert_eq!(
        (&by["what"], &by["by"]["command"]),
        (&"cooling".into(), &"release --ip".into()),
        "{told}"
    );
    let revision: i64 = by["revision"].as_str().unwrap().parse().unwrap();

    // The details of the address have the last three events.
    let shown = site.run(&["show", "--ip", ADDRESS, "-o", "json"]).json();
    let last: Vec<&Value> = items(&shown["lastEvents"])
        .iter()
        .map(|event| &event["what"])
        .collect();
    assert_eq!(last, ["released", "reused", "cooling"], "{shown}");
    let text = site.run(&["show", "--ip", ADDRESS]).stdout;
    let is_event = |line: &str| line.starts_with("Event      ") && line.contains(" (revision ");
    assert_eq!(text.lines().filter(|line| is_event(line)).count(), 3, "{text}");

    // Earlier revisions are compacted, and the server restarts.
    site.compact(reused);
    site.etcd.restart().unwrap();
    let told = site.history();
    assert_eq!(events(&told), ["known", "cooling"], "{told}");
    let shown = site.run(&["show", "--ip", ADDRESS, "-o", "json"]).json();
    let last = shown["lastEvents"].as_array().unwrap();
    assert_eq!((last.len(), &last[0]["what"]), (1, &"cooling".into()), "{shown}");
    assert_eq!(last[0]["before"]["allocatedTo"], "shop/api-0");
    assert_eq!(told["events"][0]["after"]["allocatedTo"], "shop/api-0");
    assert_eq!(told["oldestRevision"], reused.to_string());
    site.run(&["history", "--ip", ADDRESS])
        .prints(&format!("everything before {reused} is compacted"));

    // After a complete compaction, only the journal has events.
    site.put();
    site.compact(site.put());
    assert!(revision > reused);
    let told = site.history();
    let last: Vec<&Value> = items(&told["events"])
        .iter()
        .filter(|e| e["origin"] == "journal")
        .collect();
    assert_eq!((last.len(), &last[0]["what"]), (1, &"cooling".into()), "{told}");
    assert_eq!(last[0]["revision"], revision.to_string());
}

/// Compares states before a restore, after it, and since yesterday.
#[test]
fn diff_shows_the_losses_of_a_restore() {
    is_told("calipam diff snapshot.db etcd -o wide");
    is_told("calipam diff --archive /var/lib/calipam/archive --at 2026-11-20T03:12Z etcd");
    let folder = tempfile::tempdir().unwrap();
    let [backup, archive] = ["snapshot.db", "archive"].map(|name| folder.path().join(name));
    let (backup, archive) = (backup.to_str().unwrap(), archive.to_str().unwrap());
    let mut site = Site::begin(Etcd::start().unwrap());
    // At the time of the backup, the owner has this address. It later releases the address, and gets it again.
    let again = Attribute::new(
        Some("k8s-pod-network.again"),
        [("namespace", "shop"), ("pod", "again-0")],
    );
    site.block.update(|update| update.assign(9, &again)).unwrap();
    site.put();
    site.etcd.save_snapshot(Path::new(backup)).unwrap();
    let at_backup = site.block.clone();
    site.run(&["export", "--archive", archive]).succeeded();
    let yesterday = Timestamp::now().to_string();
    site.block.update(|update| update.release(&[9]));
    site.block.update(|update| update.assign(9, &again)).unwrap();
    site.assign("web-0");

    let warning = "hint: after a restore of OLD, 1 address that is allocated now would be free again";
    let before = site
        .run(&["diff", backup, "etcd", "-o", "wide"])
        .failed(1, warning);
    let is_assigned = |line: &str| line.starts_with("address  assigned    ") && line.contains(ADDRESS);
    assert!(before.stdout.lines().any(is_assigned), "{before:?}");
    let changed = |site: &Site, at: &str| {
        let diff = [
            "diff",
            "--archive",
            archive,
            "--at",
            at,
            "etcd",
            "-o",
            "json",
            "--settle",
            "0",
        ];
        addresses(&site.run(&diff).json())
    };
    let renewed = || "renewed 10.244.99.9".to_owned();
    assert_eq!(
        changed(&site, &yesterday),
        [format!("assigned {ADDRESS}"), renewed()]
    );

    // The restored etcd, which has no data from after the backup.
    site.run(&["export", "--archive", archive]).succeeded();
    let now = Timestamp::now().to_string();
    let restored = Site {
        etcd: Etcd::start().unwrap(),
        home: tempfile::tempdir().unwrap(),
        block: at_backup,
    };
    Cluster::example()
        .write_to_etcd(&restored.etcd.endpoint())
        .unwrap();
    restored.put();
    assert_eq!(
        changed(&restored, &now),
        [format!("released {ADDRESS}"), renewed()]
    );
    // The archive continues, and shows that its data went back in time.
    restored.run(&["export", "--archive", archive]).succeeded();
    let told = restored.run(&["history", "--archive", archive, "--ip", ADDRESS, "-o", "json"]);
    assert_eq!(
        events(&told.says("has older data than the one from ").json()),
        ["known", "assigned", "released"]
    );
}

/// Expects the same events from etcd 3.4, whose watch reports its progress differently.
#[test]
fn an_older_etcd_gives_the_same_history() {
    let mut site = Site::begin(EtcdOptions::new().version(EtcdVersion::V3_4).start().unwrap());
    let first = site.assign("web-0");
    site.release();
    site.assign("api-0");
    assert_eq!(
        events(&site.history()),
        ["block-claimed", "assigned", "released", "reused"]
    );
    site.compact(first);
    assert_eq!(events(&site.history()), ["known", "released", "reused"]);
}
