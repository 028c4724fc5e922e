//! Pools that overlap each other, nodes or services, have an invalid selector, are smaller than a block, or are nearly
//! full.

use calipam_model::IpNet;
use calipam_model::cidr_set::{overlaps, within};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::{Selector, SelectorError};
use calipam_model::snapshot::Source;

use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, InvalidSelector, Place, PoolEvidence, Subject};
use crate::names::{list, short};
use crate::occupancy::Occupancy;
use crate::places::Places;

/// Checks the settings of the pools, and how full the enabled ones are.
pub(crate) fn check(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, out: &mut Vec<Finding>) {
    check_settings(context, out);
    let snapshot = context.snapshot;
    if !snapshot.has_read(Source::Blocks) || !snapshot.has_read(Source::Reservations) {
        return;
    }
    // Pools with the same CIDR have the same addresses.
    let pools = context.index.pools();
    for same_cidr in by_cidr(&pools) {
        if let Some(enabled) = same_cidr.iter().find(|pool| pool.is_enabled()) {
            check_fill(context, occupancy, enabled, out);
        }
    }
}

/// Groups pools by CIDR, since the CIDR is the subject of a finding.
fn by_cidr<'a, 's>(sorted: &'a [&'s Pool]) -> impl Iterator<Item = &'a [&'s Pool]> {
    sorted.chunk_by(|a, b| a.cidr == b.cidr)
}

/// Makes a finding. Its message begins with the pool's name and CIDR, and continues with `problem`.
fn new_finding(code: Code, pool: &Pool, problem: &str, evidence: PoolEvidence) -> Finding {
    let message = format!("{} ({}) {problem}", short(&pool.name), pool.cidr);
    Finding::new(
        code,
        Subject::Pool(pool.cidr),
        message,
        Evidence::Pool(Box::new(evidence)),
    )
}

/// Evidence that has only the pool's name.
fn evidence_about(pool: &Pool) -> PoolEvidence {
    PoolEvidence {
        name: pool.name.clone(),
        ..PoolEvidence::default()
    }
}

/// Checks for faults that matter even before the first block exists: pools that overlap each other, nodes or services,
/// that are smaller than a block, or whose selectors do not parse.
pub(super) fn check_settings(context: &Context<'_>, out: &mut Vec<Finding>) {
    check_overlaps(context, out);
    let pools = context.index.pools();
    check_places(context, &pools, out);
    for same_cidr in by_cidr(&pools) {
        let too_small = same_cidr
            .iter()
            .find(|pool| pool.is_enabled() && pool.is_smaller_than_block());
        if let Some(pool) = too_small {
            let problem = format!(
                "is smaller than one of its blocks, which are /{}",
                pool.block_size
            );
            let evidence = evidence_about(pool);
            out.push(new_finding(Code::PoolSmallerThanBlock, pool, &problem, evidence));
        }

        let with_invalid_selector = same_cidr
            .iter()
            .find_map(|pool| Some((pool, invalid_selector(pool)?)));
        if let Some((pool, invalid)) = with_invalid_selector {
            let problem = format!(
                "has the {} {:?}, which does not parse: {}",
                invalid.field, invalid.selector, invalid.reason
            );
            let evidence = PoolEvidence {
                invalid_selector: Some(invalid),
                ..evidence_about(pool)
            };
            out.push(new_finding(Code::InvalidPoolSelector, pool, &problem, evidence));
        }
    }
}

/// Reports enabled pools that cover the cluster's nodes or services. A pool that only services can use may cover nodes,
/// since a service may have a node's address.
fn check_places(context: &Context<'_>, pools: &[&Pool], out: &mut Vec<Finding>) {
    let mut enabled: Vec<&Pool> = Vec::new();
    for same_cidr in by_cidr(pools) {
        enabled.extend(same_cidr.iter().find(|pool| pool.is_enabled()));
    }
    let places = Places::of(context.snapshot, enabled.iter().map(|pool| pool.cidr));

    for pool in enabled {
        let may_not_cover_nodes = pool.allows(PoolUse::Workload) || pool.allows(PoolUse::Tunnel);
        if may_not_cover_nodes {
            let nodes = within(&places.nodes, pool.cidr, |place| place.address);
            out.extend(covering_finding(Code::PoolOverlapsNodes, pool, nodes));
        }
        let services = within(&places.services, pool.cidr, |place| place.address);
        out.extend(covering_finding(Code::PoolOverlapsServices, pool, services));
    }
}

/// Reports a pool that covers places; `None` if it covers none.
fn covering_finding(code: Code, pool: &Pool, covered: &[Place]) -> Option<Finding> {
    if covered.is_empty() {
        return None;
    }
    let problem = format!("covers {}", list(covered));
    let evidence = PoolEvidence {
        covers: covered.to_vec(),
        ..evidence_about(pool)
    };
    Some(new_finding(code, pool, &problem, evidence))
}

/// Returns the pool's selector that makes Calico refuse requests that name no pool, if it has such a selector. Calico
/// evaluates the selectors of all automatic pools, whatever their use.
fn invalid_selector(pool: &Pool) -> Option<InvalidSelector> {
    if !pool.is_enabled() || !pool.automatic {
        return None;
    }
    let fields = [
        ("nodeSelector", &pool.node_selector),
        ("namespaceSelector", &pool.namespace_selector),
    ];
    for (field, selector) in fields {
        match Selector::parse(selector) {
            // Calico accepts such a selector, since it does not limit the nesting depth.
            Ok(_) | Err(SelectorError::TooDeep) => {}
            Err(reason) => {
                return Some(InvalidSelector {
                    field,
                    selector: selector.clone(),
                    reason,
                });
            }
        }
    }
    None
}

/// Reports overlapping pools. In native v3 mode, disabled pools may overlap: Calico's pool controller makes sure that
/// only one of them is used.
fn check_overlaps(context: &Context<'_>, out: &mut Vec<Finding>) {
    let mut pools = context.index.pools();
    if context.snapshot.is_native {
        pools.retain(|pool| pool.is_enabled());
    }

    let groups: Vec<&[&Pool]> = by_cidr(&pools).collect();
    let cidrs: Vec<IpNet> = groups.iter().map(|same_cidr| same_cidr[0].cidr).collect();
    for (same_cidr, positions) in groups.iter().zip(overlaps(&cidrs)) {
        let mut overlapping = same_cidr[1..].to_vec();
        for position in positions {
            overlapping.extend(groups[position]);
        }
        if overlapping.is_empty() {
            continue;
        }

        let names: Vec<String> = overlapping
            .iter()
            .map(|pool| format!("{} {}", pool.name, pool.cidr))
            .collect();
        let problem = format!("overlaps {}", list(&names));
        let first = same_cidr[0];
        let evidence = PoolEvidence {
            others: names,
            ..evidence_about(first)
        };
        out.push(new_finding(Code::OverlappingPools, first, &problem, evidence));
    }
}

/// Reports a pool that is fuller than the threshold; as an error if it has no free address.
fn check_fill(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, pool: &Pool, out: &mut Vec<Finding>) {
    let mut tally = occupancy.total_tally(pool.cidr);
    let is_nearly_full = tally
        .percent()
        .is_some_and(|percent| percent > context.pool_threshold);
    if !is_nearly_full {
        return;
    }
    // Only with a cooldown, addresses are counted once more by their states, which takes longer.
    let config = context.snapshot.effective_ipam_config();
    if config.is_some_and(|config| config.cooldown_seconds > 0) {
        tally = occupancy.tally(pool.cidr);
    }

    let severity = if tally.free == 0 {
        Severity::Error
    } else {
        Code::PoolNearlyFull.severity()
    };
    let percent = tally.whole_percent().unwrap_or_default();
    let usable = tally.usable;
    let cooling = tally.cooling;
    let in_use = tally.usable_taken.saturating_sub(cooling);
    let mut problem = format!("is {percent} % full: {in_use} of {usable} in use");
    let mut evidence = PoolEvidence {
        in_use: Some(tally.usable_taken),
        usable: Some(usable),
        ..evidence_about(pool)
    };
    if cooling > 0 {
        problem.push_str(&format!(", {cooling} cooling down"));
        evidence.cooling = Some(cooling);
    }
    let finding = new_finding(Code::PoolNearlyFull, pool, &problem, evidence);
    out.push(finding.with_severity(severity));
}
