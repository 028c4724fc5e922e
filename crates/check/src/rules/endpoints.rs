//! Endpoints and pods on nodes that do not exist, and Kubernetes nodes that Calico has no object for.

use std::collections::BTreeSet;

use calipam_model::affinity::AffinityType;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Source};
use calipam_model::text::TextRef;

use crate::code::Code;
use crate::finding::{Evidence, Finding, OwnerEvidence, OwnerKind, Subject};
use crate::index::{Owner, is_live};
use crate::names::short;
use crate::{Context, FastSet};

/// Checks the nodes of live endpoints and of unfinished pods, and Kubernetes nodes without a Calico object. On etcd, a
/// pod is checked only if it has no address and Kubernetes nodes were read.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    if !snapshot.has_read(Source::Nodes) {
        return;
    }
    check_objects(context, out);

    let missing = missing_nodes(context);
    if missing.is_empty() {
        return;
    }
    check_endpoints(context, &missing, out);
    let has_nodes_of_pods =
        snapshot.datastore == DatastoreKind::Kubernetes || !snapshot.kubernetes_nodes.is_empty();
    if has_nodes_of_pods {
        check_pods(context, &missing, out);
    }
}

/// Returns the nodes of endpoints and pods that Calico has no object for.
fn missing_nodes<'s>(context: &Context<'s>) -> FastSet<TextRef<'s>> {
    let index = &context.index;
    let mut missing = FastSet::default();
    for node in &index.nodes_of_workloads {
        if !node.is_empty() && !index.node_exists(&index.calico_node(*node)) {
            missing.insert(*node);
        }
    }
    missing
}

/// Reports live endpoints on missing nodes.
fn check_endpoints(context: &Context<'_>, missing: &FastSet<TextRef<'_>>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let index = &context.index;
    let pods_read = snapshot.has_read(Source::Pods);
    for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
        // OpenStack has its own compute nodes.
        if !missing.contains(&endpoint.value.node()) || endpoint.value.is_of_openstack() {
            continue;
        }
        let owner = Owner::Endpoint(position);
        let pod = index.pod_of(owner).map(|pod| &snapshot.pods[pod as usize].value);
        if is_live(&endpoint.value, pod, pods_read) {
            out.push(new_finding(index.describe_fully(owner)));
        }
    }
}

/// Reports unfinished pods on missing nodes; on etcd, only those that name no address.
fn check_pods(context: &Context<'_>, missing: &FastSet<TextRef<'_>>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let index = &context.index;
    let on_etcd = snapshot.datastore != DatastoreKind::Kubernetes;
    for (position, pod) in (0..).zip(&snapshot.pods) {
        let pod = &pod.value;
        let is_wanted = !on_etcd || pod.mentioned().next().is_none();
        if !pod.finished && !pod.host_network && is_wanted && missing.contains(&pod.node()) {
            // Pods and nodes are listed at different times.
            let dependencies = [pod.key(), Key::Node(pod.node().to_string())];
            out.push(new_finding(index.describe_fully(Owner::Pod(position))).depending_on(dependencies));
        }
    }
}

/// Reports Kubernetes nodes that own blocks or affinities, but have no Calico object.
fn check_objects(context: &Context<'_>, out: &mut Vec<Finding>) {
    let index = &context.index;
    let mut holders: BTreeSet<&str> = BTreeSet::new();
    holders.extend(index.blocks.iter().filter_map(|block| block.host()));
    for affinity in &context.snapshot.affinities {
        let key = &affinity.value.key;
        if key.kind == AffinityType::Host {
            holders.insert(&key.node);
        }
    }

    for node in holders.into_iter().filter(|node| index.lacks_object(node)) {
        let message = format!(
            "{} is a Kubernetes node and holds blocks, but Calico has no node object for it",
            short(node)
        );
        let finding = Finding::new(
            Code::NodeObjectMissing,
            Subject::Node(node.to_owned()),
            message,
            Evidence::Node(Box::default()),
        );
        let dependencies = [Key::Node(node.to_owned())];
        out.push(finding.on_nodes([node]).depending_on(dependencies));
    }
}

/// Reports an endpoint or a pod on a node that does not exist.
fn new_finding(owner: OwnerEvidence) -> Finding {
    let name = short(&owner.name);
    let node = short(&owner.node);
    let is_pending_pod = owner.kind == OwnerKind::Pod && owner.fields.is_empty();
    let message = if is_pending_pod {
        format!("{name} is Pending on {node}, which does not exist, and can block the cleanup of {node}")
    } else {
        format!("{name} is on {node}, which does not exist")
    };
    let subject = Subject::Endpoint(owner.name.clone());
    let nodes = [owner.node.clone()];
    Finding::new(
        Code::EndpointOfMissingNode,
        subject,
        message,
        Evidence::Endpoint(Box::new(owner)),
    )
    .on_nodes(nodes)
}
