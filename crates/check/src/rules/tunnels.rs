//! Nodes that lack a kind of tunnel address that other nodes have.

use std::collections::HashSet;

use calipam_assign::NodeSelector;
use calipam_model::cidr::is_v4;
use calipam_model::key::Key;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Source;

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, OwnerEvidence, OwnerField, OwnerKind, Subject};
use crate::names::{list, short};

/// Checks the Linux nodes that have a block of the tunnel's family. Checks no node if pods have addresses from another
/// IPAM, since tunnels can then have such addresses, too, without a field in the node object.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let (snapshot, index) = (context.snapshot, &context.index);
    let is_read = [Source::Nodes, Source::Pools, Source::Blocks].into_iter().all(|s| snapshot.has_read(s));
    if !is_read || index.services_only || index.host_local_pods > 0 {
        return;
    }
    let is_linux = |node: &&Node| !node.is_windows() && !node.is_virtual_kubelet();
    let nodes: Vec<&Node> = snapshot.nodes.iter().map(|node| &node.value).filter(is_linux).collect();
    let has = |node: &Node, kind| node.tunnels.iter().any(|(of, _)| *of == kind);
    let is_used = |kind: &TunnelKind| nodes.iter().any(|node| has(node, *kind));
    let kinds: Vec<TunnelKind> = TunnelKind::ALL.into_iter().filter(is_used).collect();
    if nodes.iter().all(|node| kinds.iter().all(|kind| has(node, *kind))) {
        return;
    }

    let pools = snapshot.pools.iter().map(|pool| &pool.value);
    let offers = |pool: &&Pool| !pool.disabled && !pool.deleting && pool.allows(PoolUse::Tunnel);
    let selected = |pool| Some((pool, NodeSelector::of(pool).ok()?));
    let pools: Vec<(&Pool, NodeSelector)> = pools.filter(offers).filter_map(selected).collect();
    let owned = index.blocks.iter().filter_map(|block| Some((block.host()?, !is_v4(block.key))));
    let hosts: HashSet<(&str, bool)> = owned.collect();
    let is_broken = |node: &Node| {
        let key = Some(Key::Node(node.name.clone()));
        snapshot.defects.iter().any(|defect| defect.key == key)
    };
    for node in &nodes {
        let needs = |kind: &TunnelKind| {
            let suits = |(pool, selector): &(&Pool, NodeSelector)| {
                is_v4(pool.cidr) != kind.is_v6()
                    && encapsulates(pool, *kind, node)
                    && selector.selects(&node.labels)
            };
            pools.iter().any(suits)
        };
        let runs = |kind: &TunnelKind| hosts.contains(&(node.name.as_str(), kind.is_v6()));
        let lacking = kinds.iter().filter(|kind| !has(node, **kind) && runs(kind) && needs(kind));
        let fields: Vec<OwnerField> = lacking.map(|kind| OwnerField::Tunnel(*kind)).collect();
        if !fields.is_empty() && !is_broken(node) {
            out.push(finding(node, fields));
        }
    }
}

/// Returns true if the node needs a tunnel address because of the pool. WireGuard does not depend on pools: every node
/// that has a key encrypts.
fn encapsulates(pool: &Pool, kind: TunnelKind, node: &Node) -> bool {
    match kind {
        TunnelKind::Ipip => pool.ipip,
        TunnelKind::Vxlan | TunnelKind::VxlanV6 => pool.vxlan,
        TunnelKind::Wireguard => node.wireguard_keys[0],
        TunnelKind::WireguardV6 => node.wireguard_keys[1],
    }
}

fn finding(node: &Node, fields: Vec<OwnerField>) -> Finding {
    let name = node.name.clone();
    let says =
        format!("{} lacks a tunnel address of a kind that other nodes have: {}", short(&name), list(&fields));
    let evidence =
        OwnerEvidence { node: name.clone(), fields, ..OwnerEvidence::new(OwnerKind::Node, name.clone()) };
    let (subject, evidence) = (Subject::Node(name.clone()), Evidence::Endpoint(Box::new(evidence)));
    // Calico assigns the address before the node object names it.
    Finding::new(Code::TunnelAddressMissing, subject, says, evidence)
        .on_nodes([name.clone()])
        .depending_on([Key::Node(name)])
}
