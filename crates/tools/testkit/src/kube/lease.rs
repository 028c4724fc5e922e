//! API servers that the tests in a process share. Starting one takes seconds of processor time, but emptying one does
//! not.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use calipam_model::parallel::lock;
use etcd_client::TxnOp;
use serde_json::Value;

use super::{Flavour, install, install_kubevirt};
use crate::servers::{Entries, KubeApiserver};

/// Idle servers that wait for their next test. An idle server takes memory and, for its caches, a little processor
/// time. There is one for each of the usual [`Kinds`], so that none is ended for another kind and started again.
static IDLE: Mutex<Vec<Server>> = Mutex::new(Vec::new());
const MOST_IDLE: usize = 5;

/// The prefix of all keys in the server's etcd.
const EVERYTHING: &str = "/";

/// Prefixes of keys that the server itself renews.
const RENEWED: [&str; 3] = [
    "/registry/leases/",
    "/registry/masterleases/",
    "/registry/configmaps/kube-",
];

/// The prefix of the definitions of kinds. A server whose definitions have changed is not reused.
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/";

/// Time without new keys after which a started server counts as settled.
const SETTLED: Duration = Duration::from_millis(300);

/// Time limit for a change in etcd to reach the caches of the server.
const CAUGHT_UP: Duration = Duration::from_secs(10);

/// The kinds that a server has in addition to those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// None.
    Kubernetes,
    Calico(Flavour),
    CalicoAndKubevirt(Flavour),
}

impl Kinds {
    /// Installs the kinds. Returns the paths of their lists.
    fn install(self, server: &KubeApiserver) -> Result<Vec<String>> {
        match self {
            Self::Kubernetes => Ok(Vec::new()),
            Self::Calico(flavour) => install(server, flavour),
            Self::CalicoAndKubevirt(flavour) => {
                Ok([install(server, flavour)?, install_kubevirt(server)?].concat())
            }
        }
    }
}

/// An API server for one test, which starts empty. Dropping the lease empties the server for the next test in the
/// process. If the test failed or changed the kinds, dropping it ends the server instead. A test that stops or restarts
/// the server needs [its own server](KubeApiserver::start).
#[derive(Debug)]
pub struct Lease(Option<Server>);

/// Leases an API server with the given kinds and without objects.
///
/// # Errors
/// Returns an error if no server is idle and a new one does not start or does not serve the kinds.
pub fn lease(kinds: Kinds) -> Result<Lease> {
    let server = Server::idle(kinds).map_or_else(|| Server::start(kinds), Ok)?;
    Ok(Lease(Some(server)))
}

impl Lease {
    /// Ends the server.
    pub fn end(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Lease {
    type Target = KubeApiserver;

    fn deref(&self) -> &KubeApiserver {
        &self.0.as_ref().expect("it is there until it is dropped").server
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(server) = self.0.take() else { return };
        if !thread::panicking() && server.is_empty_again().unwrap_or(false) {
            lock(&IDLE).push(server);
        }
    }
}

#[derive(Debug)]
struct Server {
    server: KubeApiserver,
    kinds: Kinds,
    /// The paths of the lists that a test must leave empty: pods, nodes and all defined kinds.
    lists: Vec<String>,
    /// The server's entries before the first test.
    at_first: Entries,
}

impl Server {
    fn start(kinds: Kinds) -> Result<Self> {
        let server = KubeApiserver::start()?;
        let mut lists = kinds.install(&server)?;
        lists.extend(["/api/v1/pods", "/api/v1/nodes"].map(str::to_owned));
        let mut at_first = server.etcd().entries_below(EVERYTHING)?;
        loop {
            thread::sleep(SETTLED);
            let now = server.etcd().entries_below(EVERYTHING)?;
            if now == at_first {
                return Ok(Self {
                    server,
                    kinds,
                    lists,
                    at_first,
                });
            }
            at_first = now;
        }
    }

    /// Takes an idle server with these kinds. If there is none and many servers are idle, ends the one that has been
    /// idle the longest.
    fn idle(kinds: Kinds) -> Option<Self> {
        let mut idle = lock(&IDLE);
        if let Some(place) = idle.iter().position(|server| server.kinds == kinds) {
            return Some(idle.remove(place));
        }
        let oldest = (idle.len() >= MOST_IDLE).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
        None
    }

    /// Removes the leftovers of a test. Returns true if the server is in its initial state again.
    fn is_empty_again(&self) -> Result<bool> {
        let now = self.server.etcd().entries_below(EVERYTHING)?;
        let value = |entries: &Entries, key: &str| entries.get(key).map(|(value, _)| value.clone());
        let mut changed: BTreeSet<&String> = now.keys().chain(self.at_first.keys()).collect();
        changed.retain(|key| !RENEWED.iter().any(|renewed| key.starts_with(renewed)));
        changed.retain(|key| value(&now, key) != value(&self.at_first, key));
        if changed.iter().any(|key| key.starts_with(DEFINITIONS)) {
            return Ok(false);
        }
        let restore = |key: &String| match value(&self.at_first, key) {
            Some(value) => TxnOp::put(key.as_str(), value, None),
            None => TxnOp::delete(key.as_str(), None),
        };
        self.server
            .etcd()
            .write(&changed.into_iter().map(restore).collect::<Vec<_>>())?;
        self.has_caught_up()
    }

    /// Returns true if the server itself no longer lists any objects.
    fn has_caught_up(&self) -> Result<bool> {
        let begin = Instant::now();
        for path in &self.lists {
            while !is_empty(&self.server.request("GET", path, "")?.body) {
                if begin.elapsed() > CAUGHT_UP {
                    return Ok(false);
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(true)
    }
}

fn is_empty(list: &str) -> bool {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    list["items"].as_array().is_some_and(Vec::is_empty)
}
