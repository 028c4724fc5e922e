//! Settings that should be the same in clusters that route to each other. Routers that accept only one prefix length
//! drop the routes to blocks of other sizes. They also drop the routes to single addresses, which a cluster without
//! strict affinity announces for borrowed addresses.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::cidr;
use calipam_model::words::{count, join, joined};

use super::Cluster;
use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject};

type Setting = (&'static str, fn(&Cluster) -> Option<String>);

const SETTINGS: [Setting; 3] = [
    ("strictAffinity", |cluster| cluster.ranges.strict_affinity.map(|value| value.to_string())),
    ("blockSize of IPv4", |cluster| block_sizes(cluster, true)),
    ("blockSize of IPv6", |cluster| block_sizes(cluster, false)),
];

/// The keys under which the evidence has the values of the finding's cluster and of its group.
const HERE: &str = "here";
const GROUP: &str = "group";

pub(super) fn check(group: &[&Cluster], found: &mut Vec<(usize, Finding)>) {
    let mut of_each: BTreeMap<usize, BTreeMap<String, BTreeMap<String, String>>> = BTreeMap::new();
    for (name, value) in SETTINGS {
        let values: Vec<Option<String>> = group.iter().map(|cluster| value(cluster)).collect();
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for value in values.iter().flatten() {
            *numbers.entry(value).or_default() += 1;
        }
        let known: usize = numbers.values().sum();
        let said = numbers
            .iter()
            .map(|(value, number)| format!("{value} in {}", count(*number, "cluster", "clusters")));
        let said = joined(said, "; ");
        // The value that most clusters have counts as right. If there is none, the first cluster reports the values.
        let is_usual = |value: &str| numbers[value] * 2 > known;
        let reporting = if numbers.keys().any(|value| is_usual(value)) { usize::MAX } else { 1 };
        let known_values = values.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?)));
        for (position, value) in known_values.filter(|(_, value)| !is_usual(value)).take(reporting) {
            let places = [(HERE.to_owned(), value.clone()), (GROUP.to_owned(), said.clone())];
            of_each.entry(position).or_default().insert(name.to_owned(), places.into());
        }
    }
    found.extend(of_each.into_iter().map(|(position, settings)| {
        let subject = Subject::Cluster(group[position].name.clone());
        let said = settings.iter().map(|(name, values)| {
            format!("{name} is {} here (in its group: {})", values[HERE], values[GROUP])
        });
        let says = joined(said, "; ");
        let evidence = Evidence::Configuration(settings);
        (position, Finding::new(Code::ClusterSettingsDiffer, subject, says, evidence))
    }));
}

/// Returns the block sizes of the cluster's enabled pools for workloads, such as `/26 and /28`; `None` if there is none.
fn block_sizes(cluster: &Cluster, v4: bool) -> Option<String> {
    let pools = cluster.pools.pools.iter().filter(|pool| pool.enabled && cidr::is_v4(pool.cidr) == v4);
    let sizes: BTreeSet<u8> =
        pools.filter(|pool| pool.allowed_uses.contains(&"Workload")).map(|pool| pool.block_size).collect();
    let sizes: Vec<String> = sizes.into_iter().map(|size| format!("/{size}")).collect();
    (!sizes.is_empty()).then(|| join(&sizes))
}
