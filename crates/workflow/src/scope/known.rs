//! The names and networks that a cluster has, in objects and in records.

use std::collections::BTreeSet;

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
    let sound = snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound());
    sound.flat_map(Block::attributes)
}

/// Adds strings that are not empty. Neighboring records mostly have the same string, which is added only once.
fn add<'s>(known: &mut BTreeSet<String>, texts: impl Iterator<Item = TextRef<'s>>) {
    let mut last = TextRef::EMPTY;
    for text in texts {
        if text != last {
            known.insert(text.to_string());
            last = text;
        }
    }
}

/// The namespaces that every cluster has.
const OF_KUBERNETES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The namespaces that every cluster has, and those that a pod, an endpoint, a service or a record names; namespaces
/// themselves are not read.
pub(crate) fn known_namespaces(states: &[&Snapshot]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = OF_KUBERNETES.map(str::to_owned).into();
    for snapshot in states {
        let owners = attributes(snapshot).flat_map(|record| [Some(record.owner()), record.alternate()]);
        let of_records = owners.flatten().filter_map(|owner| owner.get("namespace"));
        add(&mut known, of_records);
        let of_pods = snapshot.pods.iter().map(|pod| pod.value.namespace());
        add(&mut known, of_pods);
        let endpoints = snapshot.endpoints.iter();
        let of_endpoints = endpoints.map(|endpoint| endpoint.value.namespace());
        add(&mut known, of_endpoints);
        for service in &snapshot.services {
            known.insert(service.value.namespace.to_string());
        }
    }
    known
}

/// Accepts a namespace that is known.
pub(super) fn known_namespace(states: &[&Snapshot], name: &str) -> Result<()> {
    let known = known_namespaces(states);
    if known.contains(name) {
        return Ok(());
    }

    let message = format!("namespace {name:?} not found: no pod, endpoint, service or record names it");
    let hint = did_you_mean(name, &known, "namespaces without any addresses are unknown");
    Err(Failure::refused(message).hint(hint))
}

/// Returns the pod that was probably meant, as `namespace/name`: one of this name in another namespace, or else one with
/// a similar name. `None` if the named pod exists or no name is similar.
pub fn nearest_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
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

    let wanted = format!("{namespace}/{name}");
    if known.contains(&wanted) {
        return None;
    }
    let mut of_this_name = known.iter().filter(|pod| pod.split('/').nth(1) == Some(name));
    if let Some(elsewhere) = of_this_name.next() {
        return Some(elsewhere.clone());
    }
    let near = nearest(&wanted, known.iter().map(String::as_str))?;
    Some(near.to_owned())
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
        let of_endpoints = snapshot.endpoints.iter().map(|endpoint| endpoint.value.node());
        add(&mut known, of_endpoints);
        let of_records = attributes(snapshot).filter_map(|record| record.get("node"));
        add(&mut known, of_records);
    }
    known
}

/// True if a pool, a block or an address in use shares an address with the network.
pub(crate) fn is_known_network(states: &[&Snapshot], cidr: IpNet) -> bool {
    if is_known_block(states, cidr) {
        return true;
    }
    for snapshot in states {
        if snapshot.pools.iter().any(|pool| overlap(pool.value.cidr, cidr)) {
            return true;
        }
        let endpoints = snapshot.endpoints.iter();
        let of_endpoints = endpoints.flat_map(|endpoint| endpoint.value.addresses());
        let of_pods = snapshot.pods.iter().flat_map(|pod| pod.value.addresses());
        let tunnels = snapshot.nodes.iter().flat_map(|node| &node.value.tunnels);
        let of_tunnels = tunnels.map(|(_, address)| *address);
        let mut in_use = of_endpoints.chain(of_pods).chain(of_tunnels);
        if in_use.any(|address| cidr.contains(&address)) {
            return true;
        }
    }
    false
}

/// True if a block shares an address with the network. Blocks that cannot be decoded or are only referenced count as
/// well.
pub(crate) fn is_known_block(states: &[&Snapshot], cidr: IpNet) -> bool {
    for snapshot in states {
        let blocks = snapshot.blocks.iter().map(|block| block.value.key);
        let affinities = snapshot.affinities.iter();
        let of_affinities = affinities.map(|affinity| affinity.value.key.cidr);
        let handles = snapshot.handles.iter();
        let of_handles = handles
            .flat_map(|handle| handle.value.blocks())
            .map(|(block, _)| block);
        let undecodable = snapshot.defects.iter().filter_map(|defect| match &defect.key {
            Some(Key::Block(block)) => Some(*block),
            _ => None,
        });
        let mut known = blocks.chain(of_affinities).chain(of_handles).chain(undecodable);
        if known.any(|block| overlap(block, cidr)) {
            return true;
        }
    }
    false
}
