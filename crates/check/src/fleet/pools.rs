//! Pools of one cluster that overlap another cluster's pools, nodes, services or tunnels.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use calipam_model::IpNet;
use calipam_model::cidr_set::{CidrSet, around, inside, runs};

use super::{Cluster, LISTED, NewFinding};
use crate::code::Code;
use crate::finding::{Elsewhere, ElsewhereEvidence, ElsewhereKind, Evidence, Finding, SharedUse, Subject};
use crate::names::short;
use crate::views::PoolView;

/// A pool and the position of its cluster in the group.
#[derive(Clone, Copy)]
struct ClusterPool<'c> {
    pool: &'c PoolView,
    cluster: usize,
}

impl ClusterPool<'_> {
    fn cidr(&self) -> IpNet {
        self.pool.cidr
    }
}

/// Adds the findings, and returns the pools that overlap those of other clusters, with the positions of their clusters.
/// A disabled pool that its cluster does not use only announces another cluster's pool to Calico, and is no overlap.
pub(super) fn check(group: &[&Cluster], found: &mut Vec<NewFinding>) -> Vec<(usize, IpNet)> {
    let mut announced = Vec::new();
    let mut own = Vec::new();
    for (cluster, member) in group.iter().enumerate() {
        let pools = &member.pools.pools;
        let enabled_pools = pools.iter().filter(|pool| pool.enabled);
        let enabled_cidrs = CidrSet::new(enabled_pools.map(|pool| pool.cidr));
        for pool in pools {
            if !pool.enabled && is_unused(pool, &enabled_cidrs, member) {
                announced.push(ClusterPool { pool, cluster });
            } else {
                own.push(ClusterPool { pool, cluster });
            }
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
    let enabled_parts = enabled.within(pool.cidr);
    let used_in_enabled: u64 = enabled_parts.map(|part| used.count_within(part)).sum();
    used.count_within(pool.cidr) == used_in_enabled
}

/// Finds ranges in which several clusters have pools. Such a range is one finding: about its first pool, which contains
/// the others. Returns the pools in these ranges.
fn check_overlaps(
    group: &[&Cluster],
    own: &[ClusterPool<'_>],
    found: &mut Vec<NewFinding>,
) -> Vec<(usize, IpNet)> {
    let mut sorted = own.to_vec();
    sorted.sort_by_key(|pool| (pool.cidr(), pool.cluster));

    let mut overlapping = Vec::new();
    for range in runs(&sorted, ClusterPool::cidr) {
        let first = &range[0];
        let mut others: Vec<&ClusterPool<'_>> = range.iter().collect();
        others.retain(|other| other.cluster != first.cluster);
        if others.is_empty() {
            continue;
        }

        let clusters = others.iter().map(|other| other.cluster).collect();
        let further = others.len().saturating_sub(LISTED);
        others.truncate(LISTED);
        let mut overlaps = Vec::new();
        for other in others {
            overlaps.push(overlap(group, first, other));
        }
        let describe = |evidence: &ElsewhereEvidence| {
            let pools = evidence.list(pool_words);
            format!("overlaps {pools}{}", in_use_clause(&evidence.others))
        };
        let code = Code::OverlappingClusterPools;
        let finding = make_finding(code, first.pool, overlaps, further, describe);
        found.push(NewFinding {
            cluster: first.cluster,
            others: clusters,
            finding,
        });
        overlapping.extend(range.iter().map(|pool| (pool.cluster, pool.cidr())));
    }
    overlapping
}

/// Describes a pool of another cluster that overlaps `here`, with the addresses that both clusters use in it.
fn overlap(group: &[&Cluster], here: &ClusterPool<'_>, there: &ClusterPool<'_>) -> Elsewhere {
    let used_by = |cluster: usize| group[cluster].ranges.used.count_within(there.cidr());
    Elsewhere {
        in_use: Some(SharedUse {
            here: used_by(here.cluster),
            there: used_by(there.cluster),
        }),
        ..elsewhere(group, there)
    }
}

/// Finds disabled pools that cover only a part of another cluster's pool. Calico translates the addresses outside of
/// that part.
fn check_announced(
    group: &[&Cluster],
    announced: &[ClusterPool<'_>],
    own: &[ClusterPool<'_>],
    found: &mut Vec<NewFinding>,
) {
    let announced_cidrs = cidrs_by_cluster(announced);
    let mut enabled: Vec<&ClusterPool<'_>> = own.iter().filter(|own| own.pool.enabled).collect();
    enabled.sort_by_key(|pool| pool.cidr());

    for disabled in announced {
        let covered = &announced_cidrs[&disabled.cluster];
        let mut others = Vec::new();
        let mut further = 0;
        let mut clusters = BTreeSet::new();
        // Pools inside of this one are covered completely. Only larger pools can be covered in part.
        let larger = around(&enabled, disabled.cidr(), |pool| pool.cidr());
        for other in larger.flat_map(|range| &enabled[range]) {
            if other.cluster == disabled.cluster || covered.covers(other.cidr()) {
                continue;
            }
            clusters.insert(other.cluster);
            if others.len() < LISTED {
                others.push(elsewhere(group, other));
            } else {
                further += 1;
            }
        }
        if others.is_empty() {
            continue;
        }

        let describe = |evidence: &ElsewhereEvidence| {
            format!(
                "is disabled, but covers only part of {}",
                evidence.list(pool_words)
            )
        };
        let finding = make_finding(
            Code::DisabledPoolMismatch,
            disabled.pool,
            others,
            further,
            describe,
        );
        found.push(NewFinding {
            cluster: disabled.cluster,
            others: clusters,
            finding,
        });
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
    /// Lists the positions of each cluster. `clusters` has the cluster of each place, in the sorted order.
    fn new(clusters: impl Iterator<Item = usize>) -> Self {
        let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, cluster) in clusters.enumerate() {
            places.entry(cluster).or_default().push(place);
        }
        Self(places)
    }

    /// Returns the clusters that have places within one of the ranges.
    fn within(&self, ranges: &[Range<usize>]) -> BTreeSet<usize> {
        let has_places = |cluster: &usize| ranges.iter().any(|range| self.count(*cluster, range.clone()) > 0);
        self.0.keys().copied().filter(has_places).collect()
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
fn check_places(group: &[&Cluster], own: &[ClusterPool<'_>], found: &mut Vec<NewFinding>) {
    let places = places_outside_pools(group, own);
    let by_cluster = ByCluster::new(places.iter().map(|place| place.cluster));

    for ClusterPool { pool, cluster } in own {
        let mut overlapping: Vec<Range<usize>> = around(&places, pool.cidr, |place| place.cidr).collect();
        overlapping.push(inside(&places, pool.cidr, |place| place.cidr));

        // Counted without a look at each place, since a pool can contain many places of its own cluster.
        let mut number = 0;
        for range in &overlapping {
            number += range.len() - by_cluster.count(*cluster, range.clone());
        }
        if number == 0 {
            continue;
        }

        let mut clusters = by_cluster.within(&overlapping);
        clusters.remove(cluster);
        let all = overlapping.into_iter().flat_map(|range| &places[range]);
        let others: Vec<Elsewhere> = all
            .filter(|place| place.cluster != *cluster)
            .take(LISTED)
            .map(|place| Elsewhere::new(&group[place.cluster].name, place.kind, place.name, place.cidr))
            .collect();
        let further = number - others.len();
        let describe = |evidence: &ElsewhereEvidence| format!("covers {}", evidence.list(place_words));
        let finding = make_finding(Code::PoolCoversOtherCluster, pool, others, further, describe);
        found.push(NewFinding {
            cluster: *cluster,
            others: clusters,
            finding,
        });
    }
}

/// Returns the addresses of nodes, tunnels and services that are in no pool of their own cluster, and all service
/// ranges, sorted by CIDR.
fn places_outside_pools<'c>(group: &[&'c Cluster], own: &[ClusterPool<'_>]) -> Vec<Place<'c>> {
    let pool_cidrs = cidrs_by_cluster(own);
    let mut places = Vec::new();
    for (cluster, &member) in group.iter().enumerate() {
        let own_cidrs = pool_cidrs.get(&cluster);
        for point in &member.ranges.points {
            if own_cidrs.is_some_and(|cidrs| cidrs.contains(point.address)) {
                continue;
            }
            places.push(Place {
                cidr: point.address.into(),
                cluster,
                kind: point.kind,
                name: &point.name,
            });
        }
        for cidr in &member.services {
            places.push(Place {
                cidr: *cidr,
                cluster,
                kind: ElsewhereKind::Services,
                name: "",
            });
        }
    }
    places.sort_by_key(|place| (place.cidr, place.cluster));
    places
}

/// Returns the addresses in each cluster's pools. `pools` are ordered by cluster.
fn cidrs_by_cluster(pools: &[ClusterPool<'_>]) -> HashMap<usize, CidrSet> {
    let mut cidrs = HashMap::new();
    for pools in pools.chunk_by(|a, b| a.cluster == b.cluster) {
        let set = CidrSet::new(pools.iter().map(ClusterPool::cidr));
        cidrs.insert(pools[0].cluster, set);
    }
    cidrs
}

/// Describes a pool of another cluster.
fn elsewhere(group: &[&Cluster], ClusterPool { pool, cluster }: &ClusterPool<'_>) -> Elsewhere {
    Elsewhere::new(&group[*cluster].name, ElsewhereKind::Pool, &pool.name, pool.cidr)
}

/// Makes a finding. Its message begins with the pool's name and CIDR, and continues with the result of `describe`.
fn make_finding(
    code: Code,
    pool: &PoolView,
    others: Vec<Elsewhere>,
    further: usize,
    describe: impl FnOnce(&ElsewhereEvidence) -> String,
) -> Finding {
    let evidence = ElsewhereEvidence {
        here: pool.name.clone(),
        others,
        further,
    };
    let problem = describe(&evidence);
    let message = format!("{} ({}) {problem}", short(&pool.name), pool.cidr);
    Finding::new(
        code,
        Subject::Pool(pool.cidr),
        message,
        Evidence::Elsewhere(Box::new(evidence)),
    )
}

/// Formats `blue 10.8.0.0/16 in west`.
fn pool_words(other: &Elsewhere) -> String {
    format!("{} {} in {}", other.name, other.cidr, other.cluster)
}

/// Formats `10.8.0.1 of node worker-1 in west`, or `the service range 10.96.0.0/12 in west`.
fn place_words(other: &Elsewhere) -> String {
    let Elsewhere {
        cluster, name, cidr, ..
    } = other;
    let address = cidr.addr();
    match other.kind {
        ElsewhereKind::Services => format!("the service range {cidr} in {cluster}"),
        ElsewhereKind::Tunnel => format!("{address} of a tunnel of {name} in {cluster}"),
        kind => format!("{address} of {kind} {name} in {cluster}"),
    }
}

/// Returns the clause that says how many addresses each cluster uses in the range shared with the first of `others`.
fn in_use_clause(others: &[Elsewhere]) -> String {
    let Some(shared) = others.first().and_then(|other| other.in_use) else {
        return String::new();
    };
    let addresses = if others.len() > 1 {
        "addresses shared with the first"
    } else {
        "shared addresses"
    };
    format!(
        "; {} of the {addresses} are in use here and {} there",
        shared.here, shared.there
    )
}
