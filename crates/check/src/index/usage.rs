//! Who uses which address, by all evidence that was read.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::pool::PoolUse;
use calipam_model::service::Service;
use calipam_model::snapshot::{Snapshot, Source};

use super::{IndexedBlock, Owner, PodName, Use};
use crate::record::{Claim, names_service};

/// Uses by live owners, and addresses that are merely named; both ascending.
pub(super) fn of(
    snapshot: &Snapshot,
    blocks: &[IndexedBlock<'_>],
    pods: &HashMap<PodName<'_>, u32>,
) -> (Vec<Use>, Vec<IpAddr>) {
    let mut usage = Usage {
        uses: Vec::with_capacity(snapshot.endpoints.len() + snapshot.pods.len() + 2 * snapshot.nodes.len()),
        mentioned: Vec::new(),
        with_endpoint: HashSet::new(),
    };
    usage.endpoints(snapshot, pods);
    usage.pods(snapshot);
    usage.services(snapshot, blocks);
    for (position, node) in (0..).zip(&snapshot.nodes) {
        let tunnels = node.value.tunnels.iter();
        usage.uses.extend(
            tunnels.map(|(kind, address)| Use { address: *address, owner: Owner::Tunnel(position, *kind) }),
        );
    }
    usage.uses.sort_unstable();
    usage.mentioned.sort_unstable();
    usage.mentioned.dedup();
    (usage.uses, usage.mentioned)
}

struct Usage {
    uses: Vec<Use>,
    mentioned: Vec<IpAddr>,
    /// Pods that have an endpoint, by position.
    with_endpoint: HashSet<u32>,
}

impl Usage {
    /// An endpoint is live unless pods were read and its pod is gone or finished; that of another
    /// orchestrator always is.
    fn endpoints(&mut self, snapshot: &Snapshot, pods: &HashMap<PodName<'_>, u32>) {
        let pods_read = snapshot.has_read(Source::Pods);
        for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
            let endpoint = &endpoint.value;
            let pod = pods.get(&(endpoint.namespace().packed(), endpoint.pod().packed()));
            self.with_endpoint.extend(pod);
            let unfinished = |position: &u32| !snapshot.pods[*position as usize].value.finished;
            if !pods_read || endpoint.pod().is_empty() || pod.is_some_and(unfinished) {
                let owner = Owner::Endpoint(position);
                self.uses.extend(endpoint.addresses().map(|address| Use { address, owner }));
            } else {
                self.mentioned.extend(endpoint.addresses());
            }
        }
    }

    /// The status of a pod may be older than its sandbox: with an endpoint, and no annotation, the endpoint alone says
    /// what the pod uses. Where endpoints were read, a terminating pod without one has none any more: CNI DEL took it
    /// away, and the address may be another's.
    fn pods(&mut self, snapshot: &Snapshot) {
        let endpoints_read = snapshot.has_read(Source::Endpoints);
        for (position, pod) in (0..).zip(&snapshot.pods) {
            let by_endpoint =
                self.with_endpoint.contains(&position) || (endpoints_read && pod.value.deleting);
            if pod.value.has_cni_annotation || !by_endpoint {
                let owned = pod.value.addresses();
                self.uses.extend(owned.map(|address| Use { address, owner: Owner::Pod(position) }));
            }
            self.mentioned.extend(pod.value.mentioned());
        }
    }

    /// A service that Calico serves owns the ingress addresses that lie in a pool for LoadBalancers, or that
    /// a block records for a service. All others are named at most.
    fn services(&mut self, snapshot: &Snapshot, blocks: &[IndexedBlock<'_>]) {
        let assign = snapshot.kube_controllers.as_ref().and_then(|c| c.assign_ips).unwrap_or_default();
        let pools = snapshot.pools.iter().filter(|p| p.value.allows(PoolUse::LoadBalancer));
        let pools: Vec<IpNet> = pools.map(|p| p.value.cidr).collect();
        for (position, service) in (0..).zip(&snapshot.services) {
            for address in &service.value.ingress {
                let offered = pools.iter().any(|pool| pool.contains(address));
                let managed = service.value.is_managed(assign);
                if managed && (offered || is_recorded_for(blocks, &service.value, *address)) {
                    self.uses.push(Use { address: *address, owner: Owner::Service(position) });
                } else {
                    self.mentioned.push(*address);
                }
            }
        }
    }
}

fn is_recorded_for(blocks: &[IndexedBlock<'_>], service: &Service, address: IpAddr) -> bool {
    let around = blocks.iter().filter(|b| b.key.contains(&address));
    let mut records = around.filter_map(|b| b.sound?.allocation_of(address));
    records.any(|a| Claim::of(&a.attribute) == Claim::Service && names_service(&a.attribute, service))
}
