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
    for twins in same(&pools) {
        if let Some(enabled) = twins.iter().find(|pool| pool.is_enabled()) {
            check_fill(context, occupancy, enabled, out);
        }
    }
}

/// Groups pools by CIDR, since the CIDR is the subject of a finding.
fn same<'a, 's>(sorted: &'a [&'s Pool]) -> impl Iterator<Item = &'a [&'s Pool]> {
    sorted.chunk_by(|a, b| a.cidr == b.cidr)
}

/// Makes a finding. Its message begins with the pool's name and CIDR, and continues with `problem`.
fn finding(code: Code, pool: &Pool, problem: &str, fill: impl FnOnce(&mut PoolEvidence)) -> Finding {
    let mut evidence = PoolEvidence {
        name: pool.name.clone(),
        ..PoolEvidence::default()
    };
    fill(&mut evidence);
    let message = format!("{} ({}) {problem}", short(&pool.name), pool.cidr);
    Finding::new(
        code,
        Subject::Pool(pool.cidr),
        message,
        Evidence::Pool(Box::new(evidence)),
    )
}

/// Checks for faults that matter even before the first block exists: overlaps, and selectors that do not parse.
pub(super) fn check_settings(context: &Context<'_>, out: &mut Vec<Finding>) {
    check_overlaps(context, out);
    let pools = context.index.pools();
    check_places(context, &pools, out);
    for pools in same(&pools) {
        if let Some(pool) = pools
            .iter()
            .find(|pool| pool.is_enabled() && pool.is_smaller_than_block())
        {
            let problem = format!(
                "is smaller than one of its blocks, which are /{}",
                pool.block_size
            );
            out.push(finding(Code::PoolSmallerThanBlock, pool, &problem, |_| {}));
        }
        let broken = pools
            .iter()
            .find_map(|pool| Some((pool, invalid_selector(pool)?)));
        if let Some((pool, selector)) = broken {
            let InvalidSelector {
                field,
                selector: text,
                reason,
            } = &selector;
            let problem = format!("has the {field} {text:?}, which does not parse: {reason}");
            out.push(finding(Code::InvalidPoolSelector, pool, &problem, |evidence| {
                evidence.invalid_selector = Some(selector);
            }));
        }
    }
}

/// Reports enabled pools that cover the cluster's nodes or services. A pool that only services can use may cover nodes,
/// since a service may have a node's address.
fn check_places(context: &Context<'_>, pools: &[&Pool], out: &mut Vec<Finding>) {
    let mut enabled: Vec<&Pool> = Vec::new();
    for twins in same(pools) {
        enabled.extend(twins.iter().find(|pool| pool.is_enabled()));
    }
    let places = Places::of(context.snapshot, enabled.iter().map(|pool| pool.cidr));

    for pool in enabled {
        let inside = |places| within(places, pool.cidr, |place: &Place| place.address);
        let may_not_cover_nodes = pool.allows(PoolUse::Workload) || pool.allows(PoolUse::Tunnel);
        let nodes = if may_not_cover_nodes {
            inside(&places.nodes)
        } else {
            &[]
        };
        let services = inside(&places.services);
        for (code, covered) in [
            (Code::PoolOverlapsNodes, nodes),
            (Code::PoolOverlapsServices, services),
        ] {
            if covered.is_empty() {
                continue;
            }
            let problem = format!("covers {}", list(covered));
            out.push(finding(code, pool, &problem, |evidence| {
                evidence.covers = covered.to_vec()
            }));
        }
    }
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
    fields
        .into_iter()
        .find_map(|(field, selector)| match Selector::parse(selector) {
            // Calico accepts such a selector, since it does not limit the nesting depth.
            Ok(_) | Err(SelectorError::TooDeep) => None,
            Err(reason) => Some(InvalidSelector {
                field,
                selector: selector.clone(),
                reason,
            }),
        })
}

/// Reports overlapping pools. In native v3 mode, disabled pools may overlap: Calico's pool controller makes sure that
/// only one of them is used.
fn check_overlaps(context: &Context<'_>, out: &mut Vec<Finding>) {
    let mut pools = context.index.pools();
    if context.snapshot.is_native {
        pools.retain(|pool| pool.is_enabled());
    }

    let groups: Vec<&[&Pool]> = same(&pools).collect();
    let cidrs: Vec<IpNet> = groups.iter().map(|twins| twins[0].cidr).collect();
    for (twins, positions) in groups.iter().zip(overlaps(&cidrs)) {
        let mut overlapping = twins[1..].to_vec();
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
        out.push(finding(Code::OverlappingPools, twins[0], &problem, |evidence| {
            evidence.others = names
        }));
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
    if cooling > 0 {
        problem.push_str(&format!(", {cooling} cooling down"));
    }
    let finding = finding(Code::PoolNearlyFull, pool, &problem, |evidence| {
        evidence.in_use = Some(tally.usable_taken);
        evidence.cooling = Some(cooling).filter(|cooling| *cooling > 0);
        evidence.usable = Some(usable);
    });
    out.push(finding.with_severity(severity));
}
