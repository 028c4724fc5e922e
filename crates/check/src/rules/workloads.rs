//! Compares endpoints with pods. They are separate sources only if both etcd and Kubernetes were read. A pod's status
//! and annotation are compared even if only Kubernetes was read.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use calipam_model::key::Key;
use calipam_model::names::{KUBERNETES, pod_endpoint_name};
use calipam_model::pod::{Pod, evidence};
use calipam_model::snapshot::Source;

use super::address::Address;
use super::owners::wrong_node;
use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, OwnerEvidence, PodState, Subject};
use crate::index::{Owner, Record};
use crate::names::{list, short};
use crate::record::{Naming, is_same_node, naming};

/// Compares Kubernetes pods with Calico endpoints: reports each that lacks the other, and pods whose node or addresses
/// differ from those of their endpoints.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    if !snapshot.has_read(Source::Pods) {
        return;
    }
    let endpoints_by_pod = check_endpoints(context, out);
    check_pods(context, &endpoints_by_pod, out);
}

/// Reports endpoints whose pod is gone or has finished. Returns the positions of the endpoints of each existing pod, by
/// the pod's position.
fn check_endpoints(context: &Context<'_>, out: &mut Vec<Finding>) -> HashMap<u32, Vec<u32>> {
    let snapshot = context.snapshot;
    let mut endpoints_by_pod: HashMap<u32, Vec<u32>> = HashMap::new();
    for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
        let endpoint = &endpoint.value;
        if endpoint.orchestrator() != *KUBERNETES || endpoint.pod().is_empty() {
            continue;
        }
        match context.index.pod(endpoint.namespace(), endpoint.pod()) {
            Some(pod) => {
                endpoints_by_pod.entry(pod).or_default().push(position);
                if has_long_finished(context, &snapshot.pods[pod as usize].value) {
                    out.push(endpoint_without_pod(context, position, PodState::Finished));
                }
            }
            None => out.push(endpoint_without_pod(context, position, PodState::Gone)),
        }
    }
    endpoints_by_pod
}

/// Reports pods without an endpoint, and those whose node or addresses differ from those of their endpoints.
fn check_pods(context: &Context<'_>, endpoints_by_pod: &HashMap<u32, Vec<u32>>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let endpoints_read = snapshot.has_read(Source::Endpoints);
    for (position, pod) in (0..).zip(&snapshot.pods) {
        let pod = &pod.value;
        if pod.finished || pod.host_network {
            continue;
        }
        let endpoints = endpoints_by_pod.get(&position).map_or(&[][..], Vec::as_slice);
        // CNI DEL removes a terminating pod's endpoint before the pod's object is deleted.
        let needs_endpoint = endpoints_read && pod.running && !pod.deleting;
        if needs_endpoint && endpoints.is_empty() && !is_endpoint_broken(context, pod) {
            out.extend(pod_without_endpoint(context, position));
        }
        for endpoint in endpoints {
            if let Some(mismatch) = node_mismatch(context, *endpoint, pod) {
                out.push(mismatch);
                out.extend(recorded_beside_pod(context, *endpoint, pod));
            }
        }
        out.extend(disagreement(context, position, endpoints));
    }
}

/// Makes a finding. Its message begins with the owner's name, and continues with `problem`.
fn new_finding(code: Code, owner: OwnerEvidence, key: Key, problem: &str) -> Finding {
    let node = owner.node.clone();
    let subject = Subject::Endpoint(owner.name.clone());
    let message = format!("{}{problem}", short(&owner.name));
    let finding = Finding::new(code, subject, message, Evidence::Endpoint(Box::new(owner)));
    finding.on_nodes([node]).depending_on([key])
}

/// Returns true for a finished pod whose endpoint the CNI plugin should have removed by now. A pod without a finish
/// time counts as finished long ago.
fn has_long_finished(context: &Context<'_>, pod: &Pod) -> bool {
    if !pod.finished {
        return false;
    }
    match pod.finished_at {
        Some(time) => context.now.duration_since(time) > context.grace,
        None => true,
    }
}

/// Reports an endpoint whose pod has finished or does not exist (`state`). The finding depends on the pod, which a
/// later read may find.
fn endpoint_without_pod(context: &Context<'_>, position: u32, state: PodState) -> Finding {
    let owner = OwnerEvidence {
        pod_state: Some(state),
        ..context.index.describe_fully(Owner::Endpoint(position))
    };
    let endpoint = context.index.endpoint(position);
    let namespace = endpoint.namespace().to_string();
    let name = endpoint.pod().to_string();
    let clause = match state {
        PodState::Finished => "has finished",
        PodState::Gone => "does not exist",
    };
    let problem = format!(" is the endpoint of pod {}, which {clause}", short(&owner.pod));
    new_finding(
        Code::EndpointWithoutPod,
        owner,
        context.index.endpoint(position).key(),
        &problem,
    )
    .depending_on([Key::Pod { namespace, name }])
}

/// Reports a pod without an endpoint; `None` on a node that Calico does not know, where another plugin networks pods.
fn pod_without_endpoint(context: &Context<'_>, position: u32) -> Option<Finding> {
    let pod = &context.snapshot.pods[position as usize].value;
    // Pods are listed after endpoints, so a new pod could have got its endpoint in between.
    let endpoints = endpoint_keys(context, pod);
    if endpoints.is_empty() && context.snapshot.has_read(Source::Nodes) {
        return None;
    }
    let owner = context.index.describe_fully(Owner::Pod(position));
    let problem = format!(" is running on {}, but has no endpoint", short(&owner.node));
    Some(new_finding(Code::PodWithoutEndpoint, owner, pod.key(), &problem).depending_on(endpoints))
}

/// Returns the possible keys of the pod's endpoint. The node can have different names in Calico and Kubernetes.
fn endpoint_keys(context: &Context<'_>, pod: &Pod) -> Vec<Key> {
    let pod_name = pod.name().to_string();
    let mut keys = Vec::new();
    for node in context.snapshot.nodes.iter().map(|node| &node.value) {
        if node.names().any(|name| pod.node() == *name) {
            keys.push(Key::Endpoint {
                namespace: pod.namespace().to_string(),
                name: pod_endpoint_name(&node.name, &pod_name),
            });
        }
    }
    keys
}

/// Returns true if an undecodable endpoint could belong to the pod.
fn is_endpoint_broken(context: &Context<'_>, pod: &Pod) -> bool {
    context.index.broken_workloads.iter().any(|broken| {
        pod.namespace() == *broken.namespace
            && broken
                .name
                .as_ref()
                .is_none_or(|name| pod.name() == *name.workload.as_str())
    })
}

/// Reports an endpoint that is on another node than its pod; `None` if both are on the same one, or if a node is not
/// known.
fn node_mismatch(context: &Context<'_>, position: u32, pod: &Pod) -> Option<Finding> {
    let endpoint = context.index.endpoint(position);
    if endpoint.node().is_empty()
        || pod.node().is_empty()
        || is_same_node(endpoint.node(), pod.node(), &context.index)
    {
        return None;
    }
    let owner = context.index.describe_fully(Owner::Endpoint(position));
    let node = pod.node().to_string();
    let problem = format!(" is on {}, but its pod is on {node}", short(&owner.node));
    let finding = new_finding(
        Code::EndpointNodeMismatch,
        owner,
        context.index.endpoint(position).key(),
        &problem,
    );
    Some(finding.on_nodes([node]).depending_on([pod.key()]))
}

/// Reports a pod's addresses that are recorded on its endpoint's node instead of the pod's.
fn recorded_beside_pod(context: &Context<'_>, position: u32, pod: &Pod) -> Vec<Finding> {
    let index = &context.index;
    let owner = Owner::Endpoint(position);
    let mut findings = Vec::new();
    for address in index.endpoint(position).addresses() {
        if !pod.mentioned().any(|mentioned| mentioned == address) {
            continue;
        }
        let mut records: Vec<Record<'_, '_>> = index.records_of(address).rev().collect();
        records.retain(|record| !record.allocation.attribute.is_cooling());

        let names_endpoint = |record: &&Record<'_, '_>| {
            naming(&record.allocation.attribute, owner, index) == Some(Naming::Whole)
        };
        let Some(record) = records.iter().find(names_endpoint) else {
            continue;
        };
        let address = Address {
            address,
            records: &records,
            uses: index.uses_of(address),
            blocks: std::slice::from_ref(record.block),
        };
        findings.extend(wrong_node(context, &address, record, owner));
    }
    findings
}

/// Reports a pod whose status, annotation and endpoint name different addresses. A family that one of them lacks is not
/// compared, since a status without IPv6 is a separate fault. The status has one address per family, which only has to
/// be among those that the annotation and the endpoint name.
fn disagreement(context: &Context<'_>, position: u32, endpoints: &[u32]) -> Option<Finding> {
    let pod = &context.snapshot.pods[position as usize].value;
    let status: Vec<IpAddr> = pod.named_by(evidence::STATUS).collect();
    let annotation: Vec<IpAddr> = pod.named_by(evidence::CNI).collect();
    let mut endpoint: Vec<IpAddr> = Vec::new();
    for position in endpoints {
        endpoint.extend(context.index.endpoint(*position).addresses());
    }

    // With Multus, the status names only the default network's address, which can be from another plugin.
    let secondary: HashSet<IpAddr> = pod.named_by(evidence::SECONDARY).collect();
    let of_default_network = |addresses: &[IpAddr]| {
        let mut addresses = addresses.to_vec();
        addresses.retain(|address| !secondary.contains(address));
        addresses
    };
    let agree = is_among(&status, &of_default_network(&annotation))
        && is_among(&status, &of_default_network(&endpoint))
        && is_among(&annotation, &endpoint)
        && is_among(&endpoint, &annotation);
    if agree {
        return None;
    }

    let problem = statements([
        ("its status", status),
        ("its annotation", annotation),
        ("its endpoint", endpoint),
    ]);
    let owner = context.index.describe_fully(Owner::Pod(position));
    let finding = new_finding(Code::PodAddressDisagreement, owner, pod.key(), &problem);
    let endpoint_keys = endpoints
        .iter()
        .map(|position| context.index.endpoint(*position).key());
    Some(finding.depending_on(endpoint_keys))
}

/// Lists the addresses that each source names, without the sources that name none.
fn statements(sources: [(&str, Vec<IpAddr>); 3]) -> String {
    let mut statements = Vec::new();
    for (source, addresses) in sources {
        if !addresses.is_empty() {
            statements.push(format!("{source} names {}", list(addresses)));
        }
    }
    format!(": {}", statements.join(", "))
}

/// The number of addresses up to which searching a slice is faster than building a set.
const FEW: usize = 16;

/// Returns true if all of `addresses` are among `others`. A family that `others` lacks is not compared.
fn is_among(addresses: &[IpAddr], others: &[IpAddr]) -> bool {
    let has_v4 = others.iter().any(|address| address.is_ipv4());
    let has_v6 = others.iter().any(|address| address.is_ipv6());
    let mut compared = addresses.iter().filter(|address| match address {
        IpAddr::V4(_) => has_v4,
        IpAddr::V6(_) => has_v6,
    });

    // An annotation can name tens of thousands of addresses.
    if others.len() > FEW {
        let set: HashSet<&IpAddr> = others.iter().collect();
        return compared.all(|address| set.contains(address));
    }
    compared.all(|address| others.contains(address))
}
