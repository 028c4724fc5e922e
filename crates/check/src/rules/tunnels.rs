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

    let is_linux = |node: &&Node| !node.is_windows() && !node.is_virtual_kubelet();
    let all_nodes = snapshot.nodes.iter().map(|node| &node.value);
    let nodes: Vec<&Node> = all_nodes.filter(is_linux).collect();
    let has = |node: &Node, kind| node.tunnels.iter().any(|(other, _)| *other == kind);
    let is_used = |kind: &TunnelKind| nodes.iter().any(|node| has(node, *kind));
    let used_kinds: Vec<TunnelKind> = TunnelKind::ALL.into_iter().filter(is_used).collect();
    let has_all = |node: &&Node| used_kinds.iter().all(|kind| has(node, *kind));
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
        let lacks = |kind: &TunnelKind| {
            let owns_block = block_owners.contains(&(node.name.as_str(), kind.is_v6()));
            !has(node, *kind) && owns_block && pools.of(node, *kind).next().is_some()
        };
        let lacking: Vec<TunnelKind> = used_kinds.iter().copied().filter(lacks).collect();
        if lacking.is_empty() || is_broken(node) {
            continue;
        }
        let tunnels = match answers.as_ref() {
            Some(answers) => answers.outlook.tunnels(node, &pools),
            None => Vec::new(),
        };
        out.push(finding(node, &lacking, refusal(&tunnels, &lacking)));
    }
}

/// Returns the reason why calico-node cannot assign one of the addresses that a node lacks. If it fails at another kind
/// of tunnel, it assigns none.
fn refusal(tunnels: &[TunnelAnswer], lacking: &[TunnelKind]) -> Option<String> {
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
fn finding(node: &Node, lacking: &[TunnelKind], refusal: Option<String>) -> Finding {
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
