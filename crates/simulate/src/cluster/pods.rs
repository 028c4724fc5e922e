//! Pods and their states.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use calipam_assign::scatter;
use calipam_model::attributes::AttributeRef;

use super::failure::Failure;
use crate::time::Micros;

/// The beginning of a new pod's name. Its ID follows.
const NAME_PREFIX: &str = "pod-";
/// The fraction of the golden ratio in 64 bits, a usual increment for mixing numbers. It makes even the first pod's
/// number different from 0.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pod {
    pub node: u32,
    /// The number of times that the pod's sandbox was created again. Each sandbox has its own container ID.
    pub attempt: u32,
    /// The time at which the pod was placed on its node.
    pub created: Micros,
    /// The time at which the pod got its addresses.
    pub started: Option<Micros>,
    pub addresses: Box<[IpAddr]>,
    /// True if the API server has the pod.
    pub is_in_api: bool,
    /// The time at which the API server deleted the pod.
    pub deleted_at: Option<Micros>,
    /// True if the pod's containers are running and using its addresses.
    pub runs: bool,
    /// On etcd, true if the pod's endpoint exists.
    pub has_endpoint: bool,
    /// True if the pod's node has failed, so that the pod's object in the API server no longer changes.
    pub is_of_failed_node: bool,
    /// True if the pod was running on a node that stopped, and is not replaced yet.
    is_lost: bool,
    /// True if another pod was created in its place.
    is_replaced: bool,
    /// The handle, if it is not derived from the container.
    pub handle: Option<Rc<str>>,
}

/// All pods, including those that are gone.
#[derive(Default)]
pub(crate) struct Pods {
    /// The index of a pod is its ID.
    by_id: Vec<Pod>,
    /// The number of pods that wait for addresses and are not replaced.
    waiting: u64,
    /// The number of pods that were running on nodes that stopped, and are not replaced yet.
    lost: u64,
    /// The pods that existed at the start, by handle.
    pub(super) adopted: HashMap<Rc<str>, u32, foldhash::fast::FixedState>,
}

impl Pods {
    pub(crate) fn get(&self, id: u32) -> &Pod {
        &self.by_id[id as usize]
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Pod {
        &mut self.by_id[id as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Pod)> {
        (0..).zip(&self.by_id)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (u32, &mut Pod)> {
        (0..).zip(&mut self.by_id)
    }

    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The pods that were created after the first `count`.
    pub(super) fn created_after(&self, count: usize) -> &[Pod] {
        self.by_id.get(count..).unwrap_or_default()
    }

    /// Returns the ID of the pod that the owner record of an address names; `None` if the record names none of the
    /// pods, for example for a tunnel address.
    pub(crate) fn find_by_record(&self, record: &AttributeRef<'_>) -> Option<u32> {
        // A pod that existed at the start can have any name, even one with another pod's ID.
        let adopted = self.find_adopted(record);
        adopted.or_else(|| self.find_created(record))
    }

    /// Returns the ID of the pod from the start of the simulation that has the record's handle.
    fn find_adopted(&self, record: &AttributeRef<'_>) -> Option<u32> {
        if self.adopted.is_empty() {
            return None;
        }
        let handle = record.handle()?.to_string();
        self.adopted.get(handle.as_str()).copied()
    }

    /// Returns the ID at the end of the recorded name, which the simulation has given to a pod; `None` for other names.
    fn find_created(&self, record: &AttributeRef<'_>) -> Option<u32> {
        let name = record.get("pod")?.to_string();
        let id: u32 = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
        // A record from before the simulation can have a name of this kind, with any number.
        let exists = (id as usize) < self.by_id.len();
        exists.then_some(id)
    }

    /// True if an address that is recorded for a pod is of no use to it, and no other pod shares the pod's handle.
    pub(crate) fn is_leaked(&self, id: u32, address: IpAddr) -> bool {
        let pod = self.get(id);
        // A pod that has not started can still get the address.
        if pod.is_in_api && (pod.started.is_none() || pod.addresses.contains(&address)) {
            return false;
        }

        let Some(handle) = &pod.handle else { return true };
        let mut others = self.by_id.iter();
        let is_shared = others.any(|other| other.is_in_api && other.handle.as_ref() == Some(handle));
        !is_shared
    }

    /// Adds a pod that waits for addresses on a node, and returns its ID. Without `handle`, the pod's handle is derived
    /// from its container.
    pub(super) fn add_waiting(&mut self, node: u32, handle: Option<Rc<str>>, now: Micros) -> u32 {
        let id = self.by_id.len() as u32;
        let mut pod = Pod::new(node, now);
        pod.handle = handle;
        self.by_id.push(pod);
        self.waiting += 1;
        id
    }

    /// Records that a pod got its addresses.
    pub(super) fn set_started(&mut self, id: u32, addresses: Vec<IpAddr>, now: Micros) {
        self.waiting -= 1;
        let pod = &mut self.by_id[id as usize];
        pod.started = Some(now);
        pod.runs = true;
        pod.has_endpoint = true;
        pod.addresses = addresses.into();
    }

    /// Records that the API server has deleted a pod. Does nothing if it already had.
    pub(super) fn forget(&mut self, id: u32, now: Micros) {
        let pod = &mut self.by_id[id as usize];
        if !pod.is_in_api {
            return;
        }
        pod.is_in_api = false;
        pod.deleted_at = Some(now);
        // A pod that got addresses or was replaced is no longer among those that wait.
        if pod.started.is_none() && !pod.is_replaced {
            self.waiting -= 1;
        }
    }

    /// The pods that were created during the simulation.
    pub(crate) fn created(&self) -> impl Iterator<Item = &Pod> {
        // Adopted pods come first.
        self.by_id.iter().skip(self.adopted.len())
    }

    /// The number of pods that should be running but are not.
    pub(crate) fn missing(&self) -> u64 {
        self.waiting + self.lost
    }

    /// Records that a pod's node failed. If the node stopped, the pod counts as missing until another one replaces it.
    pub(crate) fn lose(&mut self, id: u32, failure: Failure) {
        let pod = &mut self.by_id[id as usize];
        pod.is_of_failed_node = true;
        if failure == Failure::Stopped && pod.runs && !pod.is_replaced {
            pod.is_lost = true;
            self.lost += 1;
        }
    }

    /// Records that another pod replaces this one. Returns false if it was already replaced.
    pub(super) fn replace(&mut self, id: u32) -> bool {
        let pod = &mut self.by_id[id as usize];
        if pod.is_replaced {
            return false;
        }
        pod.is_replaced = true;

        // A pod that is replaced no longer counts as waiting or lost.
        if pod.is_in_api && pod.started.is_none() {
            self.waiting -= 1;
        }
        if pod.is_lost {
            pod.is_lost = false;
            self.lost -= 1;
        }
        true
    }
}

impl Pod {
    /// A pod that has just been created for a node.
    fn new(node: u32, now: Micros) -> Self {
        Self {
            node,
            created: now,
            is_in_api: true,
            ..Self::default()
        }
    }

    /// The time from the pod's creation until it had addresses, in microseconds.
    pub(crate) fn time_to_address(&self) -> Option<u32> {
        let started = self.started?;
        Some(u32::try_from(started.0 - self.created.0).unwrap_or(u32::MAX))
    }

    pub(crate) fn name(id: u32) -> String {
        format!("{NAME_PREFIX}{id}")
    }

    /// The container ID of a pod's sandbox: 64 hexadecimal digits, like those of runtimes.
    pub(crate) fn container(&self, id: u32) -> String {
        let mut digits = String::with_capacity(64);
        // Each part has 16 digits, and a number of its own, which `scatter` turns into one that looks random.
        for part in 0..4u64 {
            let number = (u64::from(id) << 32 | u64::from(self.attempt)) * 4 + part;
            let scattered = scatter(number.wrapping_add(GOLDEN_RATIO));
            digits.push_str(&format!("{scattered:016x}"));
        }
        digits
    }

    /// The handle of the pod's addresses.
    pub(crate) fn handle(&self, id: u32) -> String {
        match &self.handle {
            Some(handle) => handle.to_string(),
            None => format!("k8s-pod-network.{}", self.container(id)),
        }
    }
}
