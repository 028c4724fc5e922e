//! The state that a record gives its address, and whether it names a given owner.

use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::text::TextRef;
use serde::Serialize;

use crate::claim::{Claim, container_ids, is_launcher, machines_of, may_be_launcher_of, names_service};
use crate::index::{Index, Owner, Workload};

/// The recorded state of an address. If the records of overlapping blocks disagree, the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressState {
    /// A block records the address as allocated.
    Allocated,
    /// A Windows node reserves the address.
    WindowsReserved,
    /// The address was released, but is not free yet.
    Cooling,
    /// A block contains the address, and it is free.
    Free,
    /// No block contains the address.
    NoBlock,
    /// The address's block is corrupt or cannot be decoded.
    Unknown,
}

impl AddressState {
    /// Returns the state of an address with this record.
    pub(crate) fn of(record: &AttributeRef<'_>) -> Self {
        if record.is_cooling() {
            Self::Cooling
        } else if record.is_windows_reserved() {
            Self::WindowsReserved
        } else {
            Self::Allocated
        }
    }
}

/// The extent to which a record names an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Nothing in the record contradicts the owner.
    Whole,
    /// The record names the owner's pod and container, but another node.
    OnOtherNode,
}

/// True if the record names this owner of the address.
pub fn names_owner(record: &AttributeRef<'_>, owner: Owner, index: &Index<'_>) -> bool {
    naming(record, owner, index).is_some()
}

/// Returns the extent to which the record names this owner of the address; `None` if it does not. A record with the
/// claim [`Claim::Anonymous`] or [`Claim::Unknown`] names any owner; a record of an address that is cooling down or
/// reserved for Windows names none. If the record names a service or virtual machine, but these were not read, it
/// contradicts no owner, with one exception: a virtual machine's record contradicts pods of other machines.
pub(crate) fn naming(record: &AttributeRef<'_>, owner: Owner, index: &Index<'_>) -> Option<Naming> {
    let claim = Claim::of(record);
    if claim.needs_unread_source(index.snapshot) {
        let is_contradicted = claim == Claim::Machine && is_launcher_of_another(record, owner, index);
        return if is_contradicted {
            None
        } else {
            Some(Naming::Whole)
        };
    }

    let is_named = match &claim {
        Claim::Cooling | Claim::WindowsReserved => false,
        Claim::Anonymous | Claim::Unknown => true,
        Claim::Tunnel { node, .. } => match owner {
            Owner::Tunnel(position, _) => index.snapshot.nodes[position as usize].value.name == *node,
            _ => false,
        },
        Claim::Service => match owner {
            Owner::Service(position) => names_service(record, index.service(position)),
            _ => false,
        },
        claim => {
            // Only endpoints and pods can be the owners that the other records name.
            let workload = index.workload(owner)?;
            // Early Calico versions wrote no container ID to pods.
            let lacks_id = matches!(claim, Claim::Container(_)) && workload.container_id.is_empty();
            let is_workload =
                lacks_id || names_workload(claim, &workload, index) || is_on_machine(record, &workload);
            if !is_workload && is_same_container(record, &workload) {
                return Some(Naming::OnOtherNode);
            }
            is_workload
        }
    };
    if is_named { Some(Naming::Whole) } else { None }
}

/// Returns true if the owner is a pod of another virtual machine than the recorded one.
fn is_launcher_of_another(record: &AttributeRef<'_>, owner: Owner, index: &Index<'_>) -> bool {
    match index.workload(owner) {
        Some(workload) => is_launcher(workload.pod) && !is_on_machine(record, &workload),
        None => false,
    }
}

/// True if the claim names the pod or container.
pub fn names_workload(claim: &Claim<'_>, workload: &Workload<'_>, index: &Index<'_>) -> bool {
    match claim {
        Claim::Pod { namespace, pod, node } => {
            workload.namespace == *namespace
                && workload.pod == *pod
                && node.is_none_or(|node| is_same_node(node, workload.node, index))
        }
        Claim::Container(id) => workload.container_id == *id.as_str(),
        Claim::Foreign { handle } => container_ids(handle).any(|id| workload.container_id == *id),
        Claim::LegacyPod { namespace, pod } => {
            let by_pod = workload.namespace == *namespace.as_str() && workload.pod == *pod.as_str();
            let handle = format!("{namespace}.{pod}");
            // With bare CNI, the handle is a network and a container ID of any form.
            by_pod
                || workload.workload == *handle.as_str()
                || container_ids(&handle).any(|id| workload.container_id == *id)
        }
        _ => false,
    }
}

/// True if the workload is a pod of the recorded virtual machine, according to the record's attributes, its alternate
/// attributes from a live migration, or the pod's owner or name.
pub fn is_on_machine(record: &AttributeRef<'_>, workload: &Workload<'_>) -> bool {
    if Claim::of(record) != Claim::Machine {
        return false;
    }

    let names_pod = |owner: OwnerMap<'_>| {
        owner.get("namespace") == Some(workload.namespace) && owner.get("pod") == Some(workload.pod)
    };
    if names_pod(record.owner()) || record.alternate().is_some_and(names_pod) {
        return true;
    }

    let machines = machines_of(record);
    if machines.is_empty() {
        // The hash in a handle could belong to any machine.
        return is_of_any_machine(workload);
    }
    machines.iter().any(|(namespace, name)| {
        workload.namespace == *namespace.as_str() && may_be_of_machine(workload, name)
    })
}

/// Returns true if the workload is a pod of a virtual machine. Without the pod's owner, its name decides.
fn is_of_any_machine(workload: &Workload<'_>) -> bool {
    match workload.machine {
        Some(machine) => !machine.is_empty(),
        None => is_launcher(workload.pod),
    }
}

/// Returns true if the workload is a pod of the virtual machine with this name, or, without the pod's owner, can be one
/// by its name.
fn may_be_of_machine(workload: &Workload<'_>, name: &str) -> bool {
    match workload.machine {
        Some(machine) => machine == *name,
        None => may_be_launcher_of(&workload.pod.to_string(), name),
    }
}

/// True if the record names the workload's pod and container, on any node.
pub(crate) fn is_same_container(record: &AttributeRef<'_>, workload: &Workload<'_>) -> bool {
    if workload.container_id.is_empty() {
        return false;
    }
    if record.get("pod") != Some(workload.pod) || record.get("namespace") != Some(workload.namespace) {
        return false;
    }
    let Some(handle) = record.clean_handle() else {
        return false;
    };
    container_ids(&handle.to_string()).any(|id| workload.container_id == *id)
}

/// True if two names belong to the same node: they are equal, or one is the Kubernetes name of the other.
pub fn is_same_node(name: TextRef<'_>, other: TextRef<'_>, index: &Index<'_>) -> bool {
    if name == other {
        return true;
    }
    let kubernetes_name = |name: TextRef<'_>| {
        let node = index.node(&name.to_string())?;
        node.kubernetes_name.as_deref()
    };
    kubernetes_name(name).is_some_and(|of_kubernetes| other == *of_kubernetes)
        || kubernetes_name(other).is_some_and(|of_kubernetes| name == *of_kubernetes)
}
