//! `release`: from a request to what was released.

use std::cell::LazyCell;
use std::path::PathBuf;
use std::slice;

use calipam_check::{Context, Options};
use calipam_datastore::Datastore;
use calipam_model::selector::Selector;
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{self, Observations, Request};

use crate::error::Error;
use crate::operator::{Operator, Pending};
use crate::planning::{cooldown, try_plan};
use crate::read::{CheckResult, Criteria, read_and_check};
use crate::reports;
use crate::run::{Intent, Run};
use crate::scope::{Names, Part, is_pattern, nodes};
use crate::second_read::{Planned, plan_after_grace, warn_of_short_grace};
use crate::write::Repaired;

/// What to release, and how.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// All but the pools.
    pub targets: Request,
    /// Names or CIDRs.
    pub pools: Vec<String>,
    pub selector: Option<Selector>,
    /// Files with reports of earlier checks, whose observations count as earlier reads.
    pub reports: Vec<PathBuf>,
    pub criteria: Criteria,
    pub intent: Intent,
    /// The datastore is locked while this runs, as calicoctl requires for its reports.
    pub lock: bool,
}

/// Reads, plans, shows the plan, asks, and releases.
pub fn release<'a>(
    datastore: &'a Datastore,
    request: &'a ReleaseRequest,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Repaired, Error>> {
    Box::pin(async move {
        let criteria = &request.criteria;
        let run = Run::new(datastore, &request.intent, operator);
        let seen = read_and_check(datastore, criteria, operator).await?;
        run.refuse_doubtful(&seen.snapshot)?;
        if request.targets.leaked || request.targets.orphan_handles {
            warn_of_short_grace(&seen.snapshot, criteria, operator);
        }
        let targets = targets(request, &seen.snapshot)?;
        let observations = reports::read(request, &seen.snapshot, operator)?;
        let plan = async |seen: &CheckResult, observations: &[Observations]| {
            let cooldown = cooldown(datastore, &seen.snapshot).await;
            release::plan(&seen.basis(criteria), &targets, observations, cooldown)
        };
        let Planned { seen, plan, passed } =
            plan_after_grace(&run, criteria, seen, observations, plan).await?;

        let plan = try_plan(seen, plan, criteria)?;
        run.write(plan, passed).await
    })
}

/// The targets of a request in this cluster.
fn targets(request: &ReleaseRequest, snapshot: &Snapshot) -> Result<Request, Error> {
    let targets = &request.targets;
    let is_of_nodes = targets.is_of_nodes();
    let names = Names {
        nodes: if is_of_nodes { Vec::new() } else { targets.nodes.clone() },
        pools: request.pools.clone(),
        namespace: targets.namespace.clone(),
        selector: request.selector.clone(),
    };
    let Part { nodes, pools, namespace } = names.part(snapshot)?;
    let nodes = if is_of_nodes { deleted_nodes(snapshot, &targets.nodes)? } else { nodes };
    Ok(Request { nodes, pools, namespace, ..targets.clone() })
}

/// The nodes that say what to release by themselves. Of those that match a pattern the deleted ones are meant, if there are any.
fn deleted_nodes(snapshot: &Snapshot, names: &[String]) -> Result<Vec<String>, Error> {
    let context = LazyCell::new(|| Context::new(snapshot, &Options::default()));
    let mut meant = Vec::new();
    for name in names {
        if !is_pattern(name) {
            meant.push(name.clone());
            continue;
        }
        let matching = nodes(snapshot, slice::from_ref(name), None)?.into_iter();
        let (live, deleted): (Vec<_>, Vec<_>) = matching.partition(|node| context.index.node_exists(node));
        meant.extend(if deleted.is_empty() { live } else { deleted });
    }
    Ok(meant)
}
