//! The names and networks that a cluster has, in objects and in records.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;

use super::unknown::{did_you_mean, nearest};
use crate::failure::{Failure, Result};

/// All owner records in sound blocks.
fn attributes(snapshot: &Snapshot) -> impl Iterator<Item = AttributeRef<'_>> {
    let blocks = snapshot.blocks.iter();
    let sound_blocks = blocks.filter_map(|block| block.value.content.sound());
    sound_blocks.flat_map(Block::attributes)
}

/// Adds strings that are not empty. Neighboring records mostly have the same string, which is added only once.
fn insert_all<'s>(known: &mut BTreeSet<String>, texts: impl Iterator<Item = TextRef<'s>>) {
    let mut last = TextRef::EMPTY;
    for text in texts {
        if text != last {
            known.insert(text.to_string());
            last = text;
        }
    }
}

/// The namespaces that every cluster has.
const KUBERNETES_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The namespaces that every cluster has, and those that a pod, an endpoint, a service or a record names; namespaces
/// themselves are not read.
pub(crate) fn known_namespaces(states: &[&Snapshot]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = KUBERNETES_NAMESPACES.map(str::to_owned).into();
    for snapshot in states {
        let owners = attributes(snapshot).flat_map(|record| [Some(record.owner()), record.alternate()]);
        let recorded = owners.flatten().filter_map(|owner| owner.get("namespace"));
        insert_all(&mut known, recorded);
        insert_all(&mut known, snapshot.pods.iter().map(|pod| pod.value.namespace()));
        let endpoints = snapshot.endpoints.iter();
        insert_all(&mut known, endpoints.map(|endpoint| endpoint.value.namespace()));
        for service in &snapshot.services {
            known.insert(service.value.namespace.to_string());
        }
    }
    known
}

/// Accepts a namespace that is known.
pub(super) fn require_known_namespace(states: &[&Snapshot], name: &str) -> Result<()> {
    let known = known_namespaces(states);
    if known.contains(name) {
        return Ok(());
    }

    let message = format!("namespace {name:?} not found: no pod, endpoint, service or record names it");
    let hint = did_you_mean(name, &known, "namespaces without any addresses are unknown");
    Err(Failure::refused(message).hint(hint))
}

/// The pods that exist, and those that an endpoint or a record names, as `namespace/name`.
fn known_pods(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for record in attributes(snapshot) {
        let owner = record.owner();
        if let (Some(namespace), Some(pod)) = (owner.get("namespace"), owner.get("pod")) {
            known.insert(format!("{namespace}/{pod}"));
        }
    }
    for endpoint in snapshot.endpoints.iter().map(|stored| &stored.value) {
        known.insert(format!("{}/{}", endpoint.namespace(), endpoint.pod()));
    }
    for pod in snapshot.pods.iter().map(|stored| &stored.value) {
        known.insert(format!("{}/{}", pod.namespace(), pod.name()));
    }
    known
}

/// Returns the pod that was probably meant, as `namespace/name`: one of this name in another namespace, or else one with
/// a similar name. `None` if the named pod exists or no name is similar.
pub fn nearest_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    let known = known_pods(snapshot);
    let wanted = format!("{namespace}/{name}");
    if known.contains(&wanted) {
        return None;
    }
    let has_this_name = |pod: &&String| pod.split('/').nth(1) == Some(name);
    if let Some(pod_elsewhere) = known.iter().find(has_this_name) {
        return Some(pod_elsewhere.clone());
    }
    let nearest = nearest(&wanted, known.iter().map(String::as_str))?;
    Some(nearest.to_owned())
}

/// The nodes that exist, and those that an affinity, a block, an endpoint or a record still names.
pub(crate) fn known_nodes(states: &[&Snapshot]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for snapshot in states {
        for node in &snapshot.nodes {
            known.insert(node.value.name.clone());
        }
        for affinity in &snapshot.affinities {
            known.insert(affinity.value.key.node.clone());
        }
        for stored in &snapshot.blocks {
            let block = stored.value.content.sound();
            known.extend(block.and_then(Block::host).map(str::to_owned));
        }
        let endpoints = snapshot.endpoints.iter();
        insert_all(&mut known, endpoints.map(|endpoint| endpoint.value.node()));
        let recorded = attributes(snapshot).filter_map(|record| record.get("node"));
        insert_all(&mut known, recorded);
    }
    known
}

/// True if a pool, a block or an address in use shares an address with the network.
pub(crate) fn is_known_network(states: &[&Snapshot], cidr: IpNet) -> bool {
    if is_known_block(states, cidr) {
        return true;
    }
    for snapshot in states {
        let mut pools = snapshot.pools.iter();
        let is_in_pool = pools.any(|pool| overlap(pool.value.cidr, cidr));
        if is_in_pool || used_addresses(snapshot).any(|address| cidr.contains(&address)) {
            return true;
        }
    }
    false
}

/// The addresses of endpoints, pods and tunnels.
fn used_addresses(snapshot: &Snapshot) -> impl Iterator<Item = IpAddr> {
    let endpoints = snapshot.endpoints.iter();
    let of_endpoints = endpoints.flat_map(|endpoint| endpoint.value.addresses());
    let of_pods = snapshot.pods.iter().flat_map(|pod| pod.value.addresses());
    let tunnels = snapshot.nodes.iter().flat_map(|node| &node.value.tunnels);
    let of_tunnels = tunnels.map(|(_, address)| *address);
    of_endpoints.chain(of_pods).chain(of_tunnels)
}

/// True if a block shares an address with the network. Blocks that cannot be decoded or are only referenced count as
/// well.
pub(crate) fn is_known_block(states: &[&Snapshot], cidr: IpNet) -> bool {
    let mut blocks = states.iter().flat_map(|snapshot| known_blocks(snapshot));
    blocks.any(|block| overlap(block, cidr))
}

/// The blocks that are stored, and those that an affinity, a handle or an undecodable object names.
fn known_blocks(snapshot: &Snapshot) -> impl Iterator<Item = IpNet> {
    let stored = snapshot.blocks.iter().map(|block| block.value.key);
    let claimed = snapshot.affinities.iter().map(|affinity| affinity.value.key.cidr);
    let counts = snapshot.handles.iter().flat_map(|handle| handle.value.blocks());
    let counted = counts.map(|(block, _)| block);
    let undecodable = snapshot.defects.iter().filter_map(|defect| match defect.key {
        Some(Key::Block(block)) => Some(block),
        _ => None,
    });
    stored.chain(claimed).chain(counted).chain(undecodable)
}
