//! `assign`: assigns addresses.

use std::collections::BTreeSet;

use calipam_datastore::write::Consent;
use calipam_model::node::Node;
use calipam_model::snapshot::{Snapshot, Versioned};
use calipam_plan::Plan;
use calipam_plan::assign;

use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::{Failure, Result};
use crate::operator::Access;
use crate::run::{Intent, Run};
use crate::scope;
use crate::write::Repaired;

/// A request to assign addresses.
#[derive(Clone, Debug)]
pub struct AssignRequest {
    /// The request without its pools, which come from `pools`.
    pub wanted: assign::Request,
    /// The pools to choose from, by name or CIDR. If empty, the pools that select the node are used.
    pub pools: Vec<String>,
    pub criteria: Criteria,
    pub intent: Intent,
}

/// Reads the cluster, plans with the allocator, shows the plan, asks the operator, and assigns the addresses.
///
/// # Errors
/// If an object cannot be read or written, the node or a pool is not found, or the operator does not agree.
pub async fn assign(access: Access<'_>, request: &AssignRequest) -> Result<Repaired> {
    let run = Run::new(access, &request.intent);
    let seen = read_and_check(access, &request.criteria).await?;
    let first_plan = plan(&seen, request)?;
    let tried_plan = seen.try_plan(first_plan, &request.criteria)?;
    let shown_plan = tried_plan.clone();
    // An address may have been taken while the operator was thinking.
    let check_again = async |consent: &Consent| {
        if !consent.was_typed() {
            return Ok(Vec::new());
        }
        let seen_later = read_and_check(access, &request.criteria).await?;
        match assign::taken_since(&seen_later.basis(&request.criteria), &shown_plan).pop() {
            Some(taken) => Err(Failure::refused(format!("{}; nothing was changed", taken.detail))),
            None => Ok(Vec::new()),
        }
    };
    let passed = None;
    run.write_if(tried_plan, passed, check_again).await
}

/// Finds the node that the request names.
fn node<'s>(snapshot: &'s Snapshot, request: &AssignRequest) -> Result<&'s Node> {
    let name = &request.wanted.node;
    let mut known_names = BTreeSet::new();
    for Versioned { value: node, .. } in &snapshot.nodes {
        if node.name == *name {
            return Ok(node);
        }
        known_names.insert(node.name.clone());
    }
    Err(scope::unknown_node(name, &known_names))
}

/// Plans the assignment, in the pools that the request names.
fn plan(seen: &CheckResult, request: &AssignRequest) -> Result<Plan> {
    let snapshot = &seen.snapshot;
    let node = node(snapshot, request)?;
    let mut pools = Vec::new();
    for name in &request.pools {
        pools.extend(scope::pool(&[snapshot], name)?);
    }
    let wanted = assign::Request {
        pools,
        ..request.wanted.clone()
    };
    Ok(assign::plan(&seen.basis(&request.criteria), node, &wanted))
}
