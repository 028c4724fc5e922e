//! Settings that should be the same in clusters that route to each other. Routers that accept only one prefix length
//! drop the routes to blocks of other sizes. They also drop the routes to single addresses, which a cluster without
//! strict affinity announces for borrowed addresses.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::words::{count, join, joined};
use calipam_model::{IpNet, cidr};

use super::{Cluster, NewFinding};
use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject};

type Setting = (&'static str, fn(&Cluster) -> Option<String>);

const SETTINGS: [Setting; 3] = [
    ("strictAffinity", |cluster| {
        cluster.ranges.strict_affinity.map(|value| value.to_string())
    }),
    ("blockSize of IPv4", |cluster| block_sizes(cluster, cidr::is_v4)),
    ("blockSize of IPv6", |cluster| {
        block_sizes(cluster, |cidr| !cidr::is_v4(cidr))
    }),
];

/// The keys under which the evidence has the values of the finding's cluster and of its group.
const HERE: &str = "here";
const GROUP: &str = "group";

/// The values of settings, by setting and by [`HERE`] and [`GROUP`].
type Values = BTreeMap<String, BTreeMap<String, String>>;

/// Reports each cluster of a group whose settings differ from those of most others.
pub(super) fn check(group: &[&Cluster], found: &mut Vec<NewFinding>) {
    let mut of_clusters: BTreeMap<usize, Values> = BTreeMap::new();
    let mut others: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (name, value) in SETTINGS {
        let values: Vec<Option<String>> = group.iter().map(|cluster| value(cluster)).collect();
        let numbers = count_values(&values);
        let mut values_in_group = Vec::new();
        for (value, number) in &numbers {
            values_in_group.push(format!("{value} in {}", count(*number, "cluster", "clusters")));
        }
        let in_group = values_in_group.join("; ");

        let usual = most_common(&numbers);
        let reporting = reporting_clusters(&values, usual);
        if usual.is_none()
            && let Some((first, _)) = reporting.first()
        {
            let compared = others.entry(*first).or_default();
            for (position, value) in values.iter().enumerate() {
                if value.is_some() && position != *first {
                    compared.insert(position);
                }
            }
        }
        for (position, value) in reporting {
            let places = [
                (HERE.to_owned(), value.to_owned()),
                (GROUP.to_owned(), in_group.clone()),
            ];
            of_clusters
                .entry(position)
                .or_default()
                .insert(name.to_owned(), places.into());
        }
    }

    for (position, settings) in of_clusters {
        let subject = Subject::Cluster(group[position].name.clone());
        let differences = settings.iter().map(|(name, values)| {
            let here = &values[HERE];
            let in_group = &values[GROUP];
            format!("{name} is {here} here (in its group: {in_group})")
        });
        let message = joined(differences, "; ");
        let evidence = Evidence::Configuration(settings);
        let finding = Finding::new(Code::ClusterSettingsDiffer, subject, message, evidence);
        found.push(NewFinding {
            cluster: position,
            others: others.remove(&position).unwrap_or_default(),
            finding,
        });
    }
}

/// The number of clusters with each value. Clusters whose value is not known do not count.
fn count_values(values: &[Option<String>]) -> BTreeMap<&str, usize> {
    let mut numbers = BTreeMap::new();
    for value in values.iter().flatten() {
        *numbers.entry(value.as_str()).or_default() += 1;
    }
    numbers
}

/// Returns the value that more than half of the clusters have; `None` if there is no such value. `numbers` are the
/// numbers of clusters with each value.
fn most_common<'v>(numbers: &BTreeMap<&'v str, usize>) -> Option<&'v str> {
    let clusters: usize = numbers.values().sum();
    for (value, number) in numbers {
        if number * 2 > clusters {
            return Some(value);
        }
    }
    None
}

/// Returns the positions and values of the clusters that get a finding about a setting: those with another than the
/// usual value. If there is no usual value, only the first cluster with a value gets one.
fn reporting_clusters<'v>(values: &'v [Option<String>], usual: Option<&str>) -> Vec<(usize, &'v str)> {
    let mut reporting = Vec::new();
    for (position, value) in values.iter().enumerate() {
        if let Some(value) = value {
            reporting.push((position, value.as_str()));
        }
    }
    match usual {
        Some(usual) => reporting.retain(|(_, value)| *value != usual),
        None => reporting.truncate(1),
    }
    reporting
}

/// Returns the block sizes of the cluster's enabled pools for workloads in one family, such as `/26 and /28`; `None` if
/// there is no such pool.
fn block_sizes(cluster: &Cluster, is_of_family: fn(IpNet) -> bool) -> Option<String> {
    let mut sizes = BTreeSet::new();
    for pool in &cluster.pools.pools {
        let serves_workloads = pool.enabled && pool.allowed_uses.contains(&"Workload");
        if serves_workloads && is_of_family(pool.cidr) {
            sizes.insert(pool.block_size);
        }
    }
    if sizes.is_empty() {
        return None;
    }

    let names: Vec<String> = sizes.into_iter().map(|size| format!("/{size}")).collect();
    Some(join(&names))
}
