//! The addresses that pods really use. The datastore is compared with them.

use std::collections::BTreeMap;
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
    /// True if the pod's records are incomplete from the start.
    pub is_damaged: bool,
    /// True if Calico's plugin serves the pod. After a lost answer or a kill, this plugin may leave addresses that the
    /// handle does not count.
    pub is_of_calico: bool,
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
    violations: Vec<String>,
}

impl Truth {
    /// Adds a pod that wants addresses.
    pub fn begin(&self, handle: &str, node: &str) {
        let node = node.to_owned();
        let addresses = Vec::new();
        let pod = Pod {
            node,
            addresses,
            exists: true,
            is_damaged: false,
            is_of_calico: false,
        };
        lock(&self.0).pods.entry(handle.to_owned()).or_insert(pod);
    }

    /// Gives a pod addresses, which it uses from now on.
    pub fn give(&self, handle: &str, addresses: &[IpAddr]) {
        let mut state = lock(&self.0);
        for address in addresses {
            let user = state.pods.iter().find(|(_, pod)| pod.addresses.contains(address));
            let what = user.map(|(other, _)| format!("{address} is given to {handle} while {other} uses it"));
            state.violations.extend(what);
        }
        state
            .pods
            .get_mut(handle)
            .into_iter()
            .for_each(|pod| pod.addresses.extend_from_slice(addresses));
    }

    /// Changes a pod.
    pub fn update(&self, handle: &str, change: impl FnOnce(&mut Pod)) {
        lock(&self.0).pods.get_mut(handle).map(change);
    }

    /// True if there was such a pod.
    pub(crate) fn has(&self, handle: &str, is_wanted: impl FnOnce(&Pod) -> bool) -> bool {
        lock(&self.0).pods.get(handle).is_some_and(is_wanted)
    }

    /// Removes a pod and returns its addresses, which are about to be released.
    pub fn remove_pod(&self, handle: &str) -> Vec<IpAddr> {
        let mut state = lock(&self.0);
        let Some(pod) = state.pods.get_mut(handle) else {
            return Vec::new();
        };
        pod.exists = false;
        std::mem::take(&mut pod.addresses)
    }

    /// The addresses of a pod.
    pub fn addresses(&self, handle: &str) -> Vec<IpAddr> {
        lock(&self.0)
            .pods
            .get(handle)
            .map(|pod| pod.addresses.clone())
            .unwrap_or_default()
    }

    /// Returns all pods so far, including deleted ones.
    pub fn pods(&self) -> BTreeMap<String, Pod> {
        lock(&self.0).pods.clone()
    }

    /// The user of each address, from the address's assignment to the start of its release.
    pub fn users(&self) -> BTreeMap<IpAddr, String> {
        let pods = self.pods().into_iter();
        pods.flat_map(|(handle, pod)| pod.addresses.into_iter().map(move |ip| (ip, handle.clone())))
            .collect()
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
        lock(&self.0).pods.hash(hasher);
    }
}
