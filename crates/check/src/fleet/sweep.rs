//! Finds overlapping CIDRs of several clusters in one pass.

use std::collections::HashMap;

use calipam_model::IpNet;

/// Other clusters' CIDRs that overlap one CIDR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// The positions of the first few of these CIDRs.
    pub listed: Vec<usize>,
    /// The number of all these CIDRs.
    pub number: usize,
}

impl Others {
    /// Returns the number of CIDRs that are not listed.
    pub(super) fn further(&self) -> usize {
        self.number - self.listed.len()
    }
}

/// Returns, for each CIDR, the overlapping CIDRs of other clusters, of which up to `most` are listed. `ranges` are
/// CIDRs with their clusters. Overlaps beyond the listed ones are counted without visiting each one.
pub(super) fn overlaps(ranges: &[(IpNet, usize)], most: usize) -> Vec<Others> {
    let mut sorted: Vec<usize> = (0..ranges.len()).collect();
    sorted.sort_by_key(|position| ranges[*position].0);
    let places = ByCluster::new(sorted.iter().map(|position| ranges[*position].1));

    let mut others = vec![Others::default(); ranges.len()];
    // Any two CIDRs are nested or disjoint, so a stack is enough. It contains the places of the CIDRs that contain the
    // current one.
    let mut around: Vec<usize> = Vec::new();
    let mut around_of: HashMap<usize, usize> = HashMap::new();
    for place in 0..=sorted.len() {
        let current = sorted.get(place).map(|position| ranges[*position]);
        while let Some(outer) =
            around.pop_if(|outer| current.is_none_or(|(cidr, _)| !ranges[sorted[*outer]].0.contains(&cidr)))
        {
            let cluster = ranges[sorted[outer]].1;
            around_of.entry(cluster).and_modify(|number| *number -= 1);
            // All CIDRs between the outer one and `place` are inside the outer one.
            let inside = outer + 1..place;
            let found = &mut others[sorted[outer]];
            found.number += inside.len() - places.count(cluster, inside.clone());
            let room = most - found.listed.len();
            let of_others = inside.filter(|inner| ranges[sorted[*inner]].1 != cluster);
            found.listed.extend(of_others.take(room).map(|inner| sorted[inner]));
        }
        let Some((_, cluster)) = current else { break };
        let found = &mut others[sorted[place]];
        found.number = around.len() - around_of.get(&cluster).copied().unwrap_or_default();
        let of_others = around.iter().filter(|outer| ranges[sorted[**outer]].1 != cluster);
        found.listed = of_others.take(most).map(|outer| sorted[*outer]).collect();
        around.push(place);
        *around_of.entry(cluster).or_default() += 1;
    }
    others
}

/// The places of each cluster's CIDRs in the sorted order.
pub(super) struct ByCluster(HashMap<usize, Vec<usize>>);

impl ByCluster {
    pub(super) fn new(clusters: impl Iterator<Item = usize>) -> Self {
        let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, cluster) in clusters.enumerate() {
            places.entry(cluster).or_default().push(place);
        }
        Self(places)
    }

    /// Counts the cluster's places within `range`.
    pub(super) fn count(&self, cluster: usize, range: std::ops::Range<usize>) -> usize {
        let Some(places) = self.0.get(&cluster) else { return 0 };
        places.partition_point(|place| *place < range.end)
            - places.partition_point(|place| *place < range.start)
    }
}
