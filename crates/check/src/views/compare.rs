//! What Kubernetes runs against what Calico records, node by node: the comparison that people make by hand
//! before and after a repair.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use calipam_model::pod::Pod;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};
use serde::Serialize;

use crate::record::Claim;
use crate::{Context, Options};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The nodes, by name; addresses whose node is not known stand under the empty name.
    pub nodes: Vec<NodeComparison>,
    /// Endpoints were read: Calico keeps them in etcd only.
    pub with_endpoints: bool,
}

/// The addresses of pods on one node. Tunnels, services and what cools down are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeComparison {
    pub node: String,
    /// Unfinished pods with addresses of their own.
    pub pods: usize,
    /// Addresses that these pods use, by Kubernetes.
    pub in_kubernetes: usize,
    /// Addresses that endpoints of the node name.
    pub in_endpoints: usize,
    /// Addresses that blocks record for pods of the node.
    pub in_blocks: usize,
    /// Addresses that all sources which were read name.
    pub agreed: usize,
    /// Used by a pod, but recorded by no block.
    pub not_recorded: BTreeSet<IpAddr>,
    /// Used by a pod, and recorded, but not for a pod: for whom.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded_for_others: BTreeMap<IpAddr, RecordedFor>,
    /// Recorded for a pod, but used by none. Addresses of virtual machines, which outlive their pods, are left out.
    pub not_used: BTreeSet<IpAddr>,
    /// Used by a pod, but named by no endpoint.
    pub without_endpoint: BTreeSet<IpAddr>,
    /// Named by an endpoint, but used by no pod.
    pub endpoint_only: BTreeSet<IpAddr>,
}

/// For whom an address is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedFor {
    /// The record names nobody.
    Nobody,
    VirtualMachine,
    Tunnel,
    Service,
    /// By a handle of no known form.
    Unknown,
}

impl RecordedFor {
    /// `None` for a pod's, and where nothing is held.
    fn of(claim: &Claim<'_>) -> Option<Self> {
        match claim {
            Claim::Anonymous => Some(Self::Nobody),
            Claim::Machine => Some(Self::VirtualMachine),
            Claim::Tunnel { .. } => Some(Self::Tunnel),
            Claim::Service => Some(Self::Service),
            Claim::Foreign { .. } | Claim::Unknown => Some(Self::Unknown),
            Claim::Pod { .. } | Claim::LegacyPod { .. } | Claim::Container(_) => None,
            Claim::Cooling | Claim::WindowsReserved => None,
        }
    }
}

impl fmt::Display for RecordedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "nobody",
            Self::VirtualMachine => "virtual machine",
            Self::Tunnel => "tunnel",
            Self::Service => "service",
            Self::Unknown => "unknown",
        })
    }
}

type ByNode = BTreeMap<String, BTreeSet<IpAddr>>;

/// Compares the sources of a snapshot. `None` where pods were not read: then there is nothing to compare with.
pub fn compare(snapshot: &Snapshot) -> Option<Comparison> {
    if !snapshot.has_read(Source::Pods) {
        return None;
    }
    let context = Context::new(snapshot, &Options::default());
    let with_endpoints = snapshot.has_read(Source::Endpoints);
    let calico_node = |name| context.index.calico_node(name);
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    let (mut running, mut endpoints, mut recorded) = (ByNode::new(), ByNode::new(), ByNode::new());
    let mut machines = BTreeSet::new();
    let mut node_of: BTreeMap<IpAddr, String> = BTreeMap::new();
    let mut others: BTreeMap<IpAddr, RecordedFor> = BTreeMap::new();
    // Pods that another plugin networks are none of Calico's: on Kubernetes they have no annotation, and no block records
    // what they use.
    let is_recorded = |address: IpAddr| {
        let around = context.index.blocks.iter().filter(|block| block.key.contains(&address));
        around.filter_map(|block| block.sound).any(|block| block.allocation_of(address).is_some())
    };
    let is_ours = |pod: &Pod| {
        snapshot.datastore != DatastoreKind::Kubernetes
            || pod.is_annotated()
            || pod.addresses().any(is_recorded)
    };
    for pod in snapshot.pods.iter().map(|p| &p.value).filter(|pod| is_ours(pod)) {
        let addresses: BTreeSet<IpAddr> = pod.addresses().collect();
        if !addresses.is_empty() {
            let node = calico_node(pod.node());
            *pods.entry(node.clone()).or_default() += 1;
            node_of.extend(addresses.iter().map(|address| (*address, node.clone())));
            running.entry(node).or_default().extend(addresses);
        }
    }
    for endpoint in snapshot.endpoints.iter().map(|e| &e.value) {
        endpoints.entry(calico_node(endpoint.node())).or_default().extend(endpoint.addresses());
    }
    for block in &context.index.blocks {
        let Some(sound) = block.sound else { continue };
        for allocation in sound.allocations() {
            let attribute = allocation.attribute;
            let claim = Claim::of(&attribute);
            if claim == Claim::Machine {
                machines.insert(allocation.address);
            }
            let is_pod = matches!(
                claim,
                Claim::Pod { .. } | Claim::LegacyPod { .. } | Claim::Container(_) | Claim::Machine
            );
            let user = node_of.get(&allocation.address);
            if let (Some(node), Some(recorded_for)) = (user, RecordedFor::of(&claim)) {
                others.insert(allocation.address, recorded_for);
                recorded.entry(node.clone()).or_default().insert(allocation.address);
            } else if is_pod {
                let node = attribute.get("node").map(calico_node);
                let node = node.or_else(|| block.owner.and_then(|o| o.host()).map(str::to_owned));
                recorded.entry(node.unwrap_or_default()).or_default().insert(allocation.address);
            }
        }
    }
    let union = |source: &ByNode| source.values().flatten().copied().collect();
    let all_running: BTreeSet<IpAddr> = union(&running);
    let used = &all_running | &machines;
    let all_recorded = union(&recorded);
    let all = Sources { all_recorded, others, used, running, endpoints, recorded, with_endpoints };
    let nodes = all.nodes().into_iter().map(|node| {
        let pods = pods.get(&node).copied().unwrap_or_default();
        all.of_node(node, pods)
    });
    Some(Comparison { nodes: nodes.collect(), with_endpoints })
}

/// The addresses that each source names.
struct Sources {
    running: ByNode,
    endpoints: ByNode,
    recorded: ByNode,
    /// Recorded on any node: a virtual machine that migrates is recorded on one and runs on two.
    all_recorded: BTreeSet<IpAddr>,
    /// Recorded, but not for a pod.
    others: BTreeMap<IpAddr, RecordedFor>,
    /// Used on any node, or held for a virtual machine.
    used: BTreeSet<IpAddr>,
    with_endpoints: bool,
}

impl Sources {
    fn nodes(&self) -> BTreeSet<String> {
        let sources = [&self.running, &self.endpoints, &self.recorded];
        sources.into_iter().flat_map(|s| s.keys().cloned()).collect()
    }

    fn of_node(&self, node: String, pods: usize) -> NodeComparison {
        let none = BTreeSet::new();
        let of = |source: &'_ ByNode| source.get(&node).unwrap_or(&none).clone();
        let (running, endpoints, recorded) = (of(&self.running), of(&self.endpoints), of(&self.recorded));
        let has_endpoint = |address: &&IpAddr| !self.with_endpoints || endpoints.contains(*address);
        let agreed = running.iter().filter(|a| self.all_recorded.contains(*a)).filter(has_endpoint).count();
        let empty = BTreeSet::new();
        let (without_endpoint, endpoint_only) = if self.with_endpoints {
            (&running - &endpoints, &endpoints - &running)
        } else {
            (empty.clone(), empty)
        };
        let others = running.iter().filter_map(|a| Some((*a, *self.others.get(a)?))).collect();
        NodeComparison {
            node,
            pods,
            in_kubernetes: running.len(),
            in_endpoints: endpoints.len(),
            in_blocks: recorded.len(),
            agreed,
            not_recorded: &running - &self.all_recorded,
            recorded_for_others: others,
            not_used: &recorded - &self.used,
            without_endpoint,
            endpoint_only,
        }
    }
}
