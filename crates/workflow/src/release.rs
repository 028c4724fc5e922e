//! `release`: releases addresses and handles.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::mem;
use std::path::PathBuf;

use calipam_check::{Context, Options, Scope};
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{self, Request};
use calipam_plan::{Basis, Plan};

use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::Result;
use crate::operator::Access;
use crate::reports::{self, OpenReport};
use crate::run::{Intent, Run};
use crate::scope::{Names, is_pattern};
use crate::second_read::{Part, warn_of_short_grace, write_in_parts};
use crate::write::Repaired;

/// A request to release addresses and handles.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// The request without its scope, which comes from `names`.
    pub targets: Request,
    pub names: Names,
    /// Files with reports of earlier checks, whose observations count as earlier reads.
    pub reports: Vec<PathBuf>,
    pub criteria: Criteria,
    pub intent: Intent,
    /// True if the run locks the datastore, as calicoctl requires for its reports.
    pub lock: bool,
}

/// Reads the cluster, plans, shows the plan, asks the operator, and releases.
pub async fn release(access: Access<'_>, request: &ReleaseRequest) -> Result<Repaired> {
    let criteria = &request.criteria;
    let mut run = Run::new(access, &request.intent);

    let mut files = reports::open(&request.reports)?;
    let read_observations = |files: Vec<OpenReport>, cluster: &Snapshot| {
        let force = request.targets.force;
        reports::read_observations(files, cluster, force, request.lock, access.operator)
    };
    let mut observations = None;
    if access.datastore.is_live() && !files.is_empty() {
        // A report that does not fit is refused before the cluster is read.
        let cluster = reports::read_cluster_information(access.datastore).await?;
        observations = Some(read_observations(mem::take(&mut files), &cluster)?);
    }

    let seen = read_and_check(access, criteria).await?;
    run.refuse_doubtful(&seen.snapshot)?;
    if request.targets.leaked || request.targets.orphan_handles {
        warn_of_short_grace(&seen.snapshot, criteria, access.operator);
    }
    let targets = targets(request, &seen.snapshot)?;
    let observations = match observations {
        Some(observations) => observations,
        None => read_observations(files, &seen.snapshot)?,
    };

    let plan = |basis: &Basis<'_>| release::plan(basis, &targets);
    let try_plan = |seen: CheckResult, plan: Plan, _: Part| Ok(seen.try_plan(plan, criteria)?);
    write_in_parts(run, criteria, seen, observations, plan, try_plan).await
}

/// Returns the targets of a request in this cluster.
fn targets(request: &ReleaseRequest, snapshot: &Snapshot) -> Result<Request> {
    let names = &request.names;
    let scope = if request.targets.is_of_nodes() {
        let names_without_nodes = Names {
            nodes: Vec::new(),
            ..names.clone()
        };
        let scope = names_without_nodes.scope(&[snapshot])?;
        Scope {
            nodes: deleted_nodes(snapshot, &names.nodes)?,
            ..scope
        }
    } else {
        names.scope(&[snapshot])?
    };
    Ok(Request {
        scope,
        ..request.targets.clone()
    })
}

/// Returns the nodes whose records are released. If a pattern matches any deleted nodes, only those count.
fn deleted_nodes(snapshot: &Snapshot, names: &[String]) -> Result<BTreeSet<String>> {
    let context = LazyCell::new(|| Context::new(snapshot, &Options::default()));
    let mut nodes = BTreeSet::new();
    for name in names {
        if !is_pattern(name) {
            nodes.insert(name.clone());
            continue;
        }

        let pattern = Names {
            nodes: vec![name.clone()],
            ..Names::default()
        };
        let matching = pattern.scope(&[snapshot])?.nodes.into_iter();
        let (live, deleted): (Vec<String>, Vec<String>) =
            matching.partition(|node| context.index.node_exists(node));
        // Live nodes are refused later, with their names.
        nodes.extend(if deleted.is_empty() { live } else { deleted });
    }
    Ok(nodes)
}
