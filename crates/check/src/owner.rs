//! The state of the owner that a record names. Rules, `show`, releases and rebuilds all use this module, so they never
//! disagree on whether an owner is gone.

mod identity;
mod undecodable;

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{Coverage, Snapshot, Source};

use self::identity::{claimed_identities, each_identity};
use self::undecodable::{has_broken_tunnel, may_be_any_container, protects};
use crate::claim::{Claim, machines_of, names_service, unread};
use crate::context::Context;
use crate::finding::LeakReason;
use crate::index::{Index, Owner, Record, texts_of_pod};
use crate::record::{is_on_machine, is_same_container, names_owner, names_workload};

/// The state of the owner that a record names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedOwner {
    UsesAddress,
    /// The owner exists and keeps the address, but is not using it: a pod or container that has no address yet; a pod
    /// that names only an address of the other family under the same handle; a virtual machine; or a service whose
    /// ingress does not name the address.
    Idle,
    /// The owner exists, but no longer owns the address: it moved, has another address, or finished.
    Elsewhere(Vec<LeakReason>),
    /// The owner does not exist.
    Gone(Vec<LeakReason>),
    /// The record names no owner, or only a container ID, which could belong to an endpoint or pod that cannot be
    /// decoded.
    Unnamed,
    /// The address has no owner: it is cooling down after its release, Windows reserves it, or no readable block
    /// records it.
    Unowned,
    /// The owner might exist.
    Unknown(UnknownReason),
}

/// The reason why an owner's state is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// Objects that could show the owner were not read, or only in part.
    NotRead,
    /// An object that could be the owner cannot be decoded.
    Undecodable,
    /// The node's object is missing, but Kubernetes has the node, or endpoints or pods still name it. Calico's
    /// collector keeps such a node's tunnel addresses, too.
    NodeInUse,
    /// The record belongs to a virtual machine, but does not name it or has only a hash of its name.
    NoName,
}

impl Context<'_> {
    /// Returns the states of the owners that these allocations name. Each allocation is given by its block and its
    /// ordinal.
    pub fn recorded_owners(&self, allocations: &[(IpNet, u32)]) -> Vec<RecordedOwner> {
        let mut records: Vec<Option<(Record<'_, '_>, Claim<'_>)>> = Vec::with_capacity(allocations.len());
        for (cidr, ordinal) in allocations {
            let record = self.readable_record(*cidr, *ordinal);
            records.push(record.map(|record| (record, Claim::of(&record.allocation.attribute))));
        }
        let owners = Owners::new(self, records.iter().flatten().map(|(_, claim)| claim));

        let mut states = Vec::with_capacity(records.len());
        for record in &records {
            states.push(match record {
                Some((_, claim)) if unread(self.snapshot, claim).is_some() => {
                    RecordedOwner::Unknown(UnknownReason::NotRead)
                }
                Some((record, claim)) => owners.state_of(record, claim),
                None => RecordedOwner::Unowned,
            });
        }
        states
    }

    /// Returns an allocation with its block; `None` if Calico could not read it.
    fn readable_record(&self, cidr: IpNet, ordinal: u32) -> Option<Record<'_, '_>> {
        let block = self.index.block(cidr)?;
        let allocation = block.usable?.allocation(ordinal)?;
        Some(Record { block, allocation })
    }
}

/// The owners that a set of records names. One pass over the snapshot looks up endpoints and pods for all records.
pub struct Owners<'c, 's> {
    context: &'c Context<'s>,
    /// Endpoints and pods by [`identity`].
    workloads: HashMap<Vec<u8>, Vec<Owner>>,
}

impl<'c, 's> Owners<'c, 's> {
    /// Looks up the workloads of `claims`. Later lookups with other claims find nothing.
    pub fn new<'l>(context: &'c Context<'s>, claims: impl IntoIterator<Item = &'l Claim<'l>>) -> Self {
        let identities = claims.into_iter().flat_map(claimed_identities);
        let mut owners = Self {
            context,
            workloads: identities.map(|identity| (identity, Vec::new())).collect(),
        };
        if !owners.workloads.is_empty() {
            owners.find_workloads();
        }
        owners
    }

    /// Fills in the endpoints and pods of each identity that a claim names, in one pass over all of them.
    fn find_workloads(&mut self) {
        let snapshot = self.context.snapshot;
        let mut key = Vec::new();
        let mut add = |owner: Owner, texts| {
            each_identity(&mut key, &texts, |identity| {
                if let Some(workloads) = self.workloads.get_mut(identity) {
                    workloads.push(owner);
                }
            });
        };
        for (position, endpoint) in (0..).zip(&snapshot.endpoints) {
            add(Owner::Endpoint(position), endpoint.value.texts());
        }
        for (position, pod) in (0..).zip(&snapshot.pods) {
            add(Owner::Pod(position), texts_of_pod(&pod.value));
        }
    }

    /// Returns the endpoints and pods with the name or container ID in a claim, on any node and with any address.
    pub fn workloads(&self, claim: &Claim<'_>) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        for identity in claimed_identities(claim) {
            if let Some(workloads) = self.workloads.get(&identity) {
                owners.extend(workloads);
            }
        }
        owners.sort();
        owners.dedup();
        owners
    }

    /// Returns the first of a claim's endpoints and pods that uses any address.
    pub fn user(&self, claim: &Claim<'_>) -> Option<Owner> {
        let index = &self.context.index;
        self.workloads(claim)
            .into_iter()
            .find(|owner| index.is_user(*owner))
    }

    /// Returns the state of a record's owner.
    pub(crate) fn state_of(&self, record: &Record<'_, '_>, claim: &Claim<'_>) -> RecordedOwner {
        let is_named = !matches!(claim, Claim::Anonymous | Claim::Unknown);
        let mut uses = self.context.index.uses_of(record.allocation.address).iter();
        if is_named && uses.any(|used| self.is_owner(record, claim, used.owner)) {
            return RecordedOwner::UsesAddress;
        }
        self.state_of_unused(record, claim)
    }

    /// True if a user of the record's address is certainly its recorded owner.
    fn is_owner(&self, record: &Record<'_, '_>, claim: &Claim<'_>, user: Owner) -> bool {
        let index = &self.context.index;
        let attribute = &record.allocation.attribute;
        if !claim.needs_unread_source(self.context.snapshot) {
            return names_owner(attribute, user, index);
        }
        // The recorded owner was not read. `names_owner` accepts any user then, but only a pod of the recorded machine
        // is certainly the owner.
        let workload = index.workload(user);
        workload.is_some_and(|workload| is_on_machine(attribute, &workload))
    }

    /// Returns the state of an owner that is known not to use the record's address.
    pub(crate) fn state_of_unused(&self, record: &Record<'_, '_>, claim: &Claim<'_>) -> RecordedOwner {
        let snapshot = self.context.snapshot;
        let attribute = &record.allocation.attribute;
        match claim {
            Claim::Cooling | Claim::WindowsReserved => RecordedOwner::Unowned,
            claim if claim.needs_unread_source(snapshot) => RecordedOwner::Unknown(UnknownReason::NotRead),
            Claim::Tunnel { kind, node } => self.tunnel(record, *kind, node),
            // A container that has no address yet could be about to get the recorded address.
            Claim::Foreign { .. } if self.waits(claim) => RecordedOwner::Idle,
            Claim::Anonymous | Claim::Unknown | Claim::Foreign { .. } => {
                let host = record.block.host();
                let is_host_broken = host.is_some_and(|host| self.context.index.node_is_broken(host));
                // The node itself may be the owner.
                if is_host_broken {
                    RecordedOwner::Unknown(UnknownReason::Undecodable)
                } else {
                    RecordedOwner::Unnamed
                }
            }
            Claim::Service => state_of_service(snapshot, attribute),
            Claim::Machine => state_of_machine(snapshot, attribute),
            Claim::Pod { .. } | Claim::Container(_) | Claim::LegacyPod { .. } => self.workload(record, claim),
        }
    }

    /// Returns true if one of the claim's endpoints or pods has no address yet, and has not finished.
    fn waits(&self, claim: &Claim<'_>) -> bool {
        self.workloads(claim)
            .into_iter()
            .any(|owner| reason_not_to_use(&self.context.index, owner).is_none())
    }

    /// Finds out what has become of the recorded owner of an unused address, a tunnel of a node.
    fn tunnel(&self, record: &Record<'_, '_>, kind: TunnelKind, node: &str) -> RecordedOwner {
        let index = &self.context.index;
        let Some(exists) = node_exists(self.context, record, node) else {
            return RecordedOwner::Unknown(UnknownReason::NotRead);
        };
        if !exists {
            return if index.workloads_name_node(node) {
                RecordedOwner::Unknown(UnknownReason::NodeInUse)
            } else {
                RecordedOwner::Gone(vec![LeakReason::NodeGone])
            };
        }

        if index.node_is_broken(node) || has_broken_tunnel(self.context, node, kind) {
            return RecordedOwner::Unknown(UnknownReason::Undecodable);
        }
        if index.lacks_object(node) {
            return RecordedOwner::Unknown(UnknownReason::NodeInUse);
        }
        RecordedOwner::Elsewhere(vec![LeakReason::TunnelMoved])
    }

    /// Returns true if the record's handle also holds an address that the pod names. All addresses of a sandbox have
    /// the same handle, and Calico's collector releases all of them or none. `None` if that is not known, since not all
    /// blocks were read.
    fn shares_handle(&self, record: &Record<'_, '_>, owner: Owner) -> Option<bool> {
        let Owner::Pod(position) = owner else {
            return Some(false);
        };
        let Some(handle) = record.allocation.attribute.clean_handle() else {
            return Some(false);
        };
        let snapshot = self.context.snapshot;
        let pod = &snapshot.pods[position as usize].value;
        for address in pod.mentioned() {
            for other in self.context.index.records_of(address) {
                if other.allocation.attribute.clean_handle() == Some(handle) {
                    return Some(true);
                }
            }
        }
        if snapshot.has_read(Source::Blocks) {
            Some(false)
        } else {
            None
        }
    }

    /// Returns true for a pod that was deleted less than the grace period ago, and whose containers could still run.
    fn is_leaving(&self, owner: Owner) -> bool {
        let Owner::Pod(position) = owner else { return false };
        let since = self.context.snapshot.pods[position as usize].value.leaving_since;
        since.is_some_and(|since| self.context.now.duration_since(since) < self.context.grace)
    }

    /// Returns the state of a pod or container, based on endpoints and pods with its name. If pods were read, they
    /// decide: an endpoint without a pod protects only the addresses that it names.
    fn workload(&self, record: &Record<'_, '_>, claim: &Claim<'_>) -> RecordedOwner {
        let snapshot = self.context.snapshot;
        let index = &self.context.index;
        if index
            .broken_workloads
            .iter()
            .any(|broken| protects(broken, record, claim))
        {
            return RecordedOwner::Unknown(UnknownReason::Undecodable);
        }

        let mut reasons = Vec::new();
        let node = record
            .allocation
            .attribute
            .get("node")
            .map(|node| node.to_string());
        if node.is_some_and(|node| node_exists(self.context, record, &node) == Some(false)) {
            reasons.push(LeakReason::NodeGone);
        }

        let pods_read = snapshot.has_read(Source::Pods);
        let mut exists = false;
        let mut is_here = false;
        let is_of_pod = |owner: &Owner| match owner {
            Owner::Endpoint(position) => !index.endpoint(*position).pod().is_empty(),
            _ => false,
        };
        for owner in &self.workloads(claim) {
            if pods_read && is_of_pod(owner) {
                continue;
            }
            exists = true;
            if !index
                .workload(*owner)
                .is_some_and(|workload| names_workload(claim, &workload, index))
            {
                continue;
            }
            is_here = true;
            match reason_not_to_use(index, *owner) {
                Some(LeakReason::PodFinished) if self.is_leaving(*owner) => return RecordedOwner::Idle,
                Some(LeakReason::PodHasOtherAddress) if names_other_family(index, *owner, record) => {
                    match self.shares_handle(record, *owner) {
                        Some(true) => return RecordedOwner::Idle,
                        Some(false) => reasons.push(LeakReason::PodHasOtherAddress),
                        None => return RecordedOwner::Unknown(UnknownReason::NotRead),
                    }
                }
                Some(reason) => reasons.push(reason),
                None if has_lost_sandbox(index, *owner, record) => reasons.push(LeakReason::SandboxGone),
                None => return RecordedOwner::Idle,
            }
        }

        if !is_here && !is_covered(snapshot, claim) {
            return RecordedOwner::Unknown(UnknownReason::NotRead);
        }
        if exists {
            if !is_here {
                reasons.push(LeakReason::PodMoved);
            }
            return RecordedOwner::Elsewhere(reasons);
        }
        if reasons.is_empty() && matches!(claim, Claim::Container(_)) {
            // A container ID names neither a pod nor a node, so any undecodable endpoint or pod could have it.
            if index.broken_workloads.iter().any(may_be_any_container) {
                return RecordedOwner::Unnamed;
            }
            reasons.push(LeakReason::UnknownOwner);
        } else if reasons.is_empty() {
            reasons.push(LeakReason::NoOwner);
        }
        RecordedOwner::Gone(reasons)
    }
}

/// Returns the state of the recorded service, which does not use the address.
fn state_of_service(snapshot: &Snapshot, record: &AttributeRef<'_>) -> RecordedOwner {
    let mut services = snapshot.services.iter();
    if services.any(|service| names_service(record, &service.value)) {
        RecordedOwner::Idle
    } else {
        RecordedOwner::Gone(vec![LeakReason::ServiceGone])
    }
}

/// Returns the state of the recorded virtual machine, which does not use the address.
fn state_of_machine(snapshot: &Snapshot, record: &AttributeRef<'_>) -> RecordedOwner {
    let machines = machines_of(record);
    if machines.is_empty() {
        return RecordedOwner::Unknown(UnknownReason::NoName);
    }
    let exists = machines
        .iter()
        .any(|(namespace, name)| snapshot.has_machine(namespace, name));
    if exists {
        RecordedOwner::Idle
    } else {
        RecordedOwner::Gone(vec![LeakReason::VmGone])
    }
}

/// Returns true for a pod that waits for a sandbox, if the record is for its earlier one, which was torn down.
fn has_lost_sandbox(index: &Index<'_>, owner: Owner, record: &Record<'_, '_>) -> bool {
    let Owner::Pod(position) = owner else { return false };
    if !index.snapshot.pods[position as usize].value.has_lost_sandbox() {
        return false;
    }
    index
        .workload(owner)
        .is_some_and(|workload| is_same_container(&record.allocation.attribute, &workload))
}

/// Returns true for a pod that does not use the host's network, and that names no address of the recorded address's
/// family. A status without addresses of one family is a separate fault, which pods of other plugins can have, too.
fn names_other_family(index: &Index<'_>, owner: Owner, record: &Record<'_, '_>) -> bool {
    let Owner::Pod(position) = owner else { return false };
    let is_v4 = record.allocation.address.is_ipv4();
    let pod = &index.snapshot.pods[position as usize].value;
    !pod.host_network && pod.mentioned().all(|address| address.is_ipv4() != is_v4)
}

/// Returns whether a node exists; `None` if it was not looked for. A partial read looks for the nodes that the record
/// and its block name.
pub(crate) fn node_exists(context: &Context<'_>, record: &Record<'_, '_>, node: &str) -> Option<bool> {
    if context.index.node_exists(node) {
        return Some(true);
    }
    let is_named = || {
        record
            .allocation
            .attribute
            .get("node")
            .is_some_and(|recorded| recorded == *node)
            || record.block.host() == Some(node)
    };
    match context.snapshot.coverage.get(&Source::Nodes) {
        Some(Coverage::Read) => Some(false),
        Some(Coverage::Partial) if is_named() => Some(false),
        _ => None,
    }
}

/// Returns true if a claim's pod or container would have been read if it existed. A partial read includes the objects
/// whose keys follow from the record. An endpoint's key starts with the node, a pod's key with the namespace.
fn is_covered(snapshot: &Snapshot, claim: &Claim<'_>) -> bool {
    let is_partial = |source| snapshot.coverage.get(&source) == Some(&Coverage::Partial);
    let names_pod_and_node = matches!(claim, Claim::Pod { node: Some(_), .. });
    snapshot.has_read(Source::Pods)
        || snapshot.has_read(Source::Endpoints)
        || is_partial(Source::Endpoints) && names_pod_and_node
        || is_partial(Source::Pods) && claim.pod().is_some()
}

/// Returns the reason why an endpoint or pod with the recorded name will not use the address; `None` if it has no
/// address yet, and could be about to get the recorded one.
fn reason_not_to_use(index: &Index<'_>, owner: Owner) -> Option<LeakReason> {
    let has_address = match owner {
        Owner::Pod(position) => {
            let pod = &index.snapshot.pods[position as usize].value;
            if pod.finished {
                return Some(LeakReason::PodFinished);
            }
            pod.host_network || pod.mentioned().next().is_some()
        }
        Owner::Endpoint(position) => index.endpoint(position).addresses().next().is_some(),
        Owner::Tunnel(..) | Owner::Service(_) => true,
    };
    if has_address {
        return Some(LeakReason::PodHasOtherAddress);
    }
    None
}
