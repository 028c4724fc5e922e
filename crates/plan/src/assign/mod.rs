//! Plans of `assign`, which assigns addresses by hand. The allocator of `calipam-assign` runs on the snapshot, and its
//! writes there become the plan.

mod edits;
mod refusal;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_assign::{Allocator, AssignIp, AutoAssign, Family, SnapshotStore, Write, without_waiting};
use calipam_check::owner::RecordedOwner;
use calipam_check::{Places, Subject, names_of_mentions, names_of_owners};
use calipam_model::IpNet;
use calipam_model::handle::{clean_id, is_storable_id};
use calipam_model::node::Node;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{ALLOCATION_SOURCES, DatastoreKind};

use crate::basis::Basis;
use crate::basis::handles::HandleAllocations;
use crate::plan::{Action, Plan, PlanKind, Verb};
use crate::range;
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

/// A request for addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The node that the addresses are for. It has to exist.
    pub node: String,
    /// Addresses that the operator names.
    pub addresses: Vec<IpAddr>,
    /// The number of addresses that the allocator chooses, in each family of the pools. If no pools are named, the
    /// family is IPv4, or IPv6 in a cluster without IPv4 pools.
    pub count: u32,
    /// The pools to choose from, by CIDR; empty for those that select the node.
    pub pools: Vec<IpNet>,
    /// The handle under which the addresses are recorded.
    pub handle: Option<String>,
    /// The attributes of the owner in the record.
    pub attributes: BTreeMap<String, String>,
    /// True to assign named addresses even if something uses them without a record, or the allocator would never assign
    /// them to a pod.
    pub force: bool,
}

/// Plans an assignment. Addresses that cannot be assigned are skipped, with the reason.
pub fn plan(basis: &Basis<'_>, node: &Node, request: &Request) -> Plan {
    let mut planner = Planner {
        basis,
        node,
        request,
        plan: Plan::new(PlanKind::Assign, basis.snapshot, Vec::new()),
    };
    if let Some(refusal) = planner.refusal() {
        planner.plan.skipped.push(refusal);
        return planner.plan;
    }

    let writes = planner.allocate();
    let actions = edits::actions(basis, request, writes);
    let assigned = assigned_addresses(&actions);
    if assigned.is_empty() {
        // If no address is assigned, no block is claimed.
        planner.plan.warnings.clear();
    } else {
        planner.plan.actions = actions;
        planner.plan.forced = assigned;
    }
    planner.plan
}

/// Returns the addresses that the steps assign, in their order.
fn assigned_addresses(actions: &[Action]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for change in actions.iter().flat_map(|action| &action.changes) {
        if change.action == Verb::AssignAddress {
            addresses.extend(change.subject.address());
        }
    }
    addresses
}

struct Planner<'b, 's> {
    basis: &'b Basis<'s>,
    node: &'b Node,
    request: &'b Request,
    plan: Plan,
}

impl Planner<'_, '_> {
    /// Returns the reason if nothing can be assigned, before the allocator runs. Warns if the handle has a live owner.
    fn refusal(&mut self) -> Option<Skipped> {
        let snapshot = self.basis.snapshot;
        let mut sources = ALLOCATION_SOURCES.into_iter();
        if let Some(source) = sources.find(|source| !snapshot.has_read(*source)) {
            let node = Subject::Node(self.request.node.clone());
            let detail = format!("this cannot be decided, since {source} were not read");
            return Some(Skipped::new(node, SkipReason::NotRead, detail));
        }

        let id = self.request.handle.clone()?;
        let refusal = self.refusal_of_handle(&id);
        if refusal.is_some() {
            return refusal;
        }

        if let Some(owner) = self.owner_of_handle(&id) {
            self.plan.warnings.push(format!(
                "the handle {id} belongs to {owner}, which exists: these addresses will be released with those of that owner"
            ).into());
        }
        None
    }

    /// Returns the reason if no address can be recorded under a handle with this ID.
    fn refusal_of_handle(&self, id: &str) -> Option<Skipped> {
        let datastore = self.basis.snapshot.datastore;
        let subject = Subject::Handle(id.to_owned());
        if clean_id(id) != id || !is_storable_id(id, datastore) {
            let detail = format!("{id:?} cannot be a handle ID in this datastore");
            return Some(Skipped::new(subject, SkipReason::HandleNotStorable, detail));
        }

        // The names of Kubernetes objects are in lower case.
        if datastore == DatastoreKind::Kubernetes
            && let Some(other) = self.handle_in_other_case(id)
        {
            let detail =
                format!("it would share one object with the handle {other}, which differs only in case");
            return Some(Skipped::new(subject, SkipReason::NeedsDecision, detail));
        }
        None
    }

    /// Returns the ID of a stored handle that differs from this one only in case.
    fn handle_in_other_case(&self, id: &str) -> Option<String> {
        let handles = &self.basis.snapshot.handles;
        let mut ids = handles.iter().map(|handle| handle.value.id().to_string());
        ids.find(|other| other != id && other.eq_ignore_ascii_case(id))
    }

    /// Returns a live owner that has addresses under the handle.
    fn owner_of_handle(&self, id: &str) -> Option<String> {
        let handles = HandleAllocations::new(self.basis, &HashSet::from([id.to_owned()]));
        let allocated = handles.allocated(id);
        let mut records: Vec<(IpNet, u32)> = Vec::new();
        for allocation in allocated {
            records.push((allocation.block, allocation.guard.ordinal));
        }
        let context = &self.basis.context;
        let owners = context.recorded_owners(&records);
        let first_live = owners
            .iter()
            .position(|owner| matches!(owner, RecordedOwner::UsesAddress | RecordedOwner::Idle))?;

        let address = allocated.get(first_live)?.address;
        let users = context.owners_of(address);
        if users.is_empty() {
            Some(format!("the owner of {address}"))
        } else {
            Some(names_of_owners(&users))
        }
    }

    /// Runs the allocator on the snapshot. Returns its writes.
    fn allocate(&mut self) -> Vec<Write> {
        let mut store = SnapshotStore::new(self.basis.snapshot);
        store.avoided = self.unrecorded();
        let allocator = Allocator::new(&store);
        if self.request.count > 0 {
            self.choose(&allocator);
        }

        for address in &self.request.addresses {
            self.assign_named(&allocator, *address);
        }
        drop(allocator);
        store.into_writes()
    }

    /// Returns the addresses in pools that an object uses or names, or that belong to a service, although no block
    /// records them. The allocator would treat them as free.
    fn unrecorded(&self) -> Vec<IpAddr> {
        let index = &self.basis.context.index;
        let snapshot = self.basis.snapshot;
        let mut addresses = Vec::new();
        for pool in &snapshot.pools {
            let cidr = pool.value.cidr;
            addresses.extend(index.uses_in(cidr).iter().map(|used| used.address));
            addresses.extend(index.mentioned_in(cidr).iter().copied());
        }

        let cidrs = snapshot.pools.iter().map(|pool| pool.value.cidr);
        for service in Places::of(snapshot, cidrs).services {
            addresses.push(service.address);
        }

        addresses.retain(|address| !is_recorded(self.basis, *address));
        addresses
    }

    /// Assigns addresses that the allocator chooses.
    fn choose(&mut self, allocator: &Allocator<&SnapshotStore<'_>>) {
        let request = self.request;
        let is_v4 = |cidr: &IpNet| Family::of(*cidr) == Family::V4;
        let (pools_v4, pools_v6): (Vec<IpNet>, Vec<IpNet>) =
            request.pools.iter().partition(|pool| is_v4(pool));
        let (v4, v6) = if request.pools.is_empty() {
            // Without named pools, the addresses are IPv4 if the cluster has such pools.
            let mut pools = self.basis.snapshot.pools.iter();
            if pools.any(|stored| is_v4(&stored.value.cidr)) {
                (request.count, 0)
            } else {
                (0, request.count)
            }
        } else {
            let number = |pools: &[IpNet]| if pools.is_empty() { 0 } else { request.count };
            (number(&pools_v4), number(&pools_v6))
        };

        let wanted = AutoAssign {
            host: request.node.clone(),
            v4,
            v6,
            handle: request.handle.clone(),
            attributes: Some(request.attributes.clone()).filter(|attributes| !attributes.is_empty()),
            pools_v4,
            pools_v6,
            intended_use: Some(PoolUse::Workload),
            windows: self.node.is_windows(),
            ..AutoAssign::default()
        };
        let (done, error) = match without_waiting(allocator.auto_assign(&wanted)) {
            Ok(done) => (done, None),
            Err(partly) => (partly.done, Some(partly.error)),
        };

        let asked = v4.saturating_add(v6);
        let assigned = u32::try_from(done.addresses().count()).unwrap_or(u32::MAX);
        let missing = asked.saturating_sub(assigned);
        if missing == 0 {
            return;
        }
        let mut reasons: Vec<String> = Vec::new();
        if let Some(error) = &error {
            reasons.push(refusal::explain_choice(self.basis, error));
        }
        for family in done.v4.iter().chain(&done.v6) {
            reasons.extend(family.messages.iter().map(ToString::to_string));
        }
        let detail = format!(
            "{missing} of {asked} addresses cannot be assigned: {}",
            reasons.join("; ")
        );
        let node = Subject::Node(request.node.clone());
        let skipped = Skipped::new(node, SkipReason::NotAvailable, detail);
        let explain = SuggestedAction::ExplainNode(request.node.clone());
        self.plan.skipped.push(skipped.suggesting(explain));
    }

    /// Assigns an address that the operator names.
    fn assign_named(&mut self, allocator: &Allocator<&SnapshotStore<'_>>, address: IpAddr) {
        let objection =
            in_use(self.basis, address).or_else(|| refusal::refuse_unassignable(self.basis, address));
        if let Some(objection) = objection {
            if !self.request.force {
                self.plan.skipped.push(objection);
                return;
            }
            self.override_objection(address, &objection);
        }

        let wanted = AssignIp {
            handle: self.request.handle.clone(),
            attributes: Some(self.request.attributes.clone()).filter(|attributes| !attributes.is_empty()),
            windows: self.node.is_windows(),
            ..AssignIp::new(self.request.node.clone(), address)
        };

        match without_waiting(allocator.assign_ip(&wanted)) {
            Ok(()) => self.warn_of_exclusions(address),
            Err(error) => {
                let skipped = refusal::explain(self.basis, &self.request.node, address, &error);
                self.plan.skipped.push(skipped);
            }
        }
    }

    /// Warns of an objection in spite of which the operator wants the address. A later check accepts it, too.
    fn override_objection(&mut self, address: IpAddr, objection: &Skipped) {
        let warning = format!("--force: {}; assigning anyway", objection.detail);
        self.plan.warnings.push(warning.into());
        self.plan.objected.push(address);
    }

    /// Warns if automatic assignment would not give the address to the node: its pool selects other nodes, or it is
    /// reserved. An assignment by hand respects neither.
    fn warn_of_exclusions(&mut self, address: IpAddr) {
        self.warn_of_node_selector(address);
        self.warn_of_reservation(address);
    }

    /// Warns if the pool of the address selects other nodes.
    fn warn_of_node_selector(&mut self, address: IpAddr) {
        if let Some(pool) = self.basis.context.index.enabled_pool_around(address)
            && let Ok(selector) = pool.selected_nodes()
            && !selector.matches(&self.node.labels)
        {
            let warning = format!(
                "{address} is in pool {}, whose nodeSelector ({}) does not select the node: pods on the node get addresses there only if they request the pool",
                pool.name, pool.node_selector
            );
            self.plan.warnings.push(warning.into());
        }
    }

    /// Warns if a reservation contains the address.
    fn warn_of_reservation(&mut self, address: IpAddr) {
        for stored in &self.basis.snapshot.reservations {
            let reservation = &stored.value;
            if reservation.cidrs.iter().any(|cidr| cidr.contains(&address)) {
                let warning = format!(
                    "{address} is reserved by {}, which only excludes it from automatic assignment",
                    reservation.name
                );
                self.plan.warnings.push(warning.into());
                // One reservation is reason enough.
                return;
            }
        }
    }
}

/// Refuses an address that no block records, but that something uses or may use.
fn in_use(basis: &Basis<'_>, address: IpAddr) -> Option<Skipped> {
    if is_recorded(basis, address) {
        return None;
    }

    let index = &basis.context.index;
    let owners = basis.context.owners_of(address);
    let detail = if !owners.is_empty() {
        let owners = names_of_owners(&owners);
        format!("{address} is used by {owners}, although no block records it")
    } else if let Err(refusal) = range::require_free(basis.snapshot, address.into()) {
        refusal.to_string()
    } else if index.is_mentioned(address) {
        let names = names_of_mentions(&index.mentions(address));
        format!("{address} is named by {names}, although no block records it")
    } else {
        return None;
    };
    Some(Skipped::new(Subject::Address(address), SkipReason::InUse, detail))
}

fn is_recorded(basis: &Basis<'_>, address: IpAddr) -> bool {
    basis.context.index.records_of(address).next().is_some()
}

/// Refuses the addresses of a plan that are in use now, except those in `objected`.
pub fn taken_since(basis: &Basis<'_>, plan: &Plan) -> Vec<Skipped> {
    let mut refused = Vec::new();
    for address in &plan.forced {
        if !plan.objected.contains(address) {
            refused.extend(in_use(basis, *address));
        }
    }
    refused
}
