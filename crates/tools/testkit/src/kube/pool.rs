//! API servers that wait for their next test. Starting one takes seconds of processor time, but emptying one does not.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use calipam_model::parallel::lock;
use etcd_client::TxnOp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Flavour, install, install_kubevirt};
use crate::servers::{Entries, KubeApiserver};

/// Number of servers, idle or lent, above which a test waits for one instead of starting another. There is more than
/// one for each of the usual [`Kinds`].
const MOST: usize = 14;

/// Longest time that a test waits for a server that others have. Then it starts another, since a test that has a server
/// may need a second one to continue.
const PATIENCE: Duration = Duration::from_secs(60);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Servers for the tests of one process, or of several.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// Wakes the tests that wait for a server, when one comes back or ends.
    changed: Condvar,
    /// Held by the test that starts a server. Servers that start at the same time slow each other down, so that none of
    /// them is ready in time on a busy machine.
    starting: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The servers that no test has. The first has been idle the longest.
    idle: Vec<Server>,
    /// Number of servers that tests have, start, or are about to start.
    lent: usize,
}

impl State {
    /// Lends an idle server with these kinds.
    fn lend(&mut self, kinds: Kinds) -> Option<Server> {
        let place = self.idle.iter().position(|server| server.kinds == kinds)?;
        self.lent += 1;
        Some(self.idle.remove(place))
    }
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                idle: Vec::new(),
                lent: 0,
            }),
            changed: Condvar::new(),
            starting: Mutex::new(()),
        }
    }

    /// Lends an idle server with these kinds, or starts one. If there are many servers, ends the one that has been idle
    /// the longest, or waits for one.
    pub(super) fn lend(&self, kinds: Kinds) -> Result<Server> {
        if let Some(server) = self.idle(kinds) {
            return Ok(server);
        }

        // Another test may have given a server back while this one waited for its turn.
        let _turn = lock(&self.starting);
        let given_back = lock(&self.state).lend(kinds);
        if let Some(server) = given_back {
            self.count_end();
            return Ok(server);
        }
        Server::start(kinds).inspect_err(|_| self.count_end())
    }

    /// Lends an idle server with these kinds. Returns `None` if the caller should start one, which counts as lent from
    /// then on.
    fn idle(&self, kinds: Kinds) -> Option<Server> {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        let surplus = loop {
            if let Some(server) = state.lend(kinds) {
                return Some(server);
            }
            if state.idle.len() + state.lent < MOST {
                break None;
            }
            if !state.idle.is_empty() {
                break Some(state.idle.remove(0));
            }
            let time_left = PATIENCE.saturating_sub(begin.elapsed());
            if time_left.is_zero() {
                break None;
            }
            let waited = self.changed.wait_timeout(state, time_left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        state.lent += 1;

        // Ending a server takes a moment, in which others can lend.
        drop(state);
        drop(surplus);
        None
    }

    /// Takes a server back after a test: empties it for the next one, or ends it if that fails.
    pub(super) fn take_back(&self, server: Server) {
        if !server.is_empty_again().unwrap_or(false) {
            return self.end(server);
        }
        let mut state = lock(&self.state);
        state.lent -= 1;
        state.idle.push(server);
        self.changed.notify_all();
    }

    /// Ends a server that a test had.
    pub(super) fn end(&self, server: Server) {
        drop(server);
        self.count_end();
    }

    fn count_end(&self) {
        lock(&self.state).lent -= 1;
        self.changed.notify_all();
    }
}

/// A server, and what it had before the first test.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) server: KubeApiserver,
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
