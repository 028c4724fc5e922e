//! Plans of `rebuild`, which makes blocks, handles and affinities agree with the users of addresses.
//!
//! Correct records stay unchanged. A sound block is edited address by address, so that a change elsewhere in it does no
//! harm. A corrupt block is rewritten in one write, from its trustworthy parts and from the users of its addresses.

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
mod stored;
mod unplanned;

use std::collections::HashSet;

use calipam_check::{Code, Finding, Options, Subject, check};
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

use self::corrupt::CorruptBlocks;
pub use self::files::{BlockFile, block_files, host_files};
use self::planner::Planner;
pub use self::request::Request;
use crate::basis::Basis;
use crate::plan::{Plan, PlanKind};

/// Returns true if only workload endpoints in the same etcd show who uses addresses. They may come from the same old
/// backup as the blocks.
pub fn needs_endpoints_only(snapshot: &Snapshot) -> bool {
    snapshot.datastore != DatastoreKind::Kubernetes && !snapshot.has_read(Source::Pods)
}

/// Plans a rebuild. Findings in scope that the plan does not repair are skipped, with the reason.
///
/// Leaked addresses are released by the rules of [`release::plan`](crate::release::plan()), with the observations and
/// the cooldown of the basis. If corrupt blocks are repaired, the snapshot is copied once and checked again as if they
/// were sound. The second check shows findings that the corrupt blocks hid.
pub fn plan(basis: &Basis<'_>, request: &Request) -> Plan {
    let mut corrupt = CorruptBlocks::new(basis, request);
    let skipped = std::mem::take(&mut corrupt.skipped);
    let mut plan = if corrupt.blocks.is_empty() {
        of_sound(basis, request, &corrupt)
    } else {
        of_repaired(basis, request, &corrupt)
    };

    // A corrupt block that stays corrupt is skipped for its own reason.
    for skipped in skipped {
        plan.skipped
            .retain(|other| (other.code, &other.subject) != (skipped.code, &skipped.subject));
        plan.skipped.push(skipped);
    }

    plan.skipped.sort();
    if needs_endpoints_only(basis.snapshot) && !request.endpoints_only {
        plan.warnings.push(
            "pods were not read: only workload endpoints show who uses addresses, and after a restore they can be as old \
             as the blocks; pass a kubeconfig or --endpoints-only"
                .into(),
        );
    }
    plan
}

/// Plans on the snapshot as it would be if the corrupt blocks were repaired.
fn of_repaired(basis: &Basis<'_>, request: &Request, corrupt: &CorruptBlocks) -> Plan {
    let options = Options {
        grace: Some(basis.context.grace),
        pool_threshold: basis.context.pool_threshold,
        ..Options::default()
    };
    let repaired = corrupt.apply(basis.snapshot);
    let mut report = check(&repaired, &options);
    let findings = basis.report.findings.iter();
    let seen: HashSet<(Code, &Subject)> = findings.map(|finding| finding.key_ref()).collect();

    // Findings that the recheck dropped stay dropped.
    let mut unchecked = check(basis.snapshot, &options).findings;
    unchecked.retain(|finding| !seen.contains(&finding.key_ref()));
    let dropped: HashSet<(Code, Subject)> = unchecked.iter().map(Finding::key).collect();
    report
        .findings
        .retain(|finding| !dropped.contains(&finding.key()));

    let mut revealed = Vec::new();
    for finding in &report.findings {
        if !seen.contains(&finding.key_ref()) {
            revealed.push(finding.key());
        }
    }
    let basis = Basis::new(&repaired, &report, &options).with(basis.observations, basis.cooldown);
    Plan {
        revealed,
        ..of_sound(&basis, request, corrupt)
    }
}

/// Plans all kinds of repairs on a snapshot in which every block can be read.
fn of_sound(basis: &Basis<'_>, request: &Request, corrupt: &CorruptBlocks) -> Plan {
    let mut planner = Planner::new(basis, request, corrupt);
    // A handle is released completely or not at all, so addresses that get another owner come before those that are
    // released.
    in_use::plan(&mut planner);
    leaked::plan(&mut planner);
    let approved = handles::plan_carriage_returns(&mut planner);
    blocks::plan(&mut planner);
    affinities::plan(&mut planner);
    let countings = handles::plan(&mut planner, &approved);

    let skipped_so_far = std::mem::take(&mut planner.skipped);
    let actions = build::actions(planner, countings);
    let skipped = unplanned::skipped(basis, request, skipped_so_far, &actions);
    Plan {
        skipped,
        ..Plan::new(PlanKind::Rebuild, basis.snapshot, actions)
    }
}
