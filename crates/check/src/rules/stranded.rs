//! Nodes that cannot get another address although their pools have free ones.

use std::collections::HashSet;

use calipam_assign::Family;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::Text;

use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, NodeEvidence, NodePoolEvidence, Subject};
use crate::index::Owner;
use crate::occupancy::{Claimants, Occupancy, Stranded};

/// Checks every node that runs pods.
pub(crate) fn check(
    context: &Context<'_>,
    occupancy: &Occupancy<'_, '_>,
    claimants: &Claimants<'_, '_>,
    out: &mut Vec<Finding>,
) {
    let Some(stranded) = Stranded::new(context, occupancy, claimants) else { return };
    let with_pods = nodes_with_pods(context.snapshot);
    let nodes = context.snapshot.nodes.iter().map(|n| &n.value);
    for node in nodes.filter(|node| context.index.node_exists(&node.name)) {
        if node.tainted && !with_pods.contains(Text::new(&node.name).as_ref().packed()) {
            continue;
        }
        let families =
            Family::BOTH.map(|family| (family, stranded.pools_of(node, family).unwrap_or_default()));
        let fails = |(family, pools): &(Family, Vec<NodePoolEvidence>)| {
            !pools.is_empty() && pods_need(context, *family)
        };
        let severity = match families.iter().any(fails) {
            true => Code::StrandedAddresses.severity(),
            false => Severity::Warning,
        };
        let pools: Vec<NodePoolEvidence> = families.into_iter().flat_map(|(_, pools)| pools).collect();
        if !pools.is_empty() {
            out.push(finding(&node.name, pools).with_severity(severity));
        }
    }
}

/// The nodes, packed, on which pods have, or wait for, an address of their own.
fn nodes_with_pods(snapshot: &Snapshot) -> HashSet<&[u8]> {
    let pods = snapshot.pods.iter().map(|pod| &pod.value);
    pods.filter(|pod| !pod.finished && !pod.host_network).map(|pod| pod.node().packed()).collect()
}

/// True if a new pod asks for an address of the family: which families the CNI plugin asks for, no datastore says, but the pods
/// that run do. If none has an address, a new one may ask for any.
fn pods_need(context: &Context<'_>, family: Family) -> bool {
    let uses = context.index.uses.iter();
    let mut of_pods = uses.filter(|u| matches!(u.owner, Owner::Endpoint(_) | Owner::Pod(_))).peekable();
    of_pods.peek().is_none() || of_pods.any(|u| Family::of_address(u.address) == family)
}

fn finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let evidence = Evidence::Node(Box::new(NodeEvidence { pools }));
    Finding::new(Code::StrandedAddresses, Subject::Node(node.to_owned()), evidence).on_nodes([node])
}
