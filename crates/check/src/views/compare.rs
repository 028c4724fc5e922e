//! Compares Kubernetes pods with Calico's records, node by node, as people do by hand before and after a repair.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use calipam_model::pod::Pod;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};
use serde::Serialize;

use crate::claim::Claim;
use crate::index::Record;
use crate::{Context, Options};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The nodes, by name. Addresses whose node is not known are under the empty name.
    pub nodes: Vec<NodeComparison>,
    /// True if endpoints were read. Calico keeps them only in etcd.
    pub with_endpoints: bool,
}

/// The addresses of the pods on one node. Addresses of tunnels and services, and addresses that are cooling down, are
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeComparison {
    pub node: String,
    /// The number of unfinished pods with addresses of their own.
    pub pods: usize,
    /// The number of addresses of these pods, according to Kubernetes.
    pub in_kubernetes: usize,
    /// The number of addresses of the node's endpoints.
    pub in_endpoints: usize,
    /// The number of recorded addresses that belong to pods or machines of the node, or that its pods use.
    pub in_blocks: usize,
    /// The number of addresses on which all sources agree.
    pub agreed: usize,
    /// Used by a pod, but recorded by no block.
    pub not_recorded: BTreeSet<IpAddr>,
    /// Used by a pod, but recorded for an owner that is not a pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded_for_others: BTreeMap<IpAddr, RecordedFor>,
    /// Used by a pod here, but recorded on another node.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub recorded_elsewhere: BTreeSet<IpAddr>,
    /// Recorded for a pod, but used by none. Addresses of virtual machines are left out, since they outlive their pods.
    pub not_used: BTreeSet<IpAddr>,
    /// Used by a pod, but named by no endpoint.
    pub without_endpoint: BTreeSet<IpAddr>,
    /// Named by an endpoint, but used by no pod.
    pub endpoint_only: BTreeSet<IpAddr>,
}

/// The recorded owner of an address, other than a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedFor {
    /// The record is empty.
    NoOwner,
    VirtualMachine,
    Tunnel,
    Service,
    /// A handle of unknown form, or attributes that name no owner.
    Unknown,
}

impl RecordedFor {
    /// Returns the recorded owner; `None` for pods, and if nothing holds the address.
    fn of(claim: &Claim<'_>) -> Option<Self> {
        match claim {
            Claim::Anonymous => Some(Self::NoOwner),
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
    /// Writes the owner as a comparison names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOwner => "no owner",
            Self::VirtualMachine => "virtual machine",
            Self::Tunnel => "tunnel",
            Self::Service => "service",
            Self::Unknown => "unknown",
        })
    }
}

type ByNode = BTreeMap<String, BTreeSet<IpAddr>>;

/// Compares the sources of a snapshot; `None` if pods were not read.
pub fn compare(snapshot: &Snapshot) -> Option<Comparison> {
    if !snapshot.has_read(Source::Pods) {
        return None;
    }
    let context = Context::new(snapshot, &Options::default());
    let sources = Sources::new(&context);
    let mut nodes = Vec::new();
    for node in sources.nodes() {
        nodes.push(sources.compare_node(node));
    }
    Some(Comparison {
        nodes,
        with_endpoints: sources.with_endpoints,
    })
}

/// The addresses that unfinished pods have from Calico.
#[derive(Default)]
struct InKubernetes {
    /// Pods with addresses of their own, by node.
    pods: BTreeMap<String, usize>,
    addresses: ByNode,
    node_of: BTreeMap<IpAddr, String>,
}

/// Collects the addresses of the pods that have some from Calico, by Calico's name of their node.
fn collect_pods(context: &Context<'_>) -> InKubernetes {
    let mut collected = InKubernetes::default();
    for pod in context.snapshot.pods.iter().map(|stored| &stored.value) {
        let addresses: BTreeSet<IpAddr> = pod.addresses().collect();
        if addresses.is_empty() || is_of_other_plugin(context, pod) {
            continue;
        }

        let node = context.index.calico_node(pod.node());
        for address in &addresses {
            collected.node_of.insert(*address, node.clone());
        }
        *collected.pods.entry(node.clone()).or_default() += 1;
        collected.addresses.entry(node).or_default().extend(addresses);
    }
    collected
}

/// Returns true for a pod that another plugin networks: on Kubernetes, such a pod has no annotation of Calico, and no
/// block records its addresses. On etcd, every pod with addresses counts as Calico's.
fn is_of_other_plugin(context: &Context<'_>, pod: &Pod) -> bool {
    if context.snapshot.datastore != DatastoreKind::Kubernetes || pod.is_annotated() {
        return false;
    }
    let is_recorded = |address: IpAddr| context.index.records_of(address).next().is_some();
    !pod.addresses().any(is_recorded)
}

/// Collects the addresses of endpoints by node.
fn collect_endpoints(context: &Context<'_>) -> ByNode {
    let mut addresses = ByNode::new();
    for endpoint in context.snapshot.endpoints.iter().map(|stored| &stored.value) {
        let node = context.index.calico_node(endpoint.node());
        addresses.entry(node).or_default().extend(endpoint.addresses());
    }
    addresses
}

/// The addresses that blocks record for pods and virtual machines, and those that pods use although blocks record them
/// for other owners.
#[derive(Default)]
struct InBlocks {
    addresses: ByNode,
    machines: BTreeSet<IpAddr>,
    others: BTreeMap<IpAddr, RecordedFor>,
}

/// Collects the recorded addresses by node: the node of the pod that the record names, or else of the pod that uses the
/// address, or of the block.
fn collect_records(context: &Context<'_>, node_of: &BTreeMap<IpAddr, String>) -> InBlocks {
    let mut recorded = InBlocks::default();
    for Record { block, allocation } in context.index.records() {
        let address = allocation.address;
        let attribute = allocation.attribute;
        let claim = Claim::of(&attribute);
        if claim == Claim::Machine {
            recorded.machines.insert(address);
        }

        let recorded_for = RecordedFor::of(&claim);
        let node_of_pod = node_of.get(&address);
        if let Some(node) = node_of_pod
            && let Some(recorded_for) = recorded_for
        {
            recorded.others.insert(address, recorded_for);
            recorded
                .addresses
                .entry(node.clone())
                .or_default()
                .insert(address);
            continue;
        }

        // Cooling and reserved addresses are no pod's.
        let is_pod = recorded_for.is_none() && !matches!(claim, Claim::Cooling | Claim::WindowsReserved);
        if is_pod || claim == Claim::Machine {
            let recorded_node = attribute.get("node").map(|node| context.index.calico_node(node));
            let node = recorded_node
                .or_else(|| node_of_pod.cloned())
                .or_else(|| block.host().map(str::to_owned))
                .unwrap_or_default();
            recorded.addresses.entry(node).or_default().insert(address);
        }
    }
    recorded
}

/// The names of all nodes.
fn existing_nodes(snapshot: &Snapshot) -> BTreeSet<String> {
    let nodes = snapshot.nodes.iter();
    nodes.map(|stored| stored.value.name.clone()).collect()
}

/// The addresses of all nodes together.
fn on_all_nodes(by_node: &ByNode) -> BTreeSet<IpAddr> {
    by_node.values().flatten().copied().collect()
}

/// The addresses in each source, collected for a comparison.
struct Sources {
    kubernetes: InKubernetes,
    endpoints: ByNode,
    blocks: InBlocks,
    /// Addresses that are recorded on any node. A migrating virtual machine is recorded on one node, but runs on two.
    all_recorded: BTreeSet<IpAddr>,
    /// Addresses that are used on any node, or held for a virtual machine.
    used: BTreeSet<IpAddr>,
    /// Nodes that exist, also those without any address.
    existing_nodes: BTreeSet<String>,
    with_endpoints: bool,
}

impl Sources {
    /// Collects the addresses that Kubernetes, endpoints and blocks name.
    fn new(context: &Context<'_>) -> Self {
        let kubernetes = collect_pods(context);
        let blocks = collect_records(context, &kubernetes.node_of);
        Self {
            all_recorded: on_all_nodes(&blocks.addresses),
            used: &on_all_nodes(&kubernetes.addresses) | &blocks.machines,
            kubernetes,
            endpoints: collect_endpoints(context),
            blocks,
            existing_nodes: existing_nodes(context.snapshot),
            with_endpoints: context.snapshot.has_read(Source::Endpoints),
        }
    }

    /// The addresses by node, according to Kubernetes, endpoints and blocks.
    fn by_node(&self) -> [&ByNode; 3] {
        [
            &self.kubernetes.addresses,
            &self.endpoints,
            &self.blocks.addresses,
        ]
    }

    /// Returns the names of the nodes to compare: those with addresses in any source, and all that exist.
    fn nodes(&self) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        for source in self.by_node() {
            nodes.extend(source.keys().cloned());
        }
        // Without any address, the cluster does not use Calico IPAM, and nothing can be compared.
        if !nodes.is_empty() {
            nodes.extend(self.existing_nodes.iter().cloned());
        }
        nodes
    }

    /// Compares the addresses of a node in Kubernetes, in endpoints and in blocks.
    fn compare_node(&self, node: String) -> NodeComparison {
        let on_node = |source: &ByNode| source.get(&node).cloned().unwrap_or_default();
        let [running, endpoints, recorded] = self.by_node().map(on_node);

        let mut agreed = 0;
        let mut recorded_elsewhere = BTreeSet::new();
        let mut recorded_for_others = BTreeMap::new();
        for address in &running {
            let is_recorded = self.all_recorded.contains(address);
            let has_endpoint = !self.with_endpoints || endpoints.contains(address);
            if is_recorded && has_endpoint {
                agreed += 1;
            }
            if is_recorded && !recorded.contains(address) && !self.blocks.machines.contains(address) {
                recorded_elsewhere.insert(*address);
            }
            if let Some(recorded_for) = self.blocks.others.get(address) {
                recorded_for_others.insert(*address, *recorded_for);
            }
        }

        let mut without_endpoint = BTreeSet::new();
        let mut endpoint_only = BTreeSet::new();
        if self.with_endpoints {
            without_endpoint = &running - &endpoints;
            endpoint_only = &endpoints - &running;
        }
        NodeComparison {
            pods: self.kubernetes.pods.get(&node).copied().unwrap_or_default(),
            node,
            in_kubernetes: running.len(),
            in_endpoints: endpoints.len(),
            in_blocks: recorded.len(),
            agreed,
            not_recorded: &running - &self.all_recorded,
            recorded_for_others,
            recorded_elsewhere,
            not_used: &recorded - &self.used,
            without_endpoint,
            endpoint_only,
        }
    }
}
