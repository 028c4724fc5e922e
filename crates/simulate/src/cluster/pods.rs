//! Pods and their states.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use calipam_assign::scatter;
use calipam_model::attributes::AttributeRef;

use super::failure::Failure;
use crate::time::Micros;

/// The prefix of pod names.
const NAME: &str = "pod-";

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
    all: Vec<Pod>,
    /// The number of pods that wait for addresses and are not replaced.
    waiting: u64,
    /// The number of pods that were running on nodes that stopped, and are not replaced yet.
    lost: u64,
    /// The pods that existed at the start, by handle.
    pub(super) adopted: HashMap<Rc<str>, u32, foldhash::fast::FixedState>,
}

impl Pods {
    pub(crate) fn get(&self, id: u32) -> &Pod {
        &self.all[id as usize]
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Pod {
        &mut self.all[id as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Pod)> {
        (0..).zip(&self.all)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (u32, &mut Pod)> {
        (0..).zip(&mut self.all)
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The pods that were created after the first `count`.
    pub(super) fn created_after(&self, count: usize) -> &[Pod] {
        self.all.get(count..).unwrap_or_default()
    }

    /// The pod that an owner record in a block names; `None` for other owners.
    pub(crate) fn find_by_record(&self, record: &AttributeRef<'_>) -> Option<u32> {
        if !self.adopted.is_empty()
            && let Some(handle) = record.handle()
            && let Some(id) = self.adopted.get(handle.to_string().as_str())
        {
            return Some(*id);
        }

        let name = record.get("pod")?.to_string();
        let id: u32 = name.strip_prefix(NAME)?.parse().ok()?;
        if (id as usize) < self.all.len() {
            Some(id)
        } else {
            None
        }
    }

    /// True if an address recorded for a pod belongs neither to that pod nor to one that shares its handle.
    pub(crate) fn is_leaked(&self, id: u32, address: IpAddr) -> bool {
        let pod = self.get(id);
        // A pod that has not started can still get the address.
        if pod.is_in_api && (pod.started.is_none() || pod.addresses.contains(&address)) {
            return false;
        }

        let Some(handle) = &pod.handle else { return true };
        let mut others = self.all.iter();
        let is_shared = others.any(|other| other.is_in_api && other.handle.as_ref() == Some(handle));
        !is_shared
    }

    /// Adds a pod that waits for addresses.
    pub(super) fn add(&mut self, node: u32, handle: Option<Rc<str>>, now: Micros) -> u32 {
        self.waiting += 1;
        self.all.push(Pod {
            handle,
            ..Pod::new(node, now)
        });
        self.all.len() as u32 - 1
    }

    /// Records that a pod got its addresses.
    pub(super) fn set_started(&mut self, id: u32, addresses: Vec<IpAddr>, now: Micros) {
        self.waiting -= 1;
        let pod = &mut self.all[id as usize];
        pod.started = Some(now);
        pod.runs = true;
        pod.has_endpoint = true;
        pod.addresses = addresses.into();
    }

    /// Records that the API server has deleted a pod.
    pub(super) fn forget(&mut self, id: u32, now: Micros) {
        let pod = &mut self.all[id as usize];
        if !pod.is_in_api {
            return;
        }
        pod.is_in_api = false;
        pod.deleted_at = Some(now);
        if pod.started.is_none() && !pod.is_replaced {
            self.waiting -= 1;
        }
    }

    /// The pods that were created during the simulation.
    pub(crate) fn created(&self) -> impl Iterator<Item = &Pod> {
        // Adopted pods come first.
        self.all.iter().skip(self.adopted.len())
    }

    /// The number of pods that should be running but are not.
    pub(crate) fn missing(&self) -> u64 {
        self.waiting + self.lost
    }

    /// Records that a pod's node failed.
    pub(crate) fn lose(&mut self, id: u32, failure: Failure) {
        let pod = &mut self.all[id as usize];
        pod.is_of_failed_node = true;
        if failure == Failure::Stopped && pod.runs && !pod.is_replaced {
            pod.is_lost = true;
            self.lost += 1;
        }
    }

    /// Records that another pod replaces this one. Returns false if it was already replaced.
    pub(super) fn replace(&mut self, id: u32) -> bool {
        let pod = &mut self.all[id as usize];
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
        format!("{NAME}{id}")
    }

    /// The container ID of a pod's sandbox: 64 hexadecimal digits, like those of runtimes.
    pub(crate) fn container(&self, id: u32) -> String {
        let mut digits = String::with_capacity(64);
        for part in 0..4u64 {
            let number = (u64::from(id) << 32 | u64::from(self.attempt)) * 4 + part;
            digits.push_str(&format!(
                "{:016x}",
                scatter(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
            ));
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
