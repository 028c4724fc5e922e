//! Evidence about address users.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::text::TextRef;

use super::{Index, Owner, Use};
use crate::finding::{LISTED_FIELDS, OwnerEvidence, OwnerField, OwnerKind};

/// The maximum number of characters of a container ID in a finding. A real ID has 64, but a pod's annotation can
/// contain any text.
const LONGEST_ID: usize = 256;

impl Index<'_> {
    /// Describes the users of an address, sorted by kind and name.
    pub(crate) fn describe_users(&self, address: IpAddr, uses: &[Use]) -> Vec<Arc<OwnerEvidence>> {
        let mut users: Vec<Arc<OwnerEvidence>> = Vec::with_capacity(uses.len());
        for used in uses {
            users.push(self.describe_user(address, used.owner));
        }
        if let Some(node) = self.node_of_own_address(address) {
            users.push(Arc::new(OwnerEvidence {
                node: node.name.clone(),
                fields: vec![OwnerField::Address(address)],
                ..OwnerEvidence::new(OwnerKind::Node, node.name.clone())
            }));
        }
        users.sort();
        users
    }

    /// Describes the user of an address, with the pod's annotation that names this address, if there is one.
    fn describe_user(&self, address: IpAddr, owner: Owner) -> Arc<OwnerEvidence> {
        let described = self.describe_owner(owner);
        let Owner::Pod(position) = owner else {
            return described;
        };
        match self.snapshot.pods[position as usize].value.annotation_of(address) {
            Some(annotation) => Arc::new(OwnerEvidence {
                annotation: Some(annotation),
                ..OwnerEvidence::clone(&described)
            }),
            None => described,
        }
    }

    /// Describes an owner with its first addresses.
    pub(crate) fn describe_owner(&self, owner: Owner) -> Arc<OwnerEvidence> {
        self.large_owners
            .get(&owner)
            .cloned()
            .unwrap_or_else(|| Arc::new(self.describe(owner, LISTED_FIELDS)))
    }

    /// Describes an owner with all its addresses.
    pub(crate) fn describe_fully(&self, owner: Owner) -> OwnerEvidence {
        self.describe(owner, usize::MAX)
    }

    /// Describes the owners that have more addresses than a finding lists. All findings share these descriptions, since
    /// there can be a finding for each of the addresses.
    pub(super) fn large_owners(&self) -> HashMap<Owner, Arc<OwnerEvidence>> {
        let snapshot = self.snapshot;
        let mut large = Vec::new();
        for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
            if endpoint.value.address_count() > LISTED_FIELDS {
                large.push(Owner::Endpoint(position));
            }
        }
        for (position, pod) in (0..).zip(&snapshot.pods) {
            if pod.value.evidence().len() > LISTED_FIELDS {
                large.push(Owner::Pod(position));
            }
        }
        for (position, service) in (0..).zip(&snapshot.services) {
            if service.value.ingress.len() > LISTED_FIELDS {
                large.push(Owner::Service(position));
            }
        }

        let mut descriptions = HashMap::new();
        for owner in large {
            descriptions.insert(owner, Arc::new(self.describe(owner, LISTED_FIELDS)));
        }
        descriptions
    }

    /// Describes an owner for a finding, with at most `most` of the fields in which it names addresses.
    fn describe(&self, owner: Owner, most: usize) -> OwnerEvidence {
        match owner {
            Owner::Endpoint(position) => {
                let endpoint = self.endpoint(position);
                let namespace = endpoint.namespace();
                let pod = endpoint.pod();
                let evidence = OwnerEvidence {
                    node: endpoint.node().to_string(),
                    pod: if pod.is_empty() {
                        String::new()
                    } else {
                        format!("{namespace}/{pod}")
                    },
                    container_id: container_id(endpoint.container_id()),
                    ..OwnerEvidence::new(OwnerKind::Endpoint, format!("{namespace}/{}", endpoint.name()))
                };
                evidence.naming(endpoint.addresses(), endpoint.address_count(), most)
            }
            Owner::Pod(position) => {
                let pod = &self.snapshot.pods[position as usize].value;
                let name = format!("{}/{}", pod.namespace(), pod.name());
                let evidence = OwnerEvidence {
                    node: pod.node().to_string(),
                    pod: name.clone(),
                    container_id: container_id(pod.container_id()),
                    finished_at: pod.finished_at,
                    ..OwnerEvidence::new(OwnerKind::Pod, name)
                };
                let named = pod.evidence();
                evidence.naming(named.iter().map(|(address, _)| *address), named.len(), most)
            }
            Owner::Service(position) => {
                let service = self.service(position);
                let ingress = &service.ingress;
                let evidence = OwnerEvidence::new(OwnerKind::Service, service.full_name());
                evidence.naming(ingress.iter().copied(), ingress.len(), most)
            }
            Owner::Tunnel(position, kind) => {
                let node = self.snapshot.nodes[position as usize].value.name.clone();
                OwnerEvidence {
                    node: node.clone(),
                    fields: vec![OwnerField::Tunnel(kind)],
                    ..OwnerEvidence::new(OwnerKind::Tunnel, node)
                }
            }
        }
    }
}

/// Returns a container ID, shortened with `…` if it is longer than any that a runtime creates.
fn container_id(id: TextRef<'_>) -> String {
    let mut id = id.to_string();
    if let Some((end, _)) = id.char_indices().nth(LONGEST_ID) {
        id.truncate(end);
        id.push('…');
    }
    id
}
