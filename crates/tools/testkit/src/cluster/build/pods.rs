//! Adds pods with their endpoints, handles and addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::layout::{PodName, go_time, pod_name, whole_seconds};
use crate::cluster::wire::{Attribute, key, resource};
use crate::cluster::{Cluster, ClusterSpec, NodeInfo, Pod};

/// Maximum number of faulty pods on a node. Further pods are added to a new node.
const PODS_PER_HOST: usize = 24;
/// Maximum number of faulty blocks on a node. Calico allows 20 blocks.
const BLOCKS_PER_HOST: usize = 14;

/// A new pod and its sandbox, for which addresses can be assigned. Nothing is stored for the pod yet.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub name: PodName,
    pub node: String,
    /// The ID of the sandbox.
    pub container: String,
    /// The time at which the pod's addresses were allocated.
    pub since: Timestamp,
}

impl Holder {
    pub(crate) fn handle(&self) -> String {
        format!("k8s-pod-network.{}", self.container)
    }

    /// The owner record.
    pub(crate) fn attribute(&self) -> Attribute {
        let mut attribute = self.attribute_without_time();
        attribute.set("timestamp", &go_time(self.since));
        attribute
    }

    /// The owner record, as Calico before 3.18 writes it.
    pub(crate) fn attribute_without_time(&self) -> Attribute {
        let namespace = self.name.namespace;
        let pod = self.name.pod.as_str();
        Attribute::new(
            &self.handle(),
            [("namespace", namespace), ("node", &self.node), ("pod", pod)],
        )
    }

    /// The record of an IPAM client that writes only the node and the time.
    pub(crate) fn attribute_of(&self, handle: &str) -> Attribute {
        Attribute::new(
            handle,
            [("node", &*self.node), ("timestamp", &*go_time(self.since))],
        )
    }

    pub(crate) fn endpoint_key(&self) -> String {
        let name = key::endpoint_name(&self.node, "k8s", &self.name.pod, "eth0");
        key::endpoint(self.name.namespace, &name)
    }
}

impl Cluster {
    /// Adds a pod with an address of each family to a node, given by its index in [`Cluster::nodes`].
    pub fn add_pod_on(&mut self, node: usize) -> Pod {
        let info = self.nodes[node].clone();
        self.add_pod(&info.name, &info.blocks)
    }

    /// Adds a pod with one address from each block to a node.
    pub(in crate::cluster) fn add_pod(&mut self, node: &str, blocks: &[IpNet]) -> Pod {
        let holder = self.holder(node);
        self.start(&holder, &holder.attribute(), blocks)
    }

    /// Starts a pod with one address from each block, all with the same record.
    pub(in crate::cluster) fn start(&mut self, holder: &Holder, record: &Attribute, blocks: &[IpNet]) -> Pod {
        let take = |block: &IpNet| (self.take_as(*block, record.clone()), *block);
        let pod = Pod {
            addresses: blocks.iter().map(take).collect(),
            handle: record.handle.clone().unwrap_or_default(),
            endpoint: holder.endpoint_key(),
            name: holder.name.clone(),
            node: holder.node.clone(),
        };
        self.put_endpoint(holder, &pod.all_addresses());
        pod
    }

    /// Creates the names of a new pod and its sandbox.
    pub(in crate::cluster) fn holder(&mut self, node: &str) -> Holder {
        let serial = self.next_pod;
        self.next_pod += 1;
        let mut rng = self.spec.rng(0x706f_6400_0000_0000 | serial);
        // The age is between an hour and 20 days: old enough to be checked, and younger than the blocks.
        let age = SignedDuration::from_secs(3600 + rng.below(20 * 86_400) as i64);
        let age = age + SignedDuration::from_nanos(rng.below(1_000_000_000) as i64);
        let since = self.spec.now.checked_sub(age).expect("a time in this era");
        Holder {
            name: pod_name(serial),
            node: node.to_owned(),
            container: rng.hex(64),
            since,
        }
    }

    /// Assigns one address to a pod, and returns the address.
    pub(in crate::cluster) fn take(&mut self, block: IpNet, holder: &Holder) -> IpAddr {
        self.take_as(block, holder.attribute())
    }

    /// Assigns one address with an owner record. Increments the handle's count first, then writes the block.
    pub(in crate::cluster) fn take_as(&mut self, block: IpNet, attribute: Attribute) -> IpAddr {
        if let Some(handle) = &attribute.handle {
            self.count(handle, block, 1);
        }
        self.block_mut(block).take(1, attribute)[0]
    }

    /// Stores the endpoint of a pod.
    pub(in crate::cluster) fn put_endpoint(&mut self, holder: &Holder, addresses: &[IpAddr]) {
        self.put_json(holder.endpoint_key(), endpoint_of(&self.spec, holder, addresses));
    }

    /// Returns a node for the pods of faults. Adds a new node when the last one is full.
    pub(in crate::cluster) fn host(&mut self) -> NodeInfo {
        let (node, pods) = match self.host {
            Some((node, pods)) if pods < PODS_PER_HOST && self.host_blocks < BLOCKS_PER_HOST => {
                (node, pods + 1)
            }
            _ => {
                self.host_blocks = 0;
                (self.add_node(), 1)
            }
        };
        self.host = Some((node, pods));
        self.nodes[node].clone()
    }

    /// Adds a healthy pod for a fault to break.
    pub(in crate::cluster) fn victim(&mut self) -> Pod {
        let node = self.host();
        self.add_pod(&node.name, &node.blocks)
    }

    /// Adds a healthy node with some pods for a fault to break. No other fault uses the node.
    pub(in crate::cluster) fn victim_node(&mut self, pods: usize) -> (NodeInfo, Vec<Pod>) {
        let node = self.add_node();
        let pods = (0..pods).map(|_| self.add_pod_on(node)).collect();
        (self.nodes[node].clone(), pods)
    }
}

/// The workload endpoint of a pod.
pub(crate) fn endpoint_of(spec: &ClusterSpec, holder: &Holder, addresses: &[IpAddr]) -> Value {
    let PodName {
        namespace,
        pod,
        generate,
        app,
    } = &holder.name;
    let mut rng = spec.rng(holder.since.as_nanosecond() as u64);
    let mut metadata = json!({
        "name": key::endpoint_name(&holder.node, "k8s", pod, "eth0"),
        "namespace": namespace,
        "uid": rng.uuid(),
        "creationTimestamp": whole_seconds(holder.since),
        "labels": {
            "app": app,
            "projectcalico.org/namespace": namespace,
            "projectcalico.org/orchestrator": "k8s",
            "projectcalico.org/serviceaccount": "default",
        },
    });
    if !generate.is_empty() {
        metadata["generateName"] = generate.as_str().into();
        metadata["labels"]["pod-template-hash"] = "6799fc88d8".into();
    }
    let spec = json!({
        "orchestrator": "k8s",
        "node": holder.node,
        "containerID": holder.container,
        "pod": pod,
        "endpoint": "eth0",
        "serviceAccountName": "default",
        "ipNetworks": networks(addresses),
        "profiles": [format!("kns.{namespace}"), format!("ksa.{namespace}.default")],
        "interfaceName": format!("cali{}", rng.hex(11)),
        "mac": "ee:ee:ee:ee:ee:ee",
    });
    resource("WorkloadEndpoint", metadata, spec)
}

/// Addresses in the form of `ipNetworks`: with full-length masks.
pub(in crate::cluster) fn networks(addresses: &[IpAddr]) -> Value {
    addresses
        .iter()
        .map(|address| IpNet::from(*address).to_string())
        .collect()
}
