//! The users of addresses in a pool, who move with a migration.

use std::net::IpAddr;

use calipam_check::index::{Index, Owner, Use, Workload};
use calipam_model::IpNet;
use serde::Serialize;

/// A kind of user of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserKind {
    Pod,
    /// An endpoint of an orchestrator other than Kubernetes.
    Endpoint,
    /// A node's tunnel. Calico's agent on the node moves it.
    Tunnel,
    /// A service of the type LoadBalancer.
    Service,
}

calipam_model::display_serialized!(UserKind);

/// A user of an address in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub address: IpAddr,
    pub kind: UserKind,
    /// Empty for services.
    pub node: String,
    /// `namespace/name`; for a tunnel, the node.
    pub name: String,
}

/// Returns the users of addresses in `cidr`, ascending.
pub(super) fn users(index: &Index<'_>, cidr: IpNet) -> Vec<User> {
    let mut users: Vec<User> = Vec::new();
    for used in index.uses_in(cidr) {
        let user = user(index, used);
        // An endpoint and its pod are one user.
        let mut users_of_address = users
            .iter()
            .rev()
            .take_while(|other| other.address == user.address);
        if !users_of_address.any(|other| *other == user) {
            users.push(user);
        }
    }
    users
}

/// Describes a pod, or an endpoint of another orchestrator.
fn workload_user(index: &Index<'_>, used: &Use, workload: &Workload<'_>) -> User {
    let mut kind = UserKind::Pod;
    let mut name = format!("{}/{}", workload.namespace, workload.pod);
    // Only endpoints of Kubernetes name a pod.
    if let Owner::Endpoint(position) = used.owner
        && workload.pod.is_empty()
    {
        kind = UserKind::Endpoint;
        name = format!("{}/{}", workload.namespace, index.endpoint(position).name());
    }
    User {
        address: used.address,
        kind,
        node: index.calico_node(workload.node),
        name,
    }
}

/// Describes the user of an address: a pod, another endpoint, a service, or a tunnel.
fn user(index: &Index<'_>, used: &Use) -> User {
    let address = used.address;
    if let Some(workload) = index.workload(used.owner) {
        return workload_user(index, used, &workload);
    }

    match used.owner {
        Owner::Service(position) => User {
            address,
            kind: UserKind::Service,
            node: String::new(),
            name: index.service(position).full_name(),
        },
        Owner::Tunnel(position, _) | Owner::Endpoint(position) | Owner::Pod(position) => {
            let node = match index.snapshot.nodes.get(position as usize) {
                Some(node) => node.value.name.clone(),
                None => String::new(),
            };
            User {
                address,
                kind: UserKind::Tunnel,
                node: node.clone(),
                name: node,
            }
        }
    }
}
