//! Address sets made of CIDRs, and searches in many CIDRs.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;

use crate::cidr;

/// A set of addresses, stored as ascending CIDRs that do not overlap and are merged where possible.
#[derive(Clone, Debug, Default)]
pub struct CidrSet(Vec<IpNet>);

impl CidrSet {
    pub fn new(cidrs: impl IntoIterator<Item = IpNet>) -> Self {
        let cidrs: Vec<IpNet> = cidrs.into_iter().collect();
        let mut joined = IpNet::aggregate(&cidrs);
        joined.sort_unstable();
        Self(joined)
    }

    /// True if the set contains all addresses of `cidr`.
    pub fn covers(&self, cidr: IpNet) -> bool {
        self.around(cidr).is_some()
    }

    /// Returns the CIDR of the set that contains all of `cidr`; `None` if there is none.
    pub fn around(&self, cidr: IpNet) -> Option<IpNet> {
        // The members are disjoint, so only the last one that begins at or before `cidr` can contain it.
        let end = self
            .0
            .partition_point(|member| member.network() <= cidr.network());
        let candidate = *self.0[..end].last()?;
        if !candidate.contains(&cidr) {
            return None;
        }
        Some(candidate)
    }

    /// True if the set contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.covers(address.into())
    }

    /// True if the set contains at least one address of `cidr`.
    pub fn touches(&self, cidr: IpNet) -> bool {
        self.within(cidr).next().is_some()
    }

    /// The part of `cidr` that is in the set, as CIDRs.
    pub fn within(&self, cidr: IpNet) -> impl Iterator<Item = IpNet> + '_ {
        // If no member contains all of `cidr`, each member that overlaps it is inside it.
        let covered = self.covers(cidr).then_some(cidr);
        let members: &[IpNet] = if covered.is_some() {
            &[]
        } else {
            let begin = self.0.partition_point(|member| member.network() < cidr.network());
            &self.0[begin..]
        };
        let inside = members
            .iter()
            .copied()
            .take_while(move |member| cidr.contains(member));
        covered.into_iter().chain(inside)
    }

    /// The number of addresses that the set and `cidr` share.
    pub fn size_within(&self, cidr: IpNet) -> u128 {
        self.within(cidr).map(cidr::size).fold(0, u128::saturating_add)
    }
}

/// The positions of the elements in `region`. `sorted` is ascending by CIDR.
pub fn inside<T>(sorted: &[T], region: IpNet, cidr: impl Fn(&T) -> IpNet) -> Range<usize> {
    let start = sorted.partition_point(|element| cidr(element) < region);
    let len = sorted[start..].partition_point(|element| region.contains(&cidr(element)));
    start..start + len
}

/// The positions of the elements with larger CIDRs that contain `region`: a range for each possible CIDR, the smallest
/// first. `sorted` is ascending by CIDR.
pub fn around<T>(
    sorted: &[T],
    region: IpNet,
    cidr: impl Fn(&T) -> IpNet,
) -> impl Iterator<Item = Range<usize>> {
    std::iter::successors(region.supernet(), IpNet::supernet).map(move |larger| {
        let start = sorted.partition_point(|element| cidr(element) < larger);
        let len = sorted[start..].partition_point(|element| cidr(element) == larger);
        start..start + len
    })
}

/// The elements in runs of overlapping CIDRs. The first CIDR of a run contains the others, which come right after it.
/// `sorted` is ascending by CIDR.
pub fn runs<T>(mut sorted: &[T], cidr: impl Fn(&T) -> IpNet) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let first = cidr(sorted.first()?);
        let len = sorted
            .iter()
            .take_while(|element| first.contains(&cidr(element)))
            .count();
        sorted.split_off(..len)
    })
}

/// The part of `ascending` whose addresses are in `cidr`.
pub fn within<T>(ascending: &[T], cidr: IpNet, address: impl Fn(&T) -> IpAddr) -> &[T] {
    let start = ascending.partition_point(|element| address(element) < cidr.network());
    let len = ascending[start..].partition_point(|element| address(element) <= cidr.broadcast());
    &ascending[start..start + len]
}

/// For each CIDR, the positions of the other CIDRs that overlap it. The CIDRs must be distinct and ascending.
pub fn overlaps(sorted: &[IpNet]) -> Vec<Vec<usize>> {
    let mut others = vec![Vec::new(); sorted.len()];
    // CIDRs either nest or are disjoint, so the CIDRs that contain the current one are a stack, the largest first.
    let mut containing: Vec<usize> = Vec::new();
    for (position, cidr) in sorted.iter().enumerate() {
        while let Some(outer) = containing.last()
            && !sorted[*outer].contains(cidr)
        {
            containing.pop();
        }
        for outer in &containing {
            others[*outer].push(position);
            others[position].push(*outer);
        }
        containing.push(position);
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|t| cidr::parse_cidr(t).unwrap()).collect()
    }

    #[test]
    fn sets_join_what_touches() {
        let set = CidrSet::new(nets(&[
            "10.0.0.0/25",
            "10.0.0.128/25",
            "10.0.0.7",
            "fd00::/120",
            "10.0.2.0/24",
        ]));
        assert!(set.covers(nets(&["10.0.0.0/24"])[0]) && !set.covers(nets(&["10.0.0.0/23"])[0]));
        assert!(set.contains("10.0.0.200".parse().unwrap()) && !set.contains("10.0.1.0".parse().unwrap()));
        assert!(set.contains("fd00::ff".parse().unwrap()) && !set.contains("fd00::100".parse().unwrap()));
        let shared: Vec<IpNet> = set.within(nets(&["10.0.0.0/22"])[0]).collect();
        assert_eq!(shared, nets(&["10.0.0.0/24", "10.0.2.0/24"]));
        assert_eq!(set.size_within(nets(&["10.0.0.64/26"])[0]), 64);
        assert_eq!(set.size_within(nets(&["10.0.0.0/8"])[0]), 512);
        assert_eq!(CidrSet::default().size_within(nets(&["::/0"])[0]), 0);
    }

    #[test]
    fn a_run_is_a_cidr_and_all_inside_it() {
        let sorted = nets(&[
            "10.0.0.0/24",
            "10.0.0.0/26",
            "10.0.0.64/26",
            "10.0.1.0/24",
            "10.0.1.128/25",
        ]);
        let found: Vec<&[IpNet]> = runs(&sorted, |cidr| *cidr).collect();
        assert_eq!(found, [&sorted[..3], &sorted[3..]]);
    }

    #[test]
    fn overlaps_are_mutual() {
        let sorted = nets(&[
            "10.0.0.0/24",
            "10.0.0.0/26",
            "10.0.0.0/28",
            "10.0.0.64/26",
            "10.0.1.0/24",
            "::/0",
        ]);
        let found = overlaps(&sorted);
        assert_eq!(
            found,
            [vec![1, 2, 3], vec![0, 2], vec![0, 1], vec![0], vec![], vec![]]
        );
    }
}
