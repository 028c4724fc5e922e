//! The names and networks that a cluster has, in objects and in records.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_model::snapshot::{Defect, Snapshot};
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

/// Accepts a namespace that a pod, an endpoint, a service or a record names; namespaces themselves are not read.
pub(super) fn known_namespace(states: &[&Snapshot], name: &str) -> Result<()> {
    let mut known: BTreeSet<String> = OF_KUBERNETES.map(str::to_owned).into();
    for snapshot in states {
        let of_records = attributes(snapshot).flat_map(|record| [Some(record.owner()), record.alternate()]);
        let named = of_records.flatten().filter_map(|owner| owner.get("namespace"));
        add(&mut known, named);
        add(&mut known, snapshot.pods.iter().map(|pod| pod.value.namespace()));
        add(
            &mut known,
            snapshot
                .endpoints
                .iter()
                .map(|endpoint| endpoint.value.namespace()),
        );
        known.extend(
            snapshot
                .services
                .iter()
                .map(|service| service.value.namespace.to_string()),
        );
    }
    if known.contains(name) {
        return Ok(());
    }
    let message = format!("namespace {name:?} not found: no pod, endpoint, service or record names it");
    let hint = did_you_mean(name, &known, "namespaces without any addresses are unknown");
    Err(Failure::refused(message).hint(hint))
}

/// Returns the pod that was probably meant, as `namespace/name`; `None` if the named pod exists or no name is similar.
pub fn nearest_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    let of_record = |record: AttributeRef<'_>| {
        let owner = record.owner();
        Some(format!("{}/{}", owner.get("namespace")?, owner.get("pod")?))
    };
    let mut known: BTreeSet<String> = attributes(snapshot).filter_map(of_record).collect();
    let endpoints = snapshot.endpoints.iter().map(|endpoint| &endpoint.value);
    known.extend(endpoints.map(|endpoint| format!("{}/{}", endpoint.namespace(), endpoint.pod())));
    known.extend(
        snapshot
            .pods
            .iter()
            .map(|pod| format!("{}/{}", pod.value.namespace(), pod.value.name())),
    );
    let meant = format!("{namespace}/{name}");
    let near = nearest(&meant, known.iter().map(String::as_str));
    near.filter(|near| *near != meant).map(str::to_owned)
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
        let sound = snapshot
            .blocks
            .iter()
            .filter_map(|block| block.value.content.sound());
        known.extend(sound.filter_map(Block::host).map(str::to_owned));

        let of_endpoints = snapshot.endpoints.iter().map(|endpoint| endpoint.value.node());
        add(&mut known, of_endpoints);
        let of_records = attributes(snapshot).filter_map(|record| record.get("node"));
        add(&mut known, of_records);
    }
    known
}

/// True if a pool, a block or an address in use shares an address with the network.
pub(crate) fn is_known_network(states: &[&Snapshot], cidr: IpNet) -> bool {
    let is_named = |snapshot: &&Snapshot| {
        let endpoints = snapshot
            .endpoints
            .iter()
            .flat_map(|endpoint| endpoint.value.addresses());
        let pods = snapshot.pods.iter().flat_map(|pod| pod.value.addresses());
        let tunnels = snapshot
            .nodes
            .iter()
            .flat_map(|node| node.value.tunnels.iter().map(|(_, address)| *address));
        snapshot.pools.iter().any(|pool| overlap(pool.value.cidr, cidr))
            || endpoints
                .chain(pods)
                .chain(tunnels)
                .any(|address| cidr.contains(&address))
    };
    is_known_block(states, cidr) || states.iter().any(is_named)
}

/// True if a block shares an address with the network. Blocks that cannot be decoded or are only referenced count as
/// well.
pub(crate) fn is_known_block(states: &[&Snapshot], cidr: IpNet) -> bool {
    let is_undecodable =
        |defect: &Defect| matches!(&defect.key, Some(Key::Block(key)) if overlap(*key, cidr));
    states.iter().any(|snapshot| {
        let mut of_handles = snapshot.handles.iter().flat_map(|handle| handle.value.blocks());
        snapshot.blocks.iter().any(|block| overlap(block.value.key, cidr))
            || snapshot
                .affinities
                .iter()
                .any(|affinity| overlap(affinity.value.key.cidr, cidr))
            || of_handles.any(|(named, _)| overlap(named, cidr))
            || snapshot.defects.iter().any(is_undecodable)
    })
}
