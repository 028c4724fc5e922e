//! Plans that make blocks, handles and affinities agree with what uses addresses: what `rebuild` does.
//!
//! What is right stays as it is. A sound block is edited address by address, so that a change elsewhere in it
//! disturbs nothing; a corrupt one is written again as a whole, from what can still be trusted of it and from what
//! uses its addresses.

mod affinities;
mod block_plan;
mod blocks;
mod build;
mod corrupt;
mod files;
mod handles;
mod in_use;
mod leaked;
mod missing_blocks;
mod networks;
mod planner;
mod record;
mod request;
mod unplanned;

use std::collections::HashSet;

use calipam_check::{Code, Options, Subject, check};
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

use self::corrupt::CorruptBlocks;
pub use self::files::{BlockFile, block_files, host_files};
use self::planner::Planner;
pub use self::request::Request;
use self::request::Scope;
use crate::basis::Basis;
use crate::plan::{Plan, PlanKind};
use crate::release::Observations;

/// True if only workload endpoints of the same etcd say who uses addresses: they may come from the same
/// old backup as the blocks.
pub fn needs_endpoints_only(snapshot: &Snapshot) -> bool {
    snapshot.datastore != DatastoreKind::Kubernetes && !snapshot.has_read(Source::Pods)
}

/// Plans a rebuild. What is broken within the request and not repaired is skipped, with the reason.
///
/// `observations` are earlier reads of the cluster, and `cooldown` is how many seconds a released address cools
/// down, as for [`release::plan`](crate::release::plan()): leaked addresses are released by the same rules.
///
/// Where corrupt blocks are repaired, the snapshot is copied once and checked again as if they were sound: that
/// shows what they have hidden.
pub fn plan(basis: &Basis<'_>, request: &Request, observations: &[Observations], cooldown: i64) -> Plan {
    let scope = Scope::new(request);
    let mut corrupt = CorruptBlocks::new(basis, &scope);
    let skipped = std::mem::take(&mut corrupt.skipped);
    let mut plan = if corrupt.blocks.is_empty() {
        of_sound(basis, &scope, &corrupt, observations, cooldown)
    } else {
        of_repaired(basis, &scope, &corrupt, observations, cooldown)
    };

    // A corrupt block that stays so is skipped for its own reason.
    for skipped in skipped {
        plan.skipped.retain(|other| (other.code, &other.subject) != (skipped.code, &skipped.subject));
        plan.skipped.push(skipped);
    }

    plan.skipped.sort();
    if needs_endpoints_only(basis.snapshot) && !request.endpoints_only {
        plan.warnings.push(
            "pods were not read: only workload endpoints say who uses addresses, and after a restore they may be as old \
             as the blocks; pass a kubeconfig or --endpoints-only"
                .into(),
        );
    }
    plan
}

/// Plans on the snapshot as it would be if the corrupt blocks were repaired.
fn of_repaired(
    basis: &Basis<'_>,
    scope: &Scope<'_>,
    corrupt: &CorruptBlocks,
    observations: &[Observations],
    cooldown: i64,
) -> Plan {
    let options = Options { grace: Some(basis.context.grace), pool_threshold: basis.context.pool_threshold };
    let repaired = corrupt.apply(basis.snapshot);
    let mut report = check(&repaired, &options);
    let seen: HashSet<(Code, &Subject)> =
        basis.report.findings.iter().map(|finding| finding.key_ref()).collect();

    // What was found before and dropped by the recheck stands no more now.
    let dropped: HashSet<(Code, Subject)> = check(basis.snapshot, &options)
        .findings
        .into_iter()
        .filter(|finding| !seen.contains(&finding.key_ref()))
        .map(|finding| (finding.code, finding.subject))
        .collect();

    report.findings.retain(|finding| !dropped.contains(&finding.key()));
    let found = |finding: &calipam_check::Finding| finding.key();
    let revealed = report.findings.iter().filter(|f| !seen.contains(&f.key_ref())).map(found).collect();
    let mut plan =
        of_sound(&Basis::new(&repaired, &report, &options), scope, corrupt, observations, cooldown);
    plan.revealed = revealed;

    plan
}

fn of_sound(
    basis: &Basis<'_>,
    scope: &Scope<'_>,
    corrupt: &CorruptBlocks,
    observations: &[Observations],
    cooldown: i64,
) -> Plan {
    let mut planner = Planner::new(basis, scope, corrupt, observations, cooldown);
    // Addresses that get another owner are known before those that are released, since a handle is released completely
    // or not at all.
    in_use::plan(&mut planner);

    leaked::plan(&mut planner);
    let approved = handles::plan_carriage_returns(&mut planner);
    blocks::plan(&mut planner);
    affinities::plan(&mut planner);
    let countings = handles::plan(&mut planner, &approved);
    let known = std::mem::take(&mut planner.skipped);

    let actions = build::actions(planner, countings);
    let skipped = unplanned::skipped(basis, scope, known, &actions);
    Plan { skipped, ..Plan::new(PlanKind::Rebuild, basis.snapshot, actions) }
}
