//! Lookups over a snapshot, built once per check.

mod blocks;
mod broken;
mod host_local;
mod mentions;
mod nodes;
mod owners;
mod serving;
mod stored;
mod usage;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::cidr_set::{inside, within};
use calipam_model::endpoint::{Endpoint, EndpointTexts};
use calipam_model::names::EndpointName;
use calipam_model::node::TunnelKind;
use calipam_model::pod::Pod;
use calipam_model::pool::Pool;
use calipam_model::service::Service;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use calipam_model::{IpNet, cidr};
use jiff::Timestamp;

use self::blocks::index_blocks;
pub use self::blocks::{IndexedBlock, Record};
use self::broken::find_broken;
pub(crate) use self::host_local::is_host_local;
pub use self::mentions::Mention;
use self::nodes::{departed_nodes, nodes_in_pools};
pub(crate) use self::serving::keeps_data_elsewhere;
pub(crate) use self::stored::Stored;
use self::usage::OtherIpam;
pub(crate) use self::usage::{is_for_services_only, is_live};
use crate::claim::is_launcher;
use crate::finding::OwnerEvidence;
use crate::{FastMap, FastSet};

/// The user of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The endpoint at this position in the snapshot.
    Endpoint(u32),
    /// The pod at this position in the snapshot.
    Pod(u32),
    /// A tunnel of the node at this position in the snapshot.
    Tunnel(u32, TunnelKind),
    /// The LoadBalancer service at this position in the snapshot.
    Service(u32),
}

/// The description of an endpoint or a pod. Missing values are empty.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'s> {
    pub namespace: TextRef<'s>,
    pub pod: TextRef<'s>,
    pub node: TextRef<'s>,
    /// The ID of the pod's sandbox.
    pub container_id: TextRef<'s>,
    /// The workload name, for orchestrators other than Kubernetes.
    pub workload: TextRef<'s>,
    /// The virtual machine in the pod's owner reference; empty if there is none. `None` for a `virt-launcher-` pod that
    /// was not read.
    pub machine: Option<TextRef<'s>>,
}

/// The identity of an owner. An endpoint and its pod have the same identity, and so do all tunnels of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'s> {
    /// A pod, by namespace and name.
    Pod(TextRef<'s>, TextRef<'s>),
    /// An endpoint of an orchestrator other than Kubernetes, by position.
    Endpoint(u32),
    /// A node, by position.
    Node(u32),
    /// A service, by position.
    Service(u32),
}

/// One use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub address: IpAddr,
    pub owner: Owner,
}

/// An endpoint or pod that cannot be fully decoded. An owner that its key names is not considered gone.
#[derive(Debug)]
pub struct BrokenWorkload<'s> {
    pub namespace: &'s str,
    /// The parts of an endpoint's name, if the name can be split; for a pod, the workload is the pod's name.
    pub name: Option<EndpointName>,
}

/// A pod's namespace and name, packed.
type PodName<'s> = (&'s [u8], &'s [u8]);

/// Lookups over a snapshot.
#[derive(Debug)]
pub struct Index<'s> {
    pub snapshot: &'s Snapshot,
    /// Blocks, ascending by CIDR.
    pub blocks: Vec<IndexedBlock<'s>>,
    /// Every use of an address by a live owner, ascending by address.
    pub uses: Vec<Use>,
    /// Addresses that objects name, but might not own, ascending. Such an address is never reported as leaked.
    mentioned: Vec<IpAddr>,
    pods: FastMap<PodName<'s>, u32>,
    /// The positions of the nodes whose own address is in a pool, by that address.
    nodes_in_pools: FastMap<IpAddr, u32>,
    /// CIDRs of blocks that are corrupt or cannot be decoded. Affinities and handles that refer to these blocks are not
    /// checked.
    pub(crate) unchecked: HashSet<IpNet>,
    /// The CIDRs in `unchecked` that belong to blocks whose records cannot be read.
    unknown: Vec<IpNet>,
    nodes: FastMap<&'s str, u32>,
    /// Calico node names, by Kubernetes node name.
    calico_nodes: FastMap<&'s str, &'s str>,
    /// The Calico names of nodes that no longer exist in Kubernetes.
    departed_nodes: FastSet<&'s str>,
    /// Kubernetes node names, if Kubernetes was read in addition to etcd.
    kubernetes_nodes: FastSet<&'s str>,
    broken_nodes: HashSet<&'s str>,
    /// The nodes that endpoints and unfinished pods name.
    pub(crate) nodes_of_workloads: FastSet<TextRef<'s>>,
    /// Endpoints and pods that cannot be decoded, or have an undecodable address.
    pub broken_workloads: Vec<BrokenWorkload<'s>>,
    /// Evidence about owners with many addresses.
    pub(crate) large_owners: HashMap<Owner, Arc<OwnerEvidence>>,
    /// True if a pool cannot be decoded, so any address could be in it.
    pub pools_incomplete: bool,
    /// True if Calico IPAM serves only LoadBalancer services.
    pub(crate) services_only: bool,
    /// The number of pods with addresses from host-local, if host-local serves all pods and Calico IPAM serves none;
    /// otherwise 0.
    pub(crate) host_local_pods: usize,
}

impl<'s> Index<'s> {
    /// Builds the lookups. A block is corrupt if it contains a release time that is later than `now` by more than the
    /// permitted clock skew.
    pub fn new(snapshot: &'s Snapshot, now: Timestamp) -> Self {
        Self::build(snapshot, now, usage::is_for_services_only(snapshot))
    }

    /// Builds the lookups for a cluster whose nodes use Calico IPAM, even if the snapshot does not show it.
    pub(crate) fn of_nodes(snapshot: &'s Snapshot, now: Timestamp) -> Self {
        let services_only = false;
        Self::build(snapshot, now, services_only)
    }

    /// Builds the lookups. If `services_only` is true, pods and tunnels get their addresses from another IPAM.
    fn build(snapshot: &'s Snapshot, now: Timestamp, services_only: bool) -> Self {
        let blocks = index_blocks(snapshot, now);
        let mut unchecked: HashSet<IpNet> = HashSet::new();
        let mut unknown: Vec<IpNet> = Vec::new();
        for block in &blocks {
            if block.sound.is_none() {
                unchecked.insert(block.key);
            }
            if block.usable.is_none() {
                unknown.push(block.key);
            }
        }
        unchecked.extend(snapshot.hidden_blocks());
        unknown.extend(snapshot.hidden_blocks());

        let mut nodes: FastMap<&str, u32> = FastMap::default();
        let mut calico_nodes: FastMap<&str, &str> = FastMap::default();
        for (position, node) in (0..).zip(&snapshot.nodes) {
            nodes.insert(&node.value.name, position);
            if let Some(kubernetes_name) = &node.value.kubernetes_name {
                calico_nodes.insert(kubernetes_name, &node.value.name);
            }
        }
        let kubernetes_nodes: FastSet<&str> = snapshot
            .kubernetes_nodes
            .iter()
            .map(|node| node.value.name.as_str())
            .collect();
        let departed_nodes = departed_nodes(snapshot, &kubernetes_nodes);
        let mut pods: FastMap<PodName<'s>, u32> = FastMap::default();
        pods.reserve(snapshot.pods.len());
        for (position, pod) in (0..).zip(&snapshot.pods) {
            let name = (pod.value.namespace().packed(), pod.value.name().packed());
            pods.insert(name, position);
        }
        let nodes_in_pools = nodes_in_pools(snapshot, &departed_nodes);
        let host_local_pods = host_local::count_pods(snapshot, &blocks);
        let other_ipam = OtherIpam {
            serves_pods_and_tunnels: services_only,
            is_host_local: host_local_pods > 0,
        };
        // With a million endpoints, both passes take a long time, so they run at the same time.
        let ((uses, mentioned), nodes_of_workloads) = std::thread::scope(|scope| {
            let nodes = scope.spawn(|| usage::nodes_of_workloads(snapshot));
            let users = usage::find_users(
                snapshot,
                &blocks,
                &pods,
                &nodes_in_pools,
                &departed_nodes,
                other_ipam,
            );
            let nodes = nodes.join();
            (
                users,
                nodes.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        });

        let broken = find_broken(snapshot);
        let mut index = Self {
            snapshot,
            blocks,
            uses,
            mentioned,
            pods,
            nodes_in_pools,
            unchecked,
            unknown,
            nodes,
            calico_nodes,
            departed_nodes,
            kubernetes_nodes,
            broken_nodes: broken.nodes,
            nodes_of_workloads,
            broken_workloads: broken.workloads,
            large_owners: HashMap::new(),
            pools_incomplete: broken.has_pool,
            services_only,
            host_local_pods,
        };
        index.large_owners = index.large_owners();
        index
    }

    /// Returns true if a corrupt or undecodable block overlaps `cidr`.
    pub fn is_unchecked(&self, cidr: IpNet) -> bool {
        self.unchecked.iter().any(|block| cidr::overlap(*block, cidr))
    }

    /// Returns true if a block whose records cannot be read overlaps `cidr`.
    pub(crate) fn is_unknown(&self, cidr: IpNet) -> bool {
        self.unknown.iter().any(|block| cidr::overlap(*block, cidr))
    }

    /// Returns the block whose key is exactly this CIDR.
    pub fn block(&self, key: IpNet) -> Option<&IndexedBlock<'s>> {
        let position = self.blocks.binary_search_by_key(&key, |block| block.key).ok()?;
        self.blocks.get(position)
    }

    /// Returns the blocks that contain an address, the largest first.
    pub fn blocks_around(
        &self,
        address: IpAddr,
    ) -> impl DoubleEndedIterator<Item = &IndexedBlock<'s>> + Clone {
        blocks::blocks_around(&self.blocks, address)
    }

    /// Returns the largest block that contains an address, and all blocks inside of that one.
    pub(crate) fn group_around(&self, address: IpAddr) -> &[IndexedBlock<'s>] {
        let Some(largest) = self.blocks_around(address).next() else {
            return &[];
        };
        &self.blocks[inside(&self.blocks, largest.key, |block| block.key)]
    }

    /// Returns all records in readable blocks, block by block.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_, 's>> {
        let blocks = self.blocks.iter();
        let readable = blocks.filter_map(|block| Some((block, block.usable?)));
        readable.flat_map(|(block, usable)| {
            let allocations = usable.allocations();
            allocations.map(move |allocation| Record { block, allocation })
        })
    }

    /// Returns the records of an address in readable blocks.
    pub fn records_of(&self, address: IpAddr) -> impl DoubleEndedIterator<Item = Record<'_, 's>> {
        let around = self.blocks_around(address);
        around.filter_map(move |block| {
            Some(Record {
                block,
                allocation: block.usable?.allocation_of(address)?,
            })
        })
    }

    /// Returns all pools, ascending by CIDR.
    pub(crate) fn pools(&self) -> Vec<&'s Pool> {
        let mut pools: Vec<&Pool> = self.snapshot.pools.iter().map(|pool| &pool.value).collect();
        pools.sort_by(|a, b| (a.cidr, &a.name).cmp(&(b.cidr, &b.name)));
        pools
    }

    /// Returns the pools that contain all of `cidr`, including disabled ones.
    pub fn pools_around(&self, cidr: IpNet) -> impl Iterator<Item = &'s Pool> + '_ {
        self.snapshot
            .pools
            .iter()
            .map(|pool| &pool.value)
            .filter(move |pool| pool.cidr.contains(&cidr))
    }

    /// Returns the pool from which an address is assigned. If enabled pools overlap, this is the first one by name.
    pub fn enabled_pool_around(&self, address: IpAddr) -> Option<&'s Pool> {
        self.pools_around(address.into())
            .filter(|pool| pool.is_enabled())
            .min_by_key(|pool| &pool.name)
    }

    /// Returns the position of a pod.
    pub fn pod(&self, namespace: TextRef<'_>, name: TextRef<'_>) -> Option<u32> {
        self.pods.get(&(namespace.packed(), name.packed())).copied()
    }

    /// Returns the position of an owner's pod, if it was read.
    pub fn pod_of(&self, owner: Owner) -> Option<u32> {
        match owner {
            Owner::Pod(position) => Some(position),
            Owner::Endpoint(position) => {
                let endpoint = self.endpoint(position);
                self.pod(endpoint.namespace(), endpoint.pod())
            }
            Owner::Tunnel(..) | Owner::Service(_) => None,
        }
    }

    /// Returns true if an object names the address, but might not own it. This includes all addresses of unfinished
    /// pods.
    pub fn is_mentioned(&self, address: IpAddr) -> bool {
        self.mentioned.binary_search(&address).is_ok()
    }

    /// Returns the addresses in `cidr`, ascending, that objects name, but might not own.
    pub fn mentioned_in(&self, cidr: IpNet) -> &[IpAddr] {
        within(&self.mentioned, cidr, |address| *address)
    }

    /// Returns the object that an owner stands for. An endpoint and the pod of the same name are one object.
    pub fn identity(&self, owner: Owner) -> Identity<'s> {
        match owner {
            Owner::Tunnel(position, _) => Identity::Node(position),
            Owner::Service(position) => Identity::Service(position),
            Owner::Pod(position) => {
                let pod = &self.snapshot.pods[position as usize].value;
                Identity::Pod(pod.namespace(), pod.name())
            }
            Owner::Endpoint(position) => {
                let endpoint = self.endpoint(position);
                if endpoint.pod().is_empty() {
                    return Identity::Endpoint(position);
                }
                Identity::Pod(endpoint.namespace(), endpoint.pod())
            }
        }
    }

    /// Returns the names and IDs of an endpoint or pod; `None` for tunnels and services. The machine of a launcher's
    /// endpoint is that of its pod, and not known if the pod was not read.
    pub fn workload(&self, owner: Owner) -> Option<Workload<'s>> {
        let pod_at = |position: u32| &self.snapshot.pods[position as usize].value;
        let texts;
        let machine;
        match owner {
            Owner::Endpoint(position) => {
                texts = self.endpoint(position).texts();
                machine = if is_launcher(texts.pod) {
                    let pod_position = self.pod(texts.namespace, texts.pod);
                    pod_position.map(|position| pod_at(position).machine())
                } else {
                    Some(TextRef::EMPTY)
                };
            }
            Owner::Pod(position) => {
                texts = texts_of_pod(pod_at(position));
                machine = Some(pod_at(position).machine());
            }
            Owner::Tunnel(..) | Owner::Service(_) => return None,
        }
        Some(Workload {
            namespace: texts.namespace,
            pod: texts.pod,
            node: texts.node,
            container_id: texts.container_id,
            workload: texts.workload,
            machine,
        })
    }

    /// Returns the service of an [`Owner::Service`].
    pub fn service(&self, position: u32) -> &'s Service {
        &self.snapshot.services[position as usize].value
    }

    /// Returns the endpoint of an [`Owner::Endpoint`].
    pub fn endpoint(&self, position: u32) -> &'s Endpoint {
        &self.snapshot.endpoints[position as usize].value
    }

    /// Returns the uses of addresses in `cidr`, ascending.
    pub fn uses_in(&self, cidr: IpNet) -> &[Use] {
        within(&self.uses, cidr, |used| used.address)
    }

    /// Returns true if the endpoint or pod uses any address.
    pub fn is_user(&self, owner: Owner) -> bool {
        let addresses: Vec<IpAddr> = match owner {
            Owner::Endpoint(position) => self.endpoint(position).addresses().collect(),
            Owner::Pod(position) => self.snapshot.pods[position as usize].value.addresses().collect(),
            Owner::Tunnel(..) | Owner::Service(_) => return false,
        };
        for address in addresses {
            if self.uses_of(address).iter().any(|used| used.owner == owner) {
                return true;
            }
        }
        false
    }

    pub fn uses_of(&self, address: IpAddr) -> &[Use] {
        self.uses_in(address.into())
    }
}

/// Returns a pod's names and IDs in the same form as those of an endpoint.
pub(crate) fn texts_of_pod(pod: &Pod) -> EndpointTexts<'_> {
    EndpointTexts {
        namespace: pod.namespace(),
        node: pod.node(),
        pod: pod.name(),
        container_id: pod.container_id(),
        workload: TextRef::EMPTY,
    }
}
