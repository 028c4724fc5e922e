//! `assign`: from a request to assigned addresses.

use std::net::IpAddr;

use calipam_assign::Event;
use calipam_datastore::Datastore;
use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;
use calipam_plan::Skipped;
use calipam_plan::assign::{self, Assignment};

use crate::error::{Error, NotFound};
use crate::operator::{Operator, Pending};
use crate::planning::try_plan;
use crate::read::{CheckResult, Criteria, read_and_check};
use crate::run::{Intent, Run};
use crate::scope;
use crate::write::Repaired;

/// What to assign, and how.
#[derive(Clone, Debug)]
pub struct AssignRequest {
    /// All but the pools.
    pub wanted: assign::Request,
    /// The pools to choose from, by name or CIDR; empty for those that select the node.
    pub pools: Vec<String>,
    pub criteria: Criteria,
    pub intent: Intent,
}

/// How the allocator decides on a request. Nothing was written.
#[derive(Clone, Debug)]
pub struct Explained {
    pub snapshot: Snapshot,
    /// The node that the addresses are for.
    pub node: Node,
    pub events: Vec<Event>,
    /// What it would assign.
    pub addresses: Vec<IpAddr>,
    /// What it would not, and why.
    pub skipped: Vec<Skipped>,
}

/// Reads, lets the allocator plan, shows the plan, asks, and assigns.
///
/// # Errors
/// If something cannot be read or written, node or pool are not known, or the operator does not agree.
pub fn assign<'a>(
    datastore: &'a Datastore,
    request: &'a AssignRequest,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Repaired, Error>> {
    Box::pin(async move {
        let run = Run::new(datastore, &request.intent, operator);
        let seen = read_and_check(datastore, &request.criteria, operator).await?;
        let Assignment { plan, .. } = plan(&seen, request)?;
        let plan = try_plan(seen, plan, &request.criteria)?;
        let planned = plan.clone();
        let holds = async |was_asked: bool| {
            if !was_asked {
                return Ok(());
            }
            let now = read_and_check(datastore, &request.criteria, operator).await?;
            match assign::taken_since(&now.basis(&request.criteria), &planned).pop() {
                Some(taken) => Err(Error::TakenSince(taken.detail)),
                None => Ok(()),
            }
        };
        run.write_if(plan, None, holds).await
    })
}

/// Reads, and lets the allocator say how it decides.
pub fn explain_assignment<'a>(
    datastore: &'a Datastore,
    request: &'a AssignRequest,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Explained, Error>> {
    Box::pin(async move {
        let seen = read_and_check(datastore, &request.criteria, operator).await?;
        let Assignment { plan, events } = plan(&seen, request)?;
        let node = node(&seen.snapshot, request)?.clone();
        // That it can be explained need not be said in an explanation.
        let without_suggestion = |skipped: Skipped| Skipped { suggested_action: None, ..skipped };
        let skipped = plan.skipped.into_iter().map(without_suggestion).collect();
        Ok(Explained { snapshot: seen.snapshot, node, events, addresses: plan.forced, skipped })
    })
}

fn node<'s>(snapshot: &'s Snapshot, request: &AssignRequest) -> Result<&'s Node, Error> {
    let wanted = &request.wanted.node;
    let mut nodes = snapshot.nodes.iter().map(|node| &node.value);
    nodes.find(|node| node.name == *wanted).ok_or_else(|| {
        let known = snapshot.nodes.iter().map(|node| node.value.name.clone()).collect();
        Error::UnknownNode(NotFound::of(wanted, &known))
    })
}

fn plan(seen: &CheckResult, request: &AssignRequest) -> Result<Assignment, Error> {
    let snapshot = &seen.snapshot;
    let node = node(snapshot, request)?;
    let pools = request.pools.iter().map(|name| scope::pool(snapshot, name)).collect::<Result<_, _>>()?;
    let wanted = assign::Request { pools, ..request.wanted.clone() };
    Ok(assign::plan(&seen.basis(&request.criteria), node, &wanted))
}
