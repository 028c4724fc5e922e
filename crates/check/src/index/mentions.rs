use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::pod::{Pod, evidence};
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
        let users: Vec<_> = self
            .uses_of(address)
            .iter()
            .map(|used| self.identity(used.owner))
            .collect();
        let mut mentions = Vec::new();
        for (owner, by) in self.owners_that_name(address) {
            if !users.contains(&self.identity(owner)) {
                mentions.push(Mention {
                    owner: self.describe_owner(owner),
                    by,
                });
            }
        }
        mentions.sort_by(|a, b| (&a.owner, a.by).cmp(&(&b.owner, b.by)));
        mentions
    }

    /// Returns the objects that name the address, each with the name of the field.
    fn owners_that_name(&self, address: IpAddr) -> Vec<(Owner, &'static str)> {
        let snapshot = self.snapshot;
        let mut owners = Vec::new();
        for (position, pod) in (0..).zip(&snapshot.pods) {
            if let Some(field) = field_of_pod(&pod.value, address) {
                owners.push((Owner::Pod(position), field));
            }
        }
        for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
            if endpoint.value.addresses().any(|named| named == address) {
                owners.push((Owner::Endpoint(position), "spec.ipNetworks"));
            }
        }
        for (position, service) in (0..).zip(&snapshot.services) {
            if service.value.ingress.contains(&address) {
                owners.push((Owner::Service(position), "status.loadBalancer.ingress"));
            }
        }
        for (position, node) in (0..).zip(&snapshot.nodes) {
            for (kind, tunnel) in &node.value.tunnels {
                if *tunnel == address {
                    owners.push((Owner::Tunnel(position, *kind), kind.field()));
                }
            }
        }
        owners
    }
}

/// Returns the field in which a pod names an address, the one with the strongest evidence; `None` if there is none.
fn field_of_pod(pod: &Pod, address: IpAddr) -> Option<&'static str> {
    if !pod.mentioned().any(|mentioned| mentioned == address) {
        return None;
    }
    let (_, sources) = pod.evidence().iter().find(|(named, _)| *named == address)?;
    // The fields are in the order of their strength.
    for (source, field) in FIELDS_OF_PODS {
        if sources & source != 0 {
            return Some(field);
        }
    }
    None
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
        let shown_name = if *kind == OwnerKind::Endpoint || pod.is_empty() {
            name
        } else {
            pod
        };
        write!(f, "{kind} {shown_name}")?;
        if !node.is_empty() {
            write!(f, " on {node}")?;
        }
        write!(f, " ({})", self.by)
    }
}
