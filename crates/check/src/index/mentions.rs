use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::pod::evidence;
use serde::Serialize;

use super::{Index, Owner};
use crate::finding::{OwnerEvidence, OwnerKind, one_shared};

/// An object that names an address, but might not own it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mention {
    #[serde(flatten, serialize_with = "one_shared")]
    pub owner: Arc<OwnerEvidence>,
    /// The field that names the address.
    pub by: &'static str,
}

/// The pod fields that name addresses, strongest evidence first.
const FIELDS_OF_PODS: [(u8, &str); 6] = [
    (
        evidence::NO_IPAM,
        "annotation cni.projectcalico.org/ipAddrsNoIpam",
    ),
    (evidence::CNI, "annotation cni.projectcalico.org/podIPs"),
    (evidence::STATUS, "status.podIPs"),
    (
        evidence::NETWORK_STATUS,
        "annotation k8s.v1.cni.cncf.io/network-status",
    ),
    (evidence::FLOATING, "annotation cni.projectcalico.org/floatingIPs"),
    (evidence::AWS, "annotation vpc.amazonaws.com/pod-ips"),
];

impl Index<'_> {
    /// Returns the objects that name the address but do not use it, sorted. Searches the entire snapshot.
    pub fn mentions(&self, address: IpAddr) -> Vec<Mention> {
        if !self.is_mentioned(address) {
            return Vec::new();
        }
        let snapshot = self.snapshot;
        let is_it = |named: IpAddr| named == address;
        let pods = (0..).zip(&snapshot.pods).filter_map(|(position, pod)| {
            pod.value.mentioned().any(is_it).then_some(())?;
            let (_, by) = pod.value.evidence().iter().find(|(named, _)| *named == address)?;
            let (_, field) = FIELDS_OF_PODS.iter().find(|(kind, _)| by & kind != 0)?;
            Some((Owner::Pod(position), *field))
        });
        let endpoints = (0..).zip(&snapshot.endpoints);
        let endpoints = endpoints.filter(|(_, endpoint)| endpoint.value.addresses().any(is_it));
        let endpoints = endpoints.map(|(position, _)| (Owner::Endpoint(position), "spec.ipNetworks"));
        let services = (0..).zip(&snapshot.services);
        let services = services.filter(|(_, service)| service.value.ingress.contains(&address));
        let services =
            services.map(|(position, _)| (Owner::Service(position), "status.loadBalancer.ingress"));
        let tunnels = (0..).zip(&snapshot.nodes).flat_map(|(position, node)| {
            let tunnels = node.value.tunnels.iter().filter(|(_, tunnel)| *tunnel == address);
            tunnels.map(move |(kind, _)| (Owner::Tunnel(position, *kind), kind.field()))
        });

        let users: Vec<_> = self
            .uses_of(address)
            .iter()
            .map(|used| self.identity(used.owner))
            .collect();
        let all = pods.chain(endpoints).chain(services).chain(tunnels);
        let others = all.filter(|(owner, _)| !users.contains(&self.identity(*owner)));
        let mut mentions: Vec<Mention> = others
            .map(|(owner, by)| Mention {
                owner: self.describe_owner(owner),
                by,
            })
            .collect();
        mentions.sort_by(|a, b| (&a.owner, a.by).cmp(&(&b.owner, b.by)));
        mentions
    }
}

impl std::fmt::Display for Mention {
    /// Writes `pod shop/web on node-1 (status.podIPs)`, for example.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OwnerEvidence {
            kind,
            name,
            pod,
            node,
            ..
        } = &*self.owner;
        write!(
            f,
            "{kind} {}",
            if *kind == OwnerKind::Endpoint || pod.is_empty() {
                name
            } else {
                pod
            }
        )?;
        if !node.is_empty() {
            write!(f, " on {node}")?;
        }
        write!(f, " ({})", self.by)
    }
}
