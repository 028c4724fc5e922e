//! Until it ends, an installer with `--watch` keeps the plugin in place, even if Calico's installer overwrites it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use calipam_cni::install::place::Program;
use calipam_model::key::Key;
use calipam_testkit::kube::Flavour;
use serde_json::json;

use crate::install::configuration;
use crate::node::{Node, calicos};
use crate::runtime::{Outcome, PLUGIN};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);

/// An installer with `--watch`.
struct Watcher {
    child: Child,
    /// The address at which it serves metrics.
    address: String,
}

impl Watcher {
    fn start(mut command: Command) -> Self {
        command
            .args(["--watch", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let line = lines
            .find(|line| line.contains("serving /metrics"))
            .expect("it serves");
        let address = line.rsplit(' ').next().unwrap().to_owned();
        // Continues to read the installer's log, so that the installer does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn has(&self, metric: &str) -> bool {
        self.get("/metrics").lines().any(|line| line == metric)
    }

    fn end(&mut self) -> Option<i32> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn it_stays_in_place_next_to_an_installer_that_overwrites_it_repeatedly() {
    let node = Node::with_calico(20);
    let mut watcher = Watcher::start(node.order(&["install"]));
    wait_until("it is in place", || watcher.has("calipam_cni_in_place 1"));
    assert!(watcher.get("/healthz").starts_with("HTTP/1.1 200 "));
    node.assert_installed(20);

    // Calico's installer runs as often as with a calico-node that keeps restarting. Every second time, it runs again
    // before the plugin is back, or while it is put there.
    let replaced = || {
        let metrics = watcher.get("/metrics");
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("calipam_cni_replacements_total "));
        line.unwrap().parse::<u32>().unwrap()
    };
    for version in 21..=28 {
        let before = replaced();
        node.calico_installs(version);
        let whole = fs::read(node.path("calico-ipam")).unwrap();
        assert!(whole == calicos(version) || whole == fs::read(PLUGIN).unwrap());
        if version % 2 == 0 {
            wait_until("it is put there once more", || replaced() > before);
        }
    }
    let is_back = || watcher.has("calipam_cni_in_place 1") && node.place().plugin().unwrap() == Program::This;
    wait_until("it is in place again", is_back);
    node.assert_installed(28);
    assert!(replaced() >= 4);

    // Calico's installer may first remove the plugin, as older versions did. A second run of `calico-ipam install` is
    // refused.
    fs::remove_file(node.path("calico-ipam")).unwrap();
    wait_until("a missing plugin is put there", || {
        node.path("calico-ipam").exists()
    });
    let error = node.fail("install");
    assert!(error.contains("is running"), "{error}");

    assert_eq!(watcher.end(), Some(0));
    node.assert_calicos(28);
}

#[test]
fn with_keep_it_stays_when_the_installer_ends() {
    let node = Node::with_calico(30);
    let mut watcher = Watcher::start(node.order(&["install", "--keep"]));
    wait_until("it is in place", || watcher.has("calipam_cni_in_place 1"));
    assert_eq!(watcher.end(), Some(0));
    node.assert_installed(30);
}

/// The installer annotates the node at an API server that accepts connections and never answers.
#[test]
fn a_server_that_never_answers_does_not_keep_calicos_plugin_away() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Node::with_calico(20);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = format!("http://{}", silent.local_addr().unwrap());
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    fs::write(&kubeconfig, text.to_string()).unwrap();

    let mut command = node.order(&["install", "--node", "a"]);
    command.env("KUBECONFIG", &kubeconfig);
    let mut watcher = Watcher::start(command);
    // It has asked the server.
    let _connection = silent.accept().unwrap();
    node.assert_installed(20);
    assert_eq!(watcher.end(), Some(1), "the annotation stays");
    node.assert_calicos(20);
}

#[test]
fn the_node_records_which_plugin_it_uses() {
    let world = World::kubernetes(Flavour::Classic);
    let folder = configuration(&world);
    let annotation = || {
        let node = world.get(&Key::Node("a".into())).unwrap();
        node["metadata"]["annotations"]["calipam.io/cni-plugin"]
            .as_str()
            .map(str::to_owned)
    };
    let calico_is = |version: &str| {
        let information = Key::ClusterInformation("default".into());
        world.edit(&information, |cluster| {
            cluster["spec"]["calicoVersion"] = version.into()
        });
    };
    let node = Node::with_calico(30);
    let mut command = Command::new(PLUGIN);
    command
        .args(["install", "--node", "a"])
        .arg("--bin-dir")
        .arg(node.folder.path());
    command
        .arg("--conf-dir")
        .arg(folder.path())
        .env_clear()
        .env("KUBECONFIG", world.server().kubeconfig());
    let mut watcher = Watcher::start(command);
    wait_until("the node is annotated", || annotation().is_some());
    assert_eq!(
        annotation().unwrap(),
        format!("calipam {}", env!("CARGO_PKG_VERSION"))
    );
    node.assert_installed(30);

    // If Calico is updated to a version that calipam does not support, Calico's plugin is left in place.
    calico_is("v3.99.0");
    node.calico_installs(31);
    wait_until("the annotation is gone", || annotation().is_none());
    assert!(watcher.get("/healthz").contains("Calico v3.99.0 is newer"));
    node.assert_beside(31, 30);
    calico_is("v3.32.1");
    wait_until("the node is annotated again", || annotation().is_some());
    node.assert_installed(31);
    node.calico_installs(30);
    wait_until("a known version is replaced", || {
        watcher.has("calipam_cni_replacements_total 3")
    });
    assert_eq!(watcher.end(), Some(0));
    assert_eq!(annotation(), None);
    node.assert_calicos(30);

    // Without `--watch`, uninstall removes what install has noted.
    for (order, is_noted) in [("install", true), ("uninstall", false)] {
        let mut command = node.order(&[order, "--node", "a"]);
        command.env("KUBECONFIG", world.server().kubeconfig());
        let outcome = Outcome::from(command.output().unwrap());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(annotation().is_some(), is_noted, "{order}");
    }
    node.assert_calicos(30);
}
