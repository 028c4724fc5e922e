//! The stories of `docs/history.md`: `calipam history` and an archive of exports, on a real etcd and a real API server.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_testkit::cluster::Cluster;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{Etcd, EtcdOptions, EtcdVersion};
use etcd_client::{CompactionOptions, Error};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kube_cluster::{KubeCluster, Record, pod};
use super::program::{EXAMPLE, Run, calipam, command, on_example, root};

const CIDR: &str = "10.244.99.0/26";
const KEY: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.99.0-26";
const ADDRESS: &str = "10.244.99.7";

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {run:?}"))
}

/// What happened, in order.
fn events(document: &Value) -> Vec<&str> {
    document["events"].as_array().unwrap().iter().map(|event| event["what"].as_str().unwrap()).collect()
}

/// Every command of the stories stands in the document.
fn is_told(line: &str) {
    let document = fs::read_to_string(root().join("docs/history.md")).unwrap();
    assert!(document.lines().any(|told| told == line), "docs/history.md does not tell: {line}");
}

/// An etcd with the example cluster and a block of its own, and a home for journals.
struct Site {
    etcd: Etcd,
    home: tempfile::TempDir,
    block: Block,
}

impl Site {
    fn begin(etcd: Etcd) -> Self {
        Cluster::example().write_to_etcd(&etcd.endpoint()).unwrap();
        let now = Timestamp::now() - SignedDuration::from_hours(2);
        let block = Block::new(CIDR.parse().unwrap(), Some(BlockOwner::Host("node-1".into())), now).unwrap();
        let site = Self { etcd, home: tempfile::tempdir().unwrap(), block };
        site.put();
        site
    }

    /// Stores the block, and gives the revision of that.
    fn put(&self) -> i64 {
        let value = serde_json::to_vec(&self.block).unwrap();
        let put = self.etcd.with_client(async |mut client| {
            Ok::<_, Error>(client.put(KEY, value, None).await?.header().unwrap().revision())
        });
        put.unwrap()
    }

    fn assign(&mut self, name: &str) -> i64 {
        let at = (Timestamp::now() - SignedDuration::from_mins(30))
            .strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
            .to_string();
        let owner = [("namespace", "shop"), ("node", "node-1"), ("pod", name), ("timestamp", at.as_str())];
        let handle = format!("k8s-pod-network.{name}");
        let record = Attribute::new(Some(handle.as_str()), owner);
        self.block.update(|update| update.assign(7, &record)).unwrap();
        self.put()
    }

    fn release(&mut self) -> i64 {
        self.block.update(|update| update.release(&[7]));
        self.put()
    }

    fn compact(&self, revision: i64) {
        self.etcd
            .with_client(async |mut client| {
                client.compact(revision, Some(CompactionOptions::new().with_physical())).await.map(drop)
            })
            .unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let mut program = command(env!("CARGO_BIN_EXE_calipam"));
        program.args(arguments).args(["--etcd-endpoints", &self.etcd.endpoint()]);
        Run::of(program.env("HOME", self.home.path()).stdin(Stdio::null()).output().unwrap())
    }

    fn history(&self) -> Value {
        json(&self.run(&["history", "--ip", ADDRESS, "-o", "json"]))
    }
}

#[test]
fn who_had_the_address() {
    is_told("calipam history --ip 10.244.99.7");
    let mut site = Site::begin(Etcd::start().unwrap());
    site.assign("web-0");
    site.release();
    let reused = site.assign("api-0");

    let told = site.history();
    assert_eq!(events(&told), ["block-claimed", "assigned", "released", "reused"]);
    assert_eq!((&told["kind"], &told["oldestRevision"]), (&"History".into(), &"1".into()));
    let [assigned, released, again] = [1, 2, 3].map(|place| &told["events"][place]);
    assert_eq!(assigned["after"]["allocatedTo"], "shop/web-0");
    assert!(assigned["time"]["at"].is_string() && released["time"]["at"].is_null(), "{released}");
    assert!(released["time"]["after"].is_string() && released["time"]["before"].is_string(), "{released}");
    assert_eq!(
        (&again["after"]["allocatedTo"], &again["detail"]),
        (&"shop/api-0".into(), &"earlier of pod shop/web-0".into())
    );
    assert_eq!(again["revision"], reused.to_string());

    let text = site.run(&["history", "--ip", ADDRESS]);
    assert!(text.stdout.contains("etcd keeps everything since it began"), "{text:?}");
    assert!(
        text.stdout.lines().any(|line| line.contains("released") && line.contains("between ")),
        "{text:?}"
    );
    // By the other ways to ask.
    let handle = json(&site.run(&["history", "--handle", "k8s-pod-network.web-0", "-o", "json"]));
    assert_eq!(
        events(&handle),
        Vec::<&str>::new(),
        "no object of that name was ever stored: its blocks are not known"
    );
    let block = json(&site.run(&["history", "--block", CIDR, "-o", "json"]));
    assert_eq!(events(&block), ["block-claimed", "assigned", "released", "reused"]);
    let nothing = site.run(&["history", "--ip", "192.0.2.1"]);
    assert_eq!((nothing.code, nothing.stdout.contains("Nothing is known of it")), (1, true), "{nothing:?}");

    // calipam gives the address back: its journal says so.
    is_told("calipam release --ip 10.244.99.7");
    let release = site.run(&["release", "--ip", ADDRESS, "--yes", "--grace", "0", "--settle", "0"]);
    assert_eq!(release.code, 0, "{release:?}");
    let told = site.history();
    let by = &told["events"][4];
    assert_eq!((&by["what"], &by["by"]["command"]), (&"cooling".into(), &"release --ip".into()), "{told}");
    let revision: i64 = by["revision"].as_str().unwrap().parse().unwrap();

    // What was before is compacted, and the server restarts.
    let mut site = site;
    site.compact(reused);
    site.etcd.restart().unwrap();
    let told = site.history();
    assert_eq!(events(&told), ["known", "cooling"], "{told}");
    assert_eq!(told["events"][0]["after"]["allocatedTo"], "shop/api-0");
    assert_eq!(told["oldestRevision"], reused.to_string());
    let text = site.run(&["history", "--ip", ADDRESS]);
    assert!(
        text.stdout.contains(&format!("what was before {reused} is compacted and not known")),
        "{text:?}"
    );

    // Everything is compacted: only the journal tells.
    site.put();
    site.compact(site.put());
    assert!(revision > reused);
    let told = site.history();
    let last: Vec<&Value> =
        told["events"].as_array().unwrap().iter().filter(|e| e["origin"] == "journal").collect();
    assert_eq!((last.len(), &last[0]["what"]), (1, &"cooling".into()), "{told}");
    assert_eq!(last[0]["revision"], revision.to_string());
}

/// The same events from etcd 3.4, whose watch tells otherwise how far it has come.
#[test]
fn an_older_etcd_tells_the_same() {
    let mut site = Site::begin(EtcdOptions::new().version(EtcdVersion::V3_4).start().unwrap());
    let first = site.assign("web-0");
    site.release();
    site.assign("api-0");
    assert_eq!(events(&site.history()), ["block-claimed", "assigned", "released", "reused"]);
    site.compact(first);
    assert_eq!(events(&site.history()), ["known", "released", "reused"]);
}

#[test]
fn an_endpoint_of_the_pod_is_followed() {
    let mut site = Site::begin(Etcd::start().unwrap());
    site.assign("web-0");
    let key = "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/node--1-k8s-web--0-eth0";
    let value = r#"{"metadata":{"name":"node--1-k8s-web--0-eth0","namespace":"shop"},"spec":{"node":"node-1","pod":"web-0",
        "orchestrator":"k8s","endpoint":"eth0","ipNetworks":["10.244.99.7/32"]}}"#;
    site.etcd
        .with_client(async |mut client| {
            client.put(key, value, None).await?;
            client.delete(key, None).await.map(drop)
        })
        .unwrap();
    let told = site.history();
    assert_eq!(events(&told), ["block-claimed", "assigned", "endpoint-created", "endpoint-gone"], "{told}");
}

#[test]
fn kubernetes_has_an_archive() {
    is_told("calipam export --archive /var/lib/calipam/archive --keep 24h:all,30d:daily,1y:monthly");
    is_told("calipam history --archive /var/lib/calipam/archive --ip 10.0.0.3");
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", serde_json::json!({}));
    cluster.add_block("10.0.0.0/26", "node-1", &[Record::of_pod(3, "shop", "web-0", "node-1")]);
    cluster.add_pods(&[pod("shop", "web-0", "node-1", "10.0.0.3", 1)]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    let export = || {
        let run = cluster.run(&["export", "--archive", archive, "--keep", "24h:all,30d:daily,1y:monthly"]);
        assert_eq!(run.code, 0, "{run:?}");
        // The clock of the API server counts seconds.
        thread::sleep(Duration::from_millis(1100));
        run
    };
    assert!(export().stderr.contains("the archive holds 1 export\n"));

    // The pod ends, and its address stays: a leak.
    let deleted =
        cluster.server.request("DELETE", "/api/v1/namespaces/shop/pods/web-0?gracePeriodSeconds=0", "");
    assert_eq!(deleted.unwrap().status, 200);
    export();
    let release = cluster.run(&[
        "release",
        "--ip",
        "10.0.0.3",
        "--yes",
        "--grace",
        "0",
        "--settle",
        "0",
        "--journal",
        &format!("{archive}.journal"),
    ]);
    let checked =
        cluster.run(&["check", "--grace", "0", "--settle", "0", "--archive", archive, "-o", "json"]);
    assert_eq!(release.code, 0, "{release:?}");
    let _ = checked;
    export();

    let run = cluster.run(&["history", "--archive", archive, "--ip", "10.0.0.3", "-o", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let told = json(&run);
    assert_eq!(events(&told), ["known", "released"], "{told}");
    let times: Vec<&str> =
        told["exports"].as_array().unwrap().iter().map(|time| time.as_str().unwrap()).collect();
    assert_eq!(times.len(), 3);
    let released = &told["events"][1];
    assert_eq!(
        (&released["time"]["after"], &released["time"]["before"]),
        (&times[1].into(), &times[2].into())
    );
    assert_eq!((&released["origin"], released.get("revision")), (&"archive".into(), None));
    let text = cluster.run(&["history", "--archive", archive, "--ip", "10.0.0.3"]).stdout;
    assert!(text.contains("3 exports from ") && text.contains("the longest gap is "), "{text}");

    // The two exports around a time, and one against what is live.
    let diff = calipam(&["diff", "--archive", archive, "--at", times[1], "-o", "json"]);
    assert_eq!(diff.code, 1, "{diff:?}");
    assert_eq!(json(&diff)["addresses"][0]["change"], "given-back");
    let live = cluster.run(&["diff", "--archive", archive, "--at", times[1]]);
    assert_eq!(live.code, 2, "--datastore means nothing here: {live:?}");
    let early = calipam(&["diff", "--archive", archive, "--at", "2020-01-01T00:00Z"]);
    assert!(
        early.code == 2 && early.stderr.contains("has no export of 2020-01-01T00:00:00Z or before"),
        "{early:?}"
    );
    let none = calipam(&["diff", "--archive", archive, "--at", "2999-01-01T00:00Z"]);
    assert!(none.code == 2 && none.stderr.contains("no export after"), "{none:?}");
    let zoneless = calipam(&["diff", "--archive", archive, "--at", "2026-11-20T03:12"]);
    assert!(zoneless.code == 2 && zoneless.stderr.contains("a time with its zone"), "{zoneless:?}");
}

#[test]
fn a_leak_says_when_it_was_last_in_use() {
    is_told("calipam check --archive /var/lib/calipam/archive");
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", serde_json::json!({}));
    cluster.add_block("10.0.0.0/26", "node-1", &[Record::of_pod(3, "shop", "web-0", "node-1")]);
    cluster.add_pods(&[pod("shop", "web-0", "node-1", "10.0.0.3", 1)]);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    assert_eq!(cluster.run(&["export", "--archive", archive]).code, 0);
    thread::sleep(Duration::from_millis(1100));
    let deleted =
        cluster.server.request("DELETE", "/api/v1/namespaces/shop/pods/web-0?gracePeriodSeconds=0", "");
    assert_eq!(deleted.unwrap().status, 200);
    let check = |more: &[&str]| {
        let arguments = ["check", "--grace", "0", "--settle", "0", "--rule", "leaked-address", "-o", "json"];
        json(&cluster.run(&[&arguments, more].concat()))
    };
    let evidence = |report: &Value| report["findings"][0]["evidence"]["lastInUse"].clone();
    assert!(evidence(&check(&[])).is_null());
    let found = check(&["--archive", archive]);
    let last = evidence(&found);
    assert!(last.is_object(), "{found}");
    assert!(last["by"].as_str().unwrap().contains("shop/web-0"), "{found}");
    assert!(last["at"].as_str().unwrap() < last["notAt"].as_str().unwrap(), "{last}");
    assert!(found["findings"][0]["message"].as_str().unwrap().contains("; last seen in use at "), "{found}");
}

#[test]
fn an_archive_is_of_one_cluster_and_never_half() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let text = archive.to_str().unwrap();
    let names = |folder: &Path| -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let run = on_example(&["export", "--archive", text]);
    assert_eq!(run.code, 0, "{run:?}");
    let named = "calipam-20260601T080000Z.jsonl.zst".to_owned();
    assert_eq!(names(&archive), [".calipam-lock".to_owned(), named.clone()]);
    let again = on_example(&["export", "--archive", text]);
    assert!(again.code == 0 && again.stderr.contains("nothing was added"), "{again:?}");

    // What a killed run left is taken away, and other files are left alone.
    fs::create_dir(archive.join(".calipam-writing")).unwrap();
    fs::write(archive.join(".calipam-writing/export.jsonl.zst"), "half").unwrap();
    fs::write(archive.join("notes.txt"), "mine").unwrap();
    assert_eq!(on_example(&["export", "--archive", text, "--keep", "1h:all"]).code, 0);
    assert_eq!(names(&archive), [".calipam-lock".to_owned(), named.clone(), "notes.txt".to_owned()]);

    // Another run writes at the moment.
    let lock = fs::File::open(archive.join(".calipam-lock")).unwrap();
    lock.lock().unwrap();
    let busy = on_example(&["export", "--archive", text]);
    assert!(busy.code == 3 && busy.stderr.contains("another run writes to this archive"), "{busy:?}");
    drop(lock);

    // Another cluster.
    let other = folder.path().join("other.jsonl");
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let changed = example
        .replace("0f0e1d2c3b4a59687786951423324150", "ffffffffffffffffffffffffffffffff")
        .replace("2026-05-01T12:00:00Z\",\"guid", "2026-05-02T12:00:00Z\",\"guid");
    fs::write(&other, changed).unwrap();
    let refused = calipam(&["export", "--archive", text, "--datastore", other.to_str().unwrap()]);
    assert!(refused.code == 3 && refused.stderr.contains("an archive of cluster \"0f0e1d2c"), "{refused:?}");
    assert_eq!(names(&archive).len(), 3);

    // A damaged export is an error, and never an empty one.
    fs::write(archive.join(&named), "half").unwrap();
    let damaged = calipam(&["history", "--archive", text, "--ip", "10.244.10.6"]);
    assert_eq!((damaged.code, damaged.stdout.as_str()), (3, ""), "{damaged:?}");
    for wrong in ["24h", "30d:daily,24h:all", "soon:all"] {
        assert_eq!(on_example(&["export", "--archive", text, "--keep", wrong]).code, 2, "{wrong}");
    }
    let empty = calipam(&["history", "--archive", folder.path().to_str().unwrap(), "--ip", "10.244.10.6"]);
    assert!(empty.code == 3 && empty.stderr.contains("holds no export\nhint: "), "{empty:?}");
}
