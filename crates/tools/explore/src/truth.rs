//! The addresses that pods really use. The datastore is compared with them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Mutex;

use calipam_model::parallel::lock;

/// A pod, identified by the handle of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub node: String,
    /// The pod's addresses; empty while it waits for them.
    pub addresses: Vec<IpAddr>,
    /// False after Kubernetes has deleted the pod.
    pub exists: bool,
}

impl Pod {
    /// True for an existing pod with addresses. Other pods wait for addresses, or DEL releases the addresses that they
    /// had.
    pub(crate) fn is_served(&self) -> bool {
        self.exists && !self.addresses.is_empty()
    }
}

/// The real state of a cluster, independent of the datastore.
#[derive(Default)]
pub struct Truth(Mutex<State>);

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Pod>,
    /// The user of each address, from the address's assignment to the start of its release.
    users: BTreeMap<IpAddr, String>,
    /// Handles whose records are incomplete from the start.
    damaged: BTreeSet<String>,
    /// Handles of pods that Calico's plugin serves.
    of_calico: BTreeSet<String>,
    violations: Vec<String>,
}

impl Truth {
    /// Adds a pod that wants addresses.
    pub fn begin(&self, handle: &str, node: &str) {
        let mut state = lock(&self.0);
        let pod = Pod { node: node.to_owned(), addresses: Vec::new(), exists: true };
        state.pods.entry(handle.to_owned()).or_insert(pod);
    }

    /// Gives a pod addresses, which it uses from now on.
    pub fn give(&self, handle: &str, addresses: &[IpAddr]) {
        let mut state = lock(&self.0);
        for address in addresses {
            if let Some(other) = state.users.insert(*address, handle.to_owned()) {
                state.violations.push(format!("{address} is given to {handle} while {other} uses it"));
            }
        }
        if let Some(pod) = state.pods.get_mut(handle) {
            pod.addresses.extend_from_slice(addresses);
        }
    }

    /// Marks a pod that was believed to be deleted as existing again.
    pub fn revive(&self, handle: &str) {
        if let Some(pod) = lock(&self.0).pods.get_mut(handle) {
            pod.exists = true;
        }
    }

    /// Removes a pod and returns its addresses, which are about to be released.
    pub fn remove_pod(&self, handle: &str) -> Vec<IpAddr> {
        let mut state = lock(&self.0);
        let Some(pod) = state.pods.get_mut(handle) else { return Vec::new() };
        pod.exists = false;
        let addresses = std::mem::take(&mut pod.addresses);
        state.users.retain(|_, user| user != handle);
        addresses
    }

    /// The addresses of a pod.
    pub fn addresses(&self, handle: &str) -> Vec<IpAddr> {
        lock(&self.0).pods.get(handle).map(|pod| pod.addresses.clone()).unwrap_or_default()
    }

    /// Returns all pods so far, including deleted ones.
    pub fn pods(&self) -> BTreeMap<String, Pod> {
        lock(&self.0).pods.clone()
    }

    pub fn users(&self) -> BTreeMap<IpAddr, String> {
        lock(&self.0).users.clone()
    }

    /// Marks a handle whose records were damaged before the actors start.
    pub fn damage(&self, handle: &str) {
        lock(&self.0).damaged.insert(handle.to_owned());
    }

    /// Marks a pod as served by Calico's plugin. After a lost answer or a kill, the plugin may leave addresses that the
    /// handle does not count.
    pub fn serve_by_calico(&self, handle: &str) {
        lock(&self.0).of_calico.insert(handle.to_owned());
    }

    pub(crate) fn is_of_calico(&self, handle: &str) -> bool {
        lock(&self.0).of_calico.contains(handle)
    }

    pub(crate) fn is_damaged(&self, handle: &str) -> bool {
        lock(&self.0).damaged.contains(handle)
    }

    /// Records a violation.
    pub fn violated(&self, what: String) {
        lock(&self.0).violations.push(what);
    }

    /// Returns the recorded violations and clears them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).violations)
    }
}

impl Hash for Truth {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let state = lock(&self.0);
        state.pods.hash(hasher);
    }
}
