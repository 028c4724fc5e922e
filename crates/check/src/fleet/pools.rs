//! Pools of one cluster that overlap another cluster's pools, nodes, services or tunnels.

use std::collections::HashMap;
use std::ops::Range;

use calipam_model::IpNet;
use calipam_model::cidr_set::{CidrSet, around, inside, runs};

use super::ranges::Point;
use super::{Cluster, LISTED};
use crate::code::Code;
use crate::finding::{Elsewhere, ElsewhereEvidence, ElsewhereKind, Evidence, Finding, SharedUse, Subject};
use crate::names::short;
use crate::views::PoolView;

/// A pool and the position of its cluster in the group.
#[derive(Clone, Copy)]
struct OfCluster<'c> {
    pool: &'c PoolView,
    cluster: usize,
}

/// Adds the findings, and returns the pools that overlap those of other clusters, with the positions of their clusters.
pub(super) fn check(group: &[&Cluster], found: &mut Vec<(usize, Finding)>) -> Vec<(usize, IpNet)> {
    let mut announced = Vec::new();
    let mut own = Vec::new();
    for (cluster, member) in group.iter().enumerate() {
        let pools = || member.pools.pools.iter();
        let enabled = CidrSet::new(pools().filter(|pool| pool.enabled).map(|pool| pool.cidr));
        for pool in pools() {
            let is_announced = !pool.enabled && is_unused(pool, &enabled, member);
            let kind = if is_announced { &mut announced } else { &mut own };
            kind.push(OfCluster { pool, cluster });
        }
    }
    check_announced(group, &announced, &own, found);
    check_places(group, &own, found);
    check_overlaps(group, &own, found)
}

/// Returns true for a disabled pool if every address that its cluster uses in it is also in an enabled pool. Such a
/// pool only tells Calico that its range belongs to another cluster's pool. Calico does not translate the addresses of
/// packets between pools, so the two clusters' pods reach each other by their own addresses.
fn is_unused(pool: &PoolView, enabled: &CidrSet, member: &Cluster) -> bool {
    let used = &member.ranges.used;
    let of_enabled: u64 = enabled
        .within(pool.cidr)
        .map(|part| used.count_within(part))
        .sum();
    used.count_within(pool.cidr) == of_enabled
}

/// Finds ranges in which several clusters have pools. Such a range is one finding: about its first pool, which contains
/// the others. Returns the pools in these ranges.
fn check_overlaps(
    group: &[&Cluster],
    own: &[OfCluster<'_>],
    found: &mut Vec<(usize, Finding)>,
) -> Vec<(usize, IpNet)> {
    let mut sorted = own.to_vec();
    sorted.sort_by_key(|of| (of.pool.cidr, of.cluster));
    let mut overlapping = Vec::new();
    for range in runs(&sorted, |of| of.pool.cidr) {
        let first = range[0];
        let is_other = |of: &&OfCluster<'_>| of.cluster != first.cluster;
        let mut of_others = range.iter().filter(is_other);
        let others: Vec<Elsewhere> = of_others
            .by_ref()
            .take(LISTED)
            .map(|there| {
                let in_use = |cluster: usize| group[cluster].ranges.used.count_within(there.pool.cidr);
                let in_use = SharedUse {
                    here: in_use(first.cluster),
                    there: in_use(there.cluster),
                };
                Elsewhere {
                    in_use: Some(in_use),
                    ..elsewhere(group, there)
                }
            })
            .collect();
        if others.is_empty() {
            continue;
        }
        let further = of_others.count();
        let says = |evidence: &ElsewhereEvidence| {
            format!("overlaps {}{}", evidence.list(pool), in_use(&evidence.others))
        };
        let finding = finding(Code::OverlappingClusterPools, first.pool, others, further, says);
        found.push((first.cluster, finding));
        overlapping.extend(range.iter().map(|of| (of.cluster, of.pool.cidr)));
    }
    overlapping
}

/// Finds disabled pools that cover only a part of another cluster's pool. Calico translates the addresses outside of
/// that part.
fn check_announced(
    group: &[&Cluster],
    announced: &[OfCluster<'_>],
    own: &[OfCluster<'_>],
    found: &mut Vec<(usize, Finding)>,
) {
    let covered = by_cluster(announced);
    let mut enabled: Vec<&OfCluster<'_>> = own.iter().filter(|of| of.pool.enabled).collect();
    enabled.sort_by_key(|of| of.pool.cidr);

    for of in announced {
        // Pools inside of this one are covered completely. Only larger pools can be covered in part.
        let around = around(&enabled, of.pool.cidr, |other| other.pool.cidr);
        let around = around.flat_map(|range| &enabled[range]);
        let partly = |other: &&&OfCluster<'_>| {
            let is_covered = covered
                .get(&of.cluster)
                .is_some_and(|covered| covered.covers(other.pool.cidr));
            other.cluster != of.cluster && !is_covered
        };
        let mut partly = around.filter(partly);
        let others: Vec<Elsewhere> = partly
            .by_ref()
            .take(LISTED)
            .map(|other| elsewhere(group, other))
            .collect();
        if !others.is_empty() {
            let further = partly.count();
            let says = |evidence: &ElsewhereEvidence| {
                format!("is disabled, but covers only part of {}", evidence.list(pool))
            };
            found.push((
                of.cluster,
                finding(Code::DisabledPoolMismatch, of.pool, others, further, says),
            ));
        }
    }
}

/// The address of a cluster's node, tunnel or service, or a service range.
struct Place<'c> {
    cidr: IpNet,
    cluster: usize,
    kind: ElsewhereKind,
    name: &'c str,
}

/// The places of each cluster in the sorted order.
struct ByCluster(HashMap<usize, Vec<usize>>);

impl ByCluster {
    fn new(clusters: impl Iterator<Item = usize>) -> Self {
        let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, cluster) in clusters.enumerate() {
            places.entry(cluster).or_default().push(place);
        }
        Self(places)
    }

    /// Counts the cluster's places within `range`.
    fn count(&self, cluster: usize, range: Range<usize>) -> usize {
        let Some(places) = self.0.get(&cluster) else {
            return 0;
        };
        places.partition_point(|place| *place < range.end)
            - places.partition_point(|place| *place < range.start)
    }
}

/// Finds addresses of other clusters' nodes, tunnels and services in a pool, and other clusters' service ranges that
/// overlap the pool. Leaves out addresses that are in a pool of their own cluster, since the overlap of the two pools
/// is reported instead.
fn check_places(group: &[&Cluster], own: &[OfCluster<'_>], found: &mut Vec<(usize, Finding)>) {
    let mut places: Vec<Place<'_>> = Vec::new();
    let pools = by_cluster(own);
    for (cluster, member) in group.iter().enumerate() {
        let is_in_own = |point: &&Point| pools.get(&cluster).is_some_and(|own| own.contains(point.address));
        let outside = member.ranges.points.iter().filter(|point| !is_in_own(point));
        let place = |cidr: IpNet, kind, name| Place {
            cidr,
            cluster,
            kind,
            name,
        };
        places.extend(outside.map(|point| place(point.address.into(), point.kind, &point.name)));
        places.extend(
            member
                .services
                .iter()
                .map(|cidr| place(*cidr, ElsewhereKind::Services, "")),
        );
    }
    places.sort_by_key(|place| (place.cidr, place.cluster));
    let by_cluster = ByCluster::new(places.iter().map(|place| place.cluster));

    for of in own {
        let pool = of.pool.cidr;
        let mut overlapping: Vec<Range<usize>> = around(&places, pool, |place| place.cidr).collect();
        overlapping.push(inside(&places, pool, |place| place.cidr));

        let is_other = |place: &&Place<'_>| place.cluster != of.cluster;
        let number = |range: &Range<usize>| range.len() - by_cluster.count(of.cluster, range.clone());
        let number: usize = overlapping.iter().map(number).sum();
        if number == 0 {
            continue;
        }
        let all = overlapping.into_iter().flat_map(|range| &places[range]);
        let others: Vec<Elsewhere> = all
            .filter(is_other)
            .take(LISTED)
            .map(|place| Elsewhere::new(&group[place.cluster].name, place.kind, place.name, place.cidr))
            .collect();
        let further = number - others.len();
        let says = |evidence: &ElsewhereEvidence| format!("covers {}", evidence.list(place));
        found.push((
            of.cluster,
            finding(Code::PoolCoversOtherCluster, of.pool, others, further, says),
        ));
    }
}

/// Returns the addresses in each cluster's pools. `pools` are ordered by cluster.
fn by_cluster(pools: &[OfCluster<'_>]) -> HashMap<usize, CidrSet> {
    let of_each = pools.chunk_by(|a, b| a.cluster == b.cluster);
    of_each
        .map(|pools| {
            (
                pools[0].cluster,
                CidrSet::new(pools.iter().map(|of| of.pool.cidr)),
            )
        })
        .collect()
}

fn elsewhere(group: &[&Cluster], of: &OfCluster<'_>) -> Elsewhere {
    Elsewhere::new(
        &group[of.cluster].name,
        ElsewhereKind::Pool,
        &of.pool.name,
        of.pool.cidr,
    )
}

/// Makes a finding. Its message begins with the pool's name and CIDR, and continues with the result of `says`.
fn finding(
    code: Code,
    pool: &PoolView,
    others: Vec<Elsewhere>,
    further: usize,
    says: impl FnOnce(&ElsewhereEvidence) -> String,
) -> Finding {
    let evidence = ElsewhereEvidence {
        here: pool.name.clone(),
        others,
        further,
    };
    let says = format!("{} ({}) {}", short(&pool.name), pool.cidr, says(&evidence));
    Finding::new(
        code,
        Subject::Pool(pool.cidr),
        says,
        Evidence::Elsewhere(Box::new(evidence)),
    )
}

fn pool(other: &Elsewhere) -> String {
    format!("{} {} in {}", other.name, other.cidr, other.cluster)
}

fn place(other: &Elsewhere) -> String {
    let name = match other.kind {
        ElsewhereKind::Services => {
            return format!("the service range {} in {}", other.cidr, other.cluster);
        }
        ElsewhereKind::Tunnel => format!("a tunnel of {}", other.name),
        kind => format!("{kind} {}", other.name),
    };
    format!("{} of {name} in {}", other.cidr.addr(), other.cluster)
}

/// Returns the clause that says how many addresses each cluster uses in the range shared with the first of `others`.
fn in_use(others: &[Elsewhere]) -> String {
    let Some(shared) = others.first().and_then(|other| other.in_use) else {
        return String::new();
    };
    let which = if others.len() > 1 {
        "addresses shared with the first"
    } else {
        "shared addresses"
    };
    format!(
        "; {} of the {which} are in use here and {} there",
        shared.here, shared.there
    )
}
