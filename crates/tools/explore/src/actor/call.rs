//! Pods, and the plugin calls for them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_assign::plugin::{Add, Container, Wanted};
use calipam_model::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::kubernetes::object_path;
use crate::world::{Footprint, PODS, World};

pub(super) const NETWORK: &str = "k8s-pod-network";

/// The plugin that runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Calipam,
    /// calipam's plugin with a datastore that answers each query of a read separately.
    OneByOne,
    /// calipam's plugin with an API server. calipam's own client reads and writes the objects.
    OnKubernetes,
    Calico,
}

/// A plugin call for a pod.
#[derive(Clone, Debug)]
pub struct Call {
    pub node: String,
    /// The name of the pod and of its container.
    pub pod: String,
    /// The CNI network of the pod's addresses.
    pub network: &'static str,
    pub wanted: Wanted,
    pub program: Program,
    /// True if the call is slow: the endpoint is written some time after the address is recorded, and the pod is
    /// deleted some time after its start. The address is then recorded with a time of the machine's clock, which
    /// commands read.
    pub is_watched: bool,
    /// True if the node keeps notes about full blocks.
    pub keeps_notes: bool,
    /// True if lists that are read ahead show the state before the first step. A note of the node allows this for some
    /// seconds, which is longer than a schedule takes.
    pub lists_beginning: bool,
}

impl From<&str> for Call {
    /// Creates a call for a pod that wants any IPv4 address. The text is the node and the pod, such as `a5/p`.
    fn from(text: &str) -> Self {
        let (node, pod) = text.split_once('/').expect("a node and a pod");
        let wanted = Wanted::Any {
            v4: true,
            v6: false,
            max_blocks_per_host: 0,
        };
        let node = node.to_owned();
        let pod = pod.to_owned();
        let network = NETWORK;
        let program = Program::Calipam;
        let is_watched = false;
        let keeps_notes = false;
        let lists_beginning = false;
        Self {
            node,
            pod,
            network,
            wanted,
            program,
            is_watched,
            keeps_notes,
            lists_beginning,
        }
    }
}

impl Call {
    /// Creates a call for a pod that wants an address of each family.
    pub fn of_both(pod: &str) -> Self {
        Self {
            wanted: Wanted::Any {
                v4: true,
                v6: true,
                max_blocks_per_host: 0,
            },
            ..pod.into()
        }
    }

    pub fn handle(&self) -> String {
        format!("{}.{}", self.network, self.pod)
    }

    /// Number of addresses that the pod wants.
    pub(crate) fn wants(&self) -> usize {
        match self.wanted {
            Wanted::Address(_) => 1,
            Wanted::Any { v4, v6, .. } => usize::from(v4) + usize::from(v6),
        }
    }

    pub(super) fn container(&self) -> Container {
        Container {
            node: self.node.clone(),
            handle: self.handle(),
            machine: None,
        }
    }

    pub(super) fn to_add(&self, now: Timestamp) -> Add {
        Add {
            container: self.container(),
            attributes: self.attributes(now),
            wanted: self.wanted.clone(),
        }
    }

    /// The handle that the oldest plugins used.
    pub(super) fn old_handle(&self) -> String {
        format!("default.{}", self.pod)
    }

    /// The attributes to record with the pod's address.
    pub(crate) fn attributes(&self, now: Timestamp) -> BTreeMap<String, String> {
        let timestamp = calipam_model::time::format_go_utc(now.as_nanosecond() as i64);
        let entries = [
            ("node", &*self.node),
            ("pod", &self.pod),
            ("namespace", "default"),
            ("timestamp", &timestamp),
        ];
        entries
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// The footprint of assigning or releasing a pod's addresses, without the IPAM objects.
    pub(super) fn touched(&self) -> Footprint {
        Footprint::default()
            .write(self.endpoint())
            .write(object_path(&self.pod))
            .write(format!("{PODS}{}", self.handle()))
    }

    pub(crate) fn endpoint(&self) -> String {
        let name = format!("{}-k8s-{}-eth0", self.node, self.pod.replace('-', "--"));
        format!(
            "{}workloadendpoints/default/{name}",
            calipam_model::key::RESOURCE_PREFIX
        )
    }

    /// Publishes the pod's addresses in the cluster: in the pod's object on Kubernetes, otherwise in its endpoint. If
    /// there are no addresses, the pod still waits for one.
    pub(super) fn show(&self, world: &World, addresses: &[IpAddr]) {
        if world.is_kubernetes() {
            world.data.put(
                &object_path(&self.pod),
                pod_object(&self.pod, &self.node, addresses).to_string(),
            );
        } else if !addresses.is_empty() {
            world
                .data
                .put(&self.endpoint(), self.endpoint_object(addresses).to_string());
        }
        world.touch(&self.touched());
    }

    /// The pod's endpoint with these addresses.
    pub(crate) fn endpoint_object(&self, addresses: &[IpAddr]) -> Value {
        json!({"kind": "WorkloadEndpoint", "metadata": {"namespace": "default"},
            "spec": {"orchestrator": "k8s", "node": self.node, "containerID": self.pod, "pod": self.pod,
                "endpoint": "eth0", "ipNetworks": networks(addresses)}})
    }
}

fn networks(addresses: &[IpAddr]) -> Vec<String> {
    addresses
        .iter()
        .map(|address| IpNet::from(*address).to_string())
        .collect()
}

/// A pod's object as an API server returns it.
pub(crate) fn pod_object(name: &str, node: &str, addresses: &[IpAddr]) -> Value {
    let mut metadata = json!({"name": name, "namespace": "default", "uid": name});
    let mut status = json!({"phase": "Pending"});
    if !addresses.is_empty() {
        metadata["annotations"] = json!({"cni.projectcalico.org/podIP": networks(addresses).join(",")});
        let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        status = json!({"phase": "Running", "podIP": addresses.first(), "podIPs": ips});
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": status})
}
