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

pub(crate) fn check(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, out: &mut Vec<Finding>) {
    check_settings(context, out);
    let read = |source| context.snapshot.has_read(source);
    if read(Source::Blocks) && read(Source::Reservations) {
        let pools = context.index.pools();
        for pool in same(&pools).filter_map(|same| same.iter().find(|pool| pool.is_enabled())) {
            check_fill(context, occupancy, pool, out);
        }
    }
}

/// Groups pools by CIDR, since the CIDR is the subject of a finding.
fn same<'a, 's>(sorted: &'a [&'s Pool]) -> impl Iterator<Item = &'a [&'s Pool]> {
    sorted.chunk_by(|a, b| a.cidr == b.cidr)
}

/// Makes a finding. Its message begins with the pool's name and CIDR, and continues with `says`.
fn finding(code: Code, pool: &Pool, says: &str, fill: impl FnOnce(&mut PoolEvidence)) -> Finding {
    let mut evidence = PoolEvidence {
        name: pool.name.clone(),
        ..PoolEvidence::default()
    };
    fill(&mut evidence);
    let says = format!("{} ({}) {says}", short(&pool.name), pool.cidr);
    Finding::new(
        code,
        Subject::Pool(pool.cidr),
        says,
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
            let says = format!(
                "is smaller than one of its blocks, which are /{}",
                pool.block_size
            );
            out.push(finding(Code::PoolSmallerThanBlock, pool, &says, |_| {}));
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
            let says = format!("has the {field} {text:?}, which does not parse: {reason}");
            out.push(finding(Code::InvalidPoolSelector, pool, &says, |evidence| {
                evidence.invalid_selector = Some(selector);
            }));
        }
    }
}

/// Reports enabled pools that cover the cluster's nodes or services. A pool that only services can use may cover nodes,
/// since a service may have a node's address.
fn check_places(context: &Context<'_>, pools: &[&Pool], out: &mut Vec<Finding>) {
    let enabled = || same(pools).filter_map(|same| same.iter().find(|pool| pool.is_enabled()));
    let places = Places::of(context.snapshot, enabled().map(|pool| pool.cidr));
    for pool in enabled() {
        let is_of_nodes = pool.allows(PoolUse::Workload) || pool.allows(PoolUse::Tunnel);
        let inside = |places| within(places, pool.cidr, |place: &Place| place.address);
        let nodes = if is_of_nodes { inside(&places.nodes) } else { &[] };
        let services = inside(&places.services);
        for (code, covered) in [
            (Code::PoolOverlapsNodes, nodes),
            (Code::PoolOverlapsServices, services),
        ] {
            if !covered.is_empty() {
                let says = format!("covers {}", list(covered));
                out.push(finding(code, pool, &says, |evidence| {
                    evidence.covers = covered.to_vec()
                }));
            }
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
    let is_native = context.snapshot.is_native;
    let mut pools = context.index.pools();
    pools.retain(|pool| !is_native || pool.is_enabled());
    let same: Vec<&[&Pool]> = same(&pools).collect();
    let keys: Vec<IpNet> = same.iter().map(|pools| pools[0].cidr).collect();
    let name = |pool: &&Pool| format!("{} {}", pool.name, pool.cidr);
    for (pools, others) in same.iter().zip(overlaps(&keys)) {
        let twins = pools[1..].iter();
        let others: Vec<String> = twins
            .chain(others.iter().flat_map(|position| same[*position].iter()))
            .map(name)
            .collect();
        if !others.is_empty() {
            let says = format!("overlaps {}", list(&others));
            out.push(finding(Code::OverlappingPools, pools[0], &says, |evidence| {
                evidence.others = others
            }));
        }
    }
}

fn check_fill(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, pool: &Pool, out: &mut Vec<Finding>) {
    let mut tally = occupancy.total_tally(pool.cidr);
    if tally
        .percent()
        .is_none_or(|percent| percent <= context.pool_threshold)
    {
        return;
    }
    if context
        .snapshot
        .effective_ipam_config()
        .is_some_and(|config| config.cooldown_seconds > 0)
    {
        tally = occupancy.tally(pool.cidr);
    }
    let severity = if tally.free == 0 {
        Severity::Error
    } else {
        Code::PoolNearlyFull.severity()
    };
    let taken = tally.usable_taken;
    let usable = tally.usable;
    let cooling = tally.cooling;
    let percent = tally.whole_percent().unwrap_or_default();
    let says = match cooling {
        0 => format!("is {percent} % full: {taken} of {usable} in use"),
        _ => {
            let in_use = taken.saturating_sub(cooling);
            format!("is {percent} % full: {in_use} of {usable} in use, {cooling} cooling down")
        }
    };
    let finding = finding(Code::PoolNearlyFull, pool, &says, |evidence| {
        evidence.in_use = Some(tally.usable_taken);
        evidence.cooling = Some(tally.cooling).filter(|cooling| *cooling > 0);
        evidence.usable = Some(tally.usable);
    });
    out.push(finding.with_severity(severity));
}
