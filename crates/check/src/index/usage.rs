//! The users of addresses, according to all evidence that was read.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::block::BlockOwner;
use calipam_model::endpoint::Endpoint;
use calipam_model::key::Key;
use calipam_model::parallel::{OBJECTS, in_parts};
use calipam_model::pod::{Pod, evidence};
use calipam_model::pool::PoolUse;
use calipam_model::service::Service;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};
use calipam_model::text::TextRef;

use super::blocks::blocks_around;
use super::{IndexedBlock, Owner, PodName, Use};
use crate::claim::{Claim, names_service};
use crate::{FastMap, FastSet};

/// Another IPAM that assigns addresses to some owners instead of Calico IPAM.
#[derive(Clone, Copy)]
pub(super) struct OtherIpam {
    /// True if Calico IPAM serves only services.
    pub serves_pods_and_tunnels: bool,
    /// True if host-local serves the pods, and the tunnels whose addresses are in their nodes' ranges.
    pub is_host_local: bool,
}

/// Returns the uses of addresses by live owners, and the addresses that objects merely name; both ascending.
pub(super) fn find_users(
    snapshot: &Snapshot,
    blocks: &[IndexedBlock<'_>],
    pods: &FastMap<PodName<'_>, u32>,
    nodes_in_pools: &FastMap<IpAddr, u32>,
    departed_nodes: &FastSet<&str>,
    other_ipam: OtherIpam,
) -> (Vec<Use>, Vec<IpAddr>) {
    // With a million endpoints, this takes a long time, mostly for sorting, so it is done in parallel.
    let parts = in_parts(OBJECTS, snapshot.endpoints.len(), |range| {
        let mut part = Usage::default();
        part.uses.reserve(range.len());
        part.add_endpoints(snapshot, range, pods);
        part.uses.sort_unstable();
        part
    });
    let mut usage = Usage::default();
    usage
        .uses
        .reserve(snapshot.endpoints.len() + snapshot.pods.len() + 2 * snapshot.nodes.len());
    for part in parts {
        usage.uses.extend(part.uses);
        usage.mentioned.extend(part.mentioned);
        usage.with_endpoint.extend(part.with_endpoint);
    }

    usage.add_pods(snapshot);
    if other_ipam.is_host_local {
        usage.only_mention_uses();
    }
    for (position, node) in (0..).zip(&snapshot.nodes) {
        if departed_nodes.contains(node.value.name.as_str()) {
            continue;
        }
        // With `usePodCIDR`, tunnel addresses are from the node's range, too.
        let is_of_range = |address| node.value.pod_cidrs.iter().any(|range| range.contains(address));
        for (kind, address) in &node.value.tunnels {
            if other_ipam.is_host_local && is_of_range(address) {
                usage.mentioned.push(*address);
            } else {
                usage.uses.push(Use {
                    address: *address,
                    owner: Owner::Tunnel(position, *kind),
                });
            }
        }
    }
    if other_ipam.serves_pods_and_tunnels {
        // Addresses that another IPAM gave to pods and tunnels can be in Calico's pools.
        usage.only_mention_uses();
    }
    usage.add_services(snapshot, blocks);
    usage.mentioned.extend(nodes_in_pools.keys());
    // Unlike an unstable sort, this one benefits from parts that are already sorted.
    usage.uses.sort();
    usage.mentioned.sort_unstable();
    usage.mentioned.dedup();
    (usage.uses, usage.mentioned)
}

/// Returns true if Calico IPAM serves only LoadBalancer services, since no node has or had a block. In this case, pods
/// and tunnels get their addresses from another IPAM, such as host-local, even if Calico's CNI plugin is in use.
pub(crate) fn is_for_services_only(snapshot: &Snapshot) -> bool {
    let is_any_stored = !snapshot.blocks.is_empty() || !snapshot.affinities.is_empty();
    if !is_any_stored || !knows_all_records(snapshot) {
        return false;
    }
    let mut blocks = snapshot.blocks.iter().map(|stored| &stored.value.content);
    let mut affinities = snapshot.affinities.iter().map(|stored| &stored.value.key);
    let mut handles = snapshot.handles.iter().map(|stored| stored.value.id());
    blocks.all(|block| matches!(block.owner(), Some(BlockOwner::Virtual(_))))
        && affinities.all(|key| key.kind == AffinityType::Virtual)
        && handles.all(is_of_service)
}

/// Returns true if all blocks, affinities and handles were read and decoded. One that was not could be of a node.
fn knows_all_records(snapshot: &Snapshot) -> bool {
    let sources = [Source::Blocks, Source::Affinities, Source::Handles];
    if !sources.into_iter().all(|source| snapshot.has_read(source)) {
        return false;
    }
    let is_record = |key: &Option<Key>| {
        matches!(
            key,
            None | Some(Key::Block(_) | Key::Affinity(_) | Key::Handle(_))
        )
    };
    !snapshot.defects.iter().any(|defect| is_record(&defect.key))
}

/// Returns true if a handle's ID has the form of those of services.
fn is_of_service(id: TextRef<'_>) -> bool {
    let clean_id = id.cut_at_carriage_return().to_string();
    Claim::of_handle(&clean_id) == Claim::Service
}

/// Returns the names of nodes that endpoints and unfinished pods name. Endpoints are stored node by node, so
/// most name the same node as the one before.
pub(super) fn nodes_of_workloads(snapshot: &Snapshot) -> FastSet<TextRef<'_>> {
    let endpoints = snapshot.endpoints.iter().map(|endpoint| endpoint.value.node());
    let unfinished_pods = snapshot.pods.iter().filter(|pod| !pod.value.finished);
    let mut nodes = FastSet::default();
    let mut previous = None;
    for node in endpoints.chain(unfinished_pods.map(|pod| pod.value.node())) {
        if previous != Some(node) {
            nodes.insert(node);
            previous = Some(node);
        }
    }
    nodes
}

/// Returns true unless pods were read and the endpoint's pod is gone or has finished. Another orchestrator's endpoint
/// is always live.
pub(crate) fn is_live(endpoint: &Endpoint, pod: Option<&Pod>, pods_read: bool) -> bool {
    !pods_read || endpoint.pod().is_empty() || pod.is_some_and(|pod| !pod.finished)
}

#[derive(Default)]
struct Usage {
    uses: Vec<Use>,
    mentioned: Vec<IpAddr>,
    /// Pods that have an endpoint, by position.
    with_endpoint: HashSet<u32>,
}

impl Usage {
    /// Turns all uses into addresses that objects merely name.
    fn only_mention_uses(&mut self) {
        self.mentioned
            .extend(self.uses.drain(..).map(|used| used.address));
    }

    /// Adds the addresses that live endpoints use, except those that bypass IPAM. The addresses of other endpoints, and
    /// of OpenStack endpoints, are added to the addresses that are merely named. OpenStack addresses are assigned,
    /// shared and moved by Neutron.
    fn add_endpoints(&mut self, snapshot: &Snapshot, range: Range<usize>, pods: &FastMap<PodName<'_>, u32>) {
        let pods_read = snapshot.has_read(Source::Pods);
        for (position, endpoint) in (range.start as u32..).zip(&snapshot.endpoints[range]) {
            let endpoint = &endpoint.value;
            let pod_position = if pods.is_empty() {
                None
            } else {
                pods.get(&(endpoint.namespace().packed(), endpoint.pod().packed()))
            };
            self.with_endpoint.extend(pod_position);
            let pod = pod_position.map(|position| &snapshot.pods[*position as usize].value);
            if !is_live(endpoint, pod, pods_read) || endpoint.is_of_openstack() {
                self.mentioned.extend(endpoint.addresses());
                continue;
            }
            let owner = Owner::Endpoint(position);
            let uses = endpoint.addresses().map(|address| Use { address, owner });
            let Some(pod) = pod else {
                self.uses.extend(uses);
                continue;
            };
            let bypassing: HashSet<IpAddr> = pod.named_by(evidence::NO_IPAM).collect();
            self.uses
                .extend(uses.filter(|used| !bypassing.contains(&used.address)));
        }
    }

    /// Adds the addresses that pods use. A pod owns the addresses in its annotation. If an address is only in the pod's
    /// status, the pod owns it only if Calico networks the pod. With the Kubernetes datastore, the CNI plugin's
    /// annotation shows whether Calico does.
    ///
    /// With the etcd datastore, the plugin writes no annotation, and the status can be older than the sandbox, so the
    /// pod's endpoint decides. Without an endpoint, a pod that is terminating or not ready has no sandbox with a
    /// network, and its address could belong to another pod. A node that Calico does not know uses another plugin.
    fn add_pods(&mut self, snapshot: &Snapshot) {
        if snapshot.pods.is_empty() {
            return;
        }
        let mut node_names: FastSet<&str> = FastSet::default();
        for node in &snapshot.nodes {
            node_names.extend(node.value.names());
        }

        for (position, stored) in (0..).zip(&snapshot.pods) {
            let pod = &stored.value;
            let owns_status = || match snapshot.datastore {
                DatastoreKind::Kubernetes => pod.is_annotated(),
                DatastoreKind::Etcd | DatastoreKind::EtcdV2 => {
                    let has_network = pod.ready && !pod.deleting;
                    let is_on_calico_node = || node_names.contains(pod.node().to_string().as_str());
                    !self.with_endpoint.contains(&position) && has_network && is_on_calico_node()
                }
            };
            if pod.has_cni_annotation || owns_status() {
                let owner = Owner::Pod(position);
                let addresses = pod.addresses();
                self.uses.extend(addresses.map(|address| Use { address, owner }));
            }
            self.mentioned.extend(pod.mentioned());
        }
    }

    /// Adds the addresses that services use. A service that Calico serves owns the ingress addresses that are in a pool
    /// for LoadBalancers, or that a block records for the service. All other ingress addresses are merely named.
    fn add_services(&mut self, snapshot: &Snapshot, blocks: &[IndexedBlock<'_>]) {
        let controller = snapshot.serves_services();
        let controller = controller.and_then(Result::ok).unwrap_or_default();
        let mut offered_cidrs: Vec<IpNet> = Vec::new();
        for pool in &snapshot.pools {
            if pool.value.allows(PoolUse::LoadBalancer) {
                offered_cidrs.push(pool.value.cidr);
            }
        }

        for (position, service) in (0..).zip(&snapshot.services) {
            let service = &service.value;
            let is_managed = service.is_managed(controller);
            for address in &service.ingress {
                let is_offered = || offered_cidrs.iter().any(|cidr| cidr.contains(address));
                let is_owned = is_managed && (is_offered() || is_recorded_for(blocks, service, *address));
                if !is_owned {
                    self.mentioned.push(*address);
                    continue;
                }
                self.uses.push(Use {
                    address: *address,
                    owner: Owner::Service(position),
                });
            }
        }
    }
}

/// Returns true if a readable block records the address for the service.
fn is_recorded_for(blocks: &[IndexedBlock<'_>], service: &Service, address: IpAddr) -> bool {
    for block in blocks_around(blocks, address) {
        let allocation = block.usable.and_then(|usable| usable.allocation_of(address));
        let Some(allocation) = allocation else { continue };
        let record = &allocation.attribute;
        if Claim::of(record) == Claim::Service && names_service(record, service) {
            return true;
        }
    }
    false
}
