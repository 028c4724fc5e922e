//! Nodes that lack a kind of tunnel address that other nodes have.

use std::cell::LazyCell;
use std::collections::HashSet;

use calipam_assign::{TunnelAnswer, TunnelPools};
use calipam_model::cidr::is_v4;
use calipam_model::key::Key;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::snapshot::Source;

use crate::Context;
use crate::answers::Answers;
use crate::code::Code;
use crate::finding::{Evidence, Finding, OwnerEvidence, OwnerField, OwnerKind, Subject};
use crate::names::{list, short};

/// Checks the Linux nodes that have a block of the tunnel's family. Checks no node if pods have addresses from another
/// IPAM, since tunnels can then have such addresses, too, without a field in the node object.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let index = &context.index;
    let mut sources = [Source::Nodes, Source::Pools, Source::Blocks].into_iter();
    let is_read = sources.all(|source| snapshot.has_read(source));
    if !is_read || index.services_only || index.host_local_pods > 0 {
        return;
    }

    let mut nodes: Vec<&Node> = snapshot.nodes.iter().map(|node| &node.value).collect();
    nodes.retain(|node| !node.is_windows() && !node.is_virtual_kubelet());
    let mut used_kinds = TunnelKind::ALL.to_vec();
    used_kinds.retain(|kind| nodes.iter().any(|node| has_tunnel(node, *kind)));
    let has_all = |node: &&Node| used_kinds.iter().all(|kind| has_tunnel(node, *kind));
    if nodes.iter().all(has_all) {
        return;
    }

    // The nodes that own a block, each with whether the block is IPv6.
    let mut block_owners: HashSet<(&str, bool)> = HashSet::new();
    for block in &index.blocks {
        if let Some(host) = block.host() {
            block_owners.insert((host, !is_v4(block.key)));
        }
    }

    let pools = TunnelPools::new(snapshot);
    let answers = LazyCell::new(|| Answers::new(context));
    let is_broken = |node: &Node| {
        let key = Some(Key::Node(node.name.clone()));
        snapshot.defects.iter().any(|defect| defect.key == key)
    };
    for node in &nodes {
        let mut lacking = used_kinds.clone();
        lacking.retain(|kind| {
            let owns_block = block_owners.contains(&(node.name.as_str(), kind.is_v6()));
            !has_tunnel(node, *kind) && owns_block && pools.of(node, *kind).next().is_some()
        });
        if lacking.is_empty() || is_broken(node) {
            continue;
        }
        let tunnels = match answers.as_ref() {
            Some(answers) => answers.outlook.tunnels(node, &pools),
            None => Vec::new(),
        };
        let refusal = reason_of_refusal(&tunnels, &lacking);
        out.push(new_finding(node, &lacking, refusal));
    }
}

fn has_tunnel(node: &Node, kind: TunnelKind) -> bool {
    node.tunnels.iter().any(|(other, _)| *other == kind)
}

/// Returns the reason why calico-node cannot assign one of the addresses that a node lacks; `None` if it can. If it
/// fails at another kind of tunnel, it assigns none.
fn reason_of_refusal(tunnels: &[TunnelAnswer], lacking: &[TunnelKind]) -> Option<String> {
    let is_lacking = |tunnel: &TunnelAnswer| lacking.contains(&tunnel.kind);
    let failing = tunnels.iter().find(|tunnel| tunnel.next.refused().is_some())?;
    let reason = failing.next.refused()?.reason.to_string();
    if is_lacking(failing) {
        return Some(format!("cannot assign it: {reason}"));
    }
    if !tunnels.iter().any(is_lacking) {
        return None;
    }
    let name = failing.kind.name();
    Some(format!(
        "does not assign it, since it fails at the node's {name} tunnel: {reason}"
    ))
}

/// Reports a node that lacks tunnel addresses, with the reason why calico-node does not assign them, if there is one.
fn new_finding(node: &Node, lacking: &[TunnelKind], refusal: Option<String>) -> Finding {
    let name = node.name.clone();
    let fields: Vec<OwnerField> = lacking.iter().map(|kind| OwnerField::Tunnel(*kind)).collect();
    let mut message = format!(
        "{} lacks a tunnel address of a kind that other nodes have: {}",
        short(&name),
        list(&fields)
    );
    if let Some(refusal) = refusal {
        message.push_str(&format!("; calico-node {refusal}"));
    }
    let evidence = OwnerEvidence {
        node: name.clone(),
        fields,
        ..OwnerEvidence::new(OwnerKind::Node, name.clone())
    };
    let subject = Subject::Node(name.clone());
    let evidence = Evidence::Endpoint(Box::new(evidence));
    // Calico assigns the address before the node object names it.
    Finding::new(Code::TunnelAddressMissing, subject, message, evidence)
        .on_nodes([name.clone()])
        .depending_on([Key::Node(name)])
}
