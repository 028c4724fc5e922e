//! `--watch`: prints again only if something has changed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Etcd;
use serde_json::{Value, json};

use super::kube_cluster::KubeCluster;
use super::program::{EXAMPLE, calipam, column, example, file, items, prepare, started};
use super::pty::interrupt;

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Watching {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl Watching {
    fn start(command: &mut Command) -> Self {
        let mut child = started(command);
        Self {
            stdout: child.stdout.take(),
            child,
        }
    }

    /// Receives what is read from stdout, as it is printed.
    fn receive<T: Send + 'static, I: Iterator<Item = T>>(
        &mut self,
        read: impl FnOnce(BufReader<ChildStdout>) -> I + Send + 'static,
    ) -> Receiver<T> {
        let (tell, told) = channel();
        let stdout = BufReader::new(self.stdout.take().unwrap());
        thread::spawn(move || read(stdout).try_for_each(|item| tell.send(item)));
        told
    }

    /// Receives the JSON documents as they are printed.
    fn documents(&mut self) -> Receiver<Value> {
        self.receive(|stdout| {
            serde_json::Deserializer::from_reader(stdout)
                .into_iter()
                .map_while(Result::ok)
        })
    }

    /// Waits until the program ends. Returns the exit code and stderr.
    fn ended(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (code, said)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_change_of_etcd_is_printed_and_a_write_that_changes_nothing_is_not() {
    let etcd = Etcd::start().unwrap();
    let mut cluster = Cluster::plain(ClusterSpec::new(31).at(jiff::Timestamp::now()), 3, 4);
    let pod = cluster.add_pod_on(0);
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let handle = key::handle(&pod.handle);
    let value = etcd.entries().unwrap()[&handle].0.clone();

    let check = format!(
        "check --watch=1h --settle 0 -o json --etcd-endpoints {}",
        etcd.endpoint()
    );
    let mut watching = Watching::start(&mut prepare(&check));
    let documents = watching.documents();
    let codes = || {
        column(
            &documents.recv_timeout(PATIENCE).expect("it prints again")["findings"],
            "code",
        )
    };
    assert_eq!(codes(), [""; 0]);
    etcd.delete(&handle).unwrap();
    assert_eq!(codes(), ["missing-handle"]);
    // The same value is written again: the report is the same except for its revision and time.
    let (pool, (same, ..)) = etcd
        .entries()
        .unwrap()
        .into_iter()
        .find(|(key, _)| key.contains("/ippools/"))
        .unwrap();
    etcd.put(&pool, same).unwrap();
    assert!(
        documents.recv_timeout(Duration::from_secs(5)).is_err(),
        "nothing has changed"
    );
    etcd.put(&handle, value).unwrap();
    assert_eq!(codes(), [""; 0]);
    interrupt(&watching.child);
    assert_eq!(watching.ended(), (Some(130), "error: interrupted\n".to_owned()));
}

/// Changes of blocks are watched, but not those of nodes, which are read at an interval. A blank line separates tables.
#[test]
fn changes_on_kubernetes_are_printed() {
    let cluster = KubeCluster::with_nodes(Flavour::Native, &["node-1"]);
    cluster.add_block("10.0.3.0/26", "node-1", &[]);
    let mut blocks = Watching::start(&mut cluster.command("show --blocks --watch=1h -o json"));
    let documents = blocks.documents();
    let number = || items(&documents.recv_timeout(PATIENCE).expect("it prints again")["blocks"]).len();
    assert_eq!(number(), 1);
    let mut nodes = Watching::start(&mut cluster.command("show --nodes --watch=1s --no-headers"));
    let lines = nodes.receive(|stdout| stdout.lines().map(Result::unwrap));
    let next = || lines.recv_timeout(PATIENCE).expect("it prints again");
    assert!(next().starts_with("node-1 "));
    // Longer than the time limit of a watch.
    assert!(
        lines.recv_timeout(Duration::from_secs(6)).is_err(),
        "nothing has changed"
    );
    let both_nodes = || {
        assert_eq!(next(), "");
        assert!(next().starts_with("node-1 ") && next().starts_with("node-2 "));
    };
    cluster.add_node("node-2", json!({}));
    both_nodes();
    cluster.add_block("10.0.3.64/26", "node-1", &[]);
    assert_eq!(number(), 2);
    both_nodes();
}

#[test]
fn watching_survives_an_outage_but_needs_a_datastore_at_the_start() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let show = format!("show --watch=1s --etcd-endpoints {}", etcd.endpoint());
    let mut watching = Watching::start(prepare(&show).args(["-o", "json"]));
    let documents = watching.documents();
    assert_eq!(documents.recv_timeout(PATIENCE).unwrap()["kind"], "PoolList");
    drop(etcd);
    let said = BufReader::new(watching.child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut errors = said.filter(|line| line.starts_with("error: cannot use etcd"));
    assert!(
        errors.next().is_some() && errors.next().is_some(),
        "each round says why it failed"
    );
    assert!(watching.child.try_wait().unwrap().is_none(), "it goes on");

    calipam(&show).exits(3).prints_nothing();
    calipam("show --watch -d -").failed(2, "stdin can be read only once");
    for (line, why) in [
        ("show --watch=0s", "the shortest interval is `1s`"),
        ("check --watch -o html", "`serve` has the other formats"),
        (
            "check --watch --sort-by none",
            "--sort-by: there is no column \"none\", only SEVERITY, ",
        ),
    ] {
        calipam(&format!("{line} -d {EXAMPLE}")).failed(2, why);
    }
}

/// The reader closes the pipe, as `| head` does.
#[test]
fn it_ends_when_nobody_reads_any_more() {
    let (_folder, file) = file("cluster.jsonl", example());
    let check = format!("check --watch=1s -o yaml --fail-on never -d {file}");
    let mut watching = Watching::start(&mut prepare(&check));
    let mut lines = BufReader::new(watching.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "apiVersion: calipam/v1");
    drop(lines);
    // An export of a healthy cluster replaces the file, and is read at the next interval.
    std::fs::write(&file, Cluster::plain(ClusterSpec::new(1), 1, 1).export()).unwrap();
    assert_eq!(watching.ended().0, Some(0));
}
