//! `--watch`: prints again only if something has changed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Etcd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::kube_cluster::KubeCluster;
use super::program::{EXAMPLE, calipam, command, scratch};

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// An interval that is longer than a test.
const NEVER: &str = "--watch=1h";

struct Watching {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl Watching {
    fn start(datastore: &[&str], arguments: &[&str]) -> Self {
        let mut program = command(crate::cli::PROGRAM);
        program.args(arguments).args(datastore).stdin(Stdio::null());
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { stdout: child.stdout.take(), child }
    }

    /// Receives the JSON documents as they are printed.
    fn documents(&mut self) -> Receiver<Value> {
        let (tell, documents) = channel();
        let stdout = self.stdout.take().unwrap();
        thread::spawn(move || {
            let all = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
            all.map_while(Result::ok).try_for_each(|document| tell.send(document))
        });
        documents
    }

    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn codes(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn each_change_of_etcd_is_printed_and_a_write_that_changes_nothing_is_not() {
    let etcd = Etcd::start().unwrap();
    let mut cluster = Cluster::plain(ClusterSpec::new(31).at(jiff::Timestamp::now()), 3, 4);
    let pod = cluster.add_pod_on(0);
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let handle = key::handle(&pod.handle);
    let value = etcd.entries().unwrap()[&handle].0.clone();
    let (put, delete) = (
        || {
            etcd.with_client(async |mut client| client.put(handle.clone(), value.clone(), None).await)
                .unwrap()
        },
        || etcd.with_client(async |mut client| client.delete(handle.clone(), None).await).unwrap(),
    );
    let endpoint = etcd.endpoint();
    let datastore = ["--etcd-endpoints", endpoint.as_str()];

    let mut watching = Watching::start(&datastore, &["check", NEVER, "--settle", "0", "-o", "json"]);
    let documents = watching.documents();
    let next = || documents.recv_timeout(PATIENCE).expect("it prints again");
    assert_eq!(codes(&next()), [""; 0]);
    delete();
    assert_eq!(codes(&next()), ["missing-handle"]);
    // The same value is written again: the report is the same except for its revision and time.
    let (pool, (same, ..)) =
        etcd.entries().unwrap().into_iter().find(|(key, _)| key.contains("/ippools/")).unwrap();
    etcd.with_client(async |mut client| client.put(pool.clone(), same.clone(), None).await).unwrap();
    assert!(documents.recv_timeout(Duration::from_secs(5)).is_err(), "nothing has changed");
    put();
    assert_eq!(codes(&next()), [""; 0]);
    assert_eq!(watching.end(Signal::INT), (Some(130), "error: interrupted\n".to_owned()));
}

#[test]
fn each_change_of_a_block_on_kubernetes_is_printed() {
    let cluster = KubeCluster::start(Flavour::Native);
    cluster.add_node("node-1", json!({}));
    cluster.add_block("10.0.3.0/26", "node-1", &[]);
    let kubeconfig = cluster.server.kubeconfig();
    let datastore = ["-d", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut watching = Watching::start(&datastore, &["show", "--blocks", NEVER, "-o", "json"]);
    let documents = watching.documents();
    let blocks = || {
        let document = documents.recv_timeout(PATIENCE).expect("it prints again");
        document["blocks"].as_array().unwrap().len()
    };
    assert_eq!(blocks(), 1);
    // Longer than the time limit of a watch.
    thread::sleep(Duration::from_secs(6));
    cluster.add_block("10.0.3.64/26", "node-1", &[]);
    assert_eq!(blocks(), 2);
}

/// Changes of nodes cannot be watched, so the nodes are read at an interval. A blank line separates tables.
#[test]
fn nodes_of_kubernetes_are_read_at_an_interval() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-1", json!({}));
    let mut program = cluster.command(&["show", "--nodes", "--watch=1s", "--no-headers"]);
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _watching = Watching { child, stdout: None };
    let (tell, told) = channel();
    thread::spawn(move || lines.into_iter().try_for_each(|line| tell.send(line)));
    let next = || told.recv_timeout(PATIENCE).expect("it prints again");
    assert!(next().starts_with("node-1 "));
    assert!(told.recv_timeout(Duration::from_secs(3)).is_err(), "nothing has changed");
    cluster.add_node("node-2", json!({}));
    assert_eq!(next(), "");
    assert!(next().starts_with("node-1 ") && next().starts_with("node-2 "));
}

#[test]
fn watching_survives_an_outage_but_needs_a_datastore_at_the_start() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let endpoint = etcd.endpoint();
    let mut watching =
        Watching::start(&["--etcd-endpoints", &endpoint], &["show", "--watch=1s", "-o", "json"]);
    let documents = watching.documents();
    assert_eq!(documents.recv_timeout(PATIENCE).unwrap()["kind"], "PoolList");
    drop(etcd);
    let mut said = BufReader::new(watching.child.stderr.take().unwrap()).lines();
    let mut errors =
        said.by_ref().map(Result::unwrap).filter(|line| line.starts_with("error: cannot use etcd"));
    assert!(errors.next().is_some() && errors.next().is_some(), "each round says why it failed");
    assert!(watching.child.try_wait().unwrap().is_none(), "it goes on");

    calipam(&["show", "--watch=1s", "--etcd-endpoints", &endpoint]).exits(3).prints_nothing();
    for (arguments, why) in [
        (&["show", "--watch=0s", "-d", EXAMPLE][..], "the shortest interval is `1s`"),
        (&["show", "--watch", "-d", "-"], "stdin can be read only once"),
        (&["check", "--watch", "-o", "html", "-d", EXAMPLE], "`serve` has the other formats"),
        (
            &["check", "--watch", "--sort-by", "none", "-d", EXAMPLE],
            "--sort-by: there is no column \"none\", only SEVERITY, ",
        ),
    ] {
        calipam(arguments).failed(2, why);
    }
}

/// The reader closes the pipe, as `| head` does.
#[test]
fn it_ends_when_nobody_reads_any_more() {
    let (_folder, file) = scratch("cluster.jsonl");
    std::fs::copy(EXAMPLE_AT, &file).unwrap();
    let datastore = ["-d", file.to_str().unwrap()];
    let mut watching =
        Watching::start(&datastore, &["check", "--watch=1s", "-o", "yaml", "--fail-on", "never"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "apiVersion: calipam/v1");
    drop(lines);
    // An export of a healthy cluster replaces the file, and is read at the next interval.
    std::fs::write(&file, Cluster::plain(ClusterSpec::new(1), 1, 1).export()).unwrap();
    assert_eq!(watching.ended().0, Some(0));
}

const EXAMPLE_AT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/cluster.jsonl");
