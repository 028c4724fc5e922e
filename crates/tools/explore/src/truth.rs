//! Who uses which address: what the datastore has to say, and what it is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A pod, known by the handle of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub node: String,
    /// What it was given; empty while it waits for it.
    pub addresses: Vec<IpAddr>,
    /// False once Kubernetes has deleted it.
    pub exists: bool,
}

/// The truth about a cluster.
#[derive(Default)]
pub struct Truth(Mutex<State>);

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Pod>,
    /// Who uses an address, from when it was given to when its release began.
    users: BTreeMap<IpAddr, String>,
    /// Handles of which the scenario begins with less than there should be.
    damaged: BTreeSet<String>,
    /// Handles of the pods that Calico's plugin serves.
    of_calico: BTreeSet<String>,
    violations: Vec<String>,
}

impl Truth {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod is there and wants addresses.
    pub fn begin(&self, handle: &str, node: &str) {
        let mut state = self.state();
        let pod = Pod { node: node.to_owned(), addresses: Vec::new(), exists: true };
        state.pods.entry(handle.to_owned()).or_insert(pod);
    }

    /// It has got them, and uses them from now on.
    pub fn give(&self, handle: &str, addresses: &[IpAddr]) {
        let mut state = self.state();
        for address in addresses {
            if let Some(other) = state.users.insert(*address, handle.to_owned()) {
                state.violations.push(format!("{address} is given to {handle} while {other} uses it"));
            }
        }
        if let Some(pod) = state.pods.get_mut(handle) {
            pod.addresses.extend_from_slice(addresses);
        }
    }

    /// It was taken for one that is gone, and is not.
    pub fn come_back(&self, handle: &str) {
        if let Some(pod) = self.state().pods.get_mut(handle) {
            pod.exists = true;
        }
    }

    /// It goes: its addresses are about to be released.
    pub fn withdraw(&self, handle: &str) -> Vec<IpAddr> {
        let mut state = self.state();
        let Some(pod) = state.pods.get_mut(handle) else { return Vec::new() };
        pod.exists = false;
        let addresses = std::mem::take(&mut pod.addresses);
        state.users.retain(|_, user| user != handle);
        addresses
    }

    /// What a pod was given.
    pub fn addresses(&self, handle: &str) -> Vec<IpAddr> {
        self.state().pods.get(handle).map(|pod| pod.addresses.clone()).unwrap_or_default()
    }

    /// The pods that were ever there.
    pub fn pods(&self) -> BTreeMap<String, Pod> {
        self.state().pods.clone()
    }

    pub fn users(&self) -> BTreeMap<IpAddr, String> {
        self.state().users.clone()
    }

    /// What is recorded for a handle was damaged before anyone acts.
    pub fn damage(&self, handle: &str) {
        self.state().damaged.insert(handle.to_owned());
    }

    /// Calico's plugin takes a pod's calls: where answers are lost or it is killed, it may leave addresses that its handle does not
    /// count.
    pub fn serve_by_calico(&self, handle: &str) {
        self.state().of_calico.insert(handle.to_owned());
    }

    pub(crate) fn is_of_calico(&self, handle: &str) -> bool {
        self.state().of_calico.contains(handle)
    }

    pub(crate) fn is_damaged(&self, handle: &str) -> bool {
        self.state().damaged.contains(handle)
    }

    /// Notes what must not happen.
    pub fn violated(&self, what: String) {
        self.state().violations.push(what);
    }

    /// What must not happen and did.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }
}

impl Hash for Truth {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let state = self.state();
        state.pods.hash(hasher);
    }
}
