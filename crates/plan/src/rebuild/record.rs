//! Creates the record of an address in use, as Calico would write it (facts 4).

use calipam_check::index::{Owner, Use, Workload};
use calipam_model::attributes::Attribute;
use calipam_model::edit::Precondition;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision};
use calipam_model::time::format_go_utc;

use super::networks::Networks;
use crate::basis::Basis;
use crate::basis::preconditions::Users;
use crate::skipped::{Refusal, Result, SkipReason};

/// The right record of an address.
pub(super) struct Wanted {
    pub record: Attribute,
    /// Preconditions that require the user of the address to be as it was read.
    pub evidence: Vec<(Key, Precondition)>,
}

/// Creates the record of an address. `uses` are the uses by its only owner.
pub(super) fn wanted(
    basis: &Basis<'_>,
    networks: &Networks,
    users: &Users<'_>,
    uses: &[Use],
) -> Result<Wanted> {
    let Some(used) = uses.first() else {
        return Err(Refusal::new(SkipReason::OwnerNotFound, "nothing uses it"));
    };

    let snapshot = basis.snapshot;
    let taken_at = format_go_utc(snapshot.taken_at.as_nanosecond().try_into().unwrap_or_default());
    let at = |revision: &Revision| Precondition::At(revision.clone());

    match used.owner {
        Owner::Tunnel(index, kind) => {
            let node = &snapshot.nodes[index as usize];
            let name = node.value.name.as_str();
            let handle = format!("{}{name}", kind.handle_prefix());
            let record = match snapshot.datastore {
                // Calico 2.x records neither handle nor attributes for a tunnel.
                DatastoreKind::EtcdV2 => Attribute::default(),
                _ => Attribute::new(Some(&handle), [("node", name), ("type", kind.attribute())]),
            };
            // A Kubernetes node changes with every heartbeat, so its version says nothing about its tunnel. If the node
            // has since given up the address, the next check reports the address as leaked.
            let evidence = match snapshot.datastore {
                DatastoreKind::Etcd | DatastoreKind::EtcdV2 => {
                    vec![(Key::Node(name.to_owned()), at(&node.revision))]
                }
                DatastoreKind::Kubernetes => Vec::new(),
            };
            Ok(Wanted { record, evidence })
        }
        Owner::Service(index) => {
            let service = &snapshot.services[index as usize];
            let namespace = service.value.namespace.as_str();
            let name = service.value.name.as_str();
            if service.value.uid.is_empty() {
                let detail = format!("service {namespace}/{name} has no UID, from which its handle is made");
                return Err(Refusal::new(SkipReason::OwnerNotFound, detail));
            }
            let owner = [
                ("namespace", namespace),
                ("service", name),
                ("timestamp", taken_at.as_str()),
                ("type", "LoadBalancer"),
            ];
            let record = Attribute::new(Some(&service.value.handle()), owner);
            Ok(Wanted {
                record,
                evidence: vec![(service.value.key(), users.service(index))],
            })
        }
        Owner::Endpoint(index) => {
            let endpoint = &snapshot.endpoints[index as usize];
            let record = of_workload(basis, networks, uses, &taken_at)?;
            Ok(Wanted {
                record,
                evidence: vec![(endpoint.value.key(), at(&endpoint.revision))],
            })
        }
        Owner::Pod(index) => {
            let key = snapshot.pods[index as usize].value.key();
            let record = of_workload(basis, networks, uses, &taken_at)?;
            Ok(Wanted {
                record,
                evidence: vec![(key, users.pod(index))],
            })
        }
    }
}

/// Returns the sandbox and the node of a workload, from the first source that names a sandbox.
pub(super) fn sandbox(basis: &Basis<'_>, uses: &[Use]) -> Option<(String, String)> {
    let index = &basis.context.index;
    for used in uses {
        if let Some(workload) = index.workload(used.owner)
            && !workload.container_id.is_empty()
        {
            let node = index.calico_node(workload.node);
            return Some((workload.container_id.to_string(), node));
        }
    }
    None
}

/// Returns the record that Calico would write for the workload that uses an address. Refuses if a part of it is not
/// known.
fn of_workload(basis: &Basis<'_>, networks: &Networks, uses: &[Use], taken_at: &str) -> Result<Attribute> {
    let index = &basis.context.index;
    let workloads: Vec<Workload<'_>> = uses
        .iter()
        .filter_map(|used| index.workload(used.owner))
        .collect();
    let Some(first) = workloads.first() else {
        return Err(Refusal::new(SkipReason::OwnerNotFound, "nothing uses it"));
    };

    let pod = first.pod.to_string();
    let names_machine = workloads
        .iter()
        .any(|workload| workload.machine.is_some_and(|machine| !machine.is_empty()));
    if names_machine || pod.starts_with("virt-launcher-") {
        let detail = "a virtual machine uses it, and its record needs UIDs that calipam does not read; \
                      migrate or restart the machine, so that Calico records an address for it";
        return Err(Refusal::new(SkipReason::NeedsDecision, detail));
    }
    if basis.snapshot.datastore == DatastoreKind::EtcdV2 {
        return Ok(of_calico_2(networks, first, sandbox(basis, uses)));
    }

    let unknown = |what: &str| {
        let detail = format!("{what}: deleting its pod could never free the address; restart the pod");
        Refusal::new(SkipReason::ContainerUnknown, detail)
    };

    let Some((container, node)) = sandbox(basis, uses) else {
        return Err(unknown("its container ID is not known"));
    };
    if node.is_empty() {
        return Err(Refusal::new(SkipReason::NodeUnknown, "its user names no node"));
    }
    let Some(network) = networks.most_likely(&container, &node) else {
        return Err(unknown("no other record shows the network name"));
    };

    let handle = format!("{network}.{container}");
    let namespace = first.namespace.to_string();
    let mut owner = vec![("node", node.as_str()), ("timestamp", taken_at)];
    if !pod.is_empty() {
        owner.push(("namespace", namespace.as_str()));
        owner.push(("pod", pod.as_str()));
    }
    Ok(Attribute::new(Some(&handle), owner))
}

/// Creates a Calico 2.x record, which has no attributes. Its handle is `<network>.<container>` if other records show a
/// late version of the CNI plugin; otherwise `<namespace>.<pod>`, or the ID of a workload that is not a pod.
fn of_calico_2(networks: &Networks, workload: &Workload<'_>, sandbox: Option<(String, String)>) -> Attribute {
    let handle = if let Some((container, node)) = sandbox
        && let Some(network) = networks.most_likely(&container, &node)
    {
        format!("{network}.{container}")
    } else if workload.pod.is_empty() {
        workload.workload.to_string()
    } else {
        format!("{}.{}", workload.namespace, workload.pod)
    };
    Attribute::new(Some(&handle), [])
}
