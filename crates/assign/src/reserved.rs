//! Addresses that reservations keep from automatic assignment (facts 1.8).

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::pool::Reservation;
use jiff::{SignedDuration, Timestamp};

/// The addresses of all reservations.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    /// Aggregated, so that none is within another.
    cidrs: Vec<IpNet>,
}

impl Reserved {
    pub fn new<'a>(reservations: impl IntoIterator<Item = &'a Reservation>) -> Self {
        let cidrs: Vec<IpNet> = reservations.into_iter().flat_map(|r| r.cidrs.iter().copied()).collect();
        Self { cidrs: IpNet::aggregate(&cidrs) }
    }

    /// True for a reserved address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.cidrs.iter().any(|cidr| cidr.contains(&address))
    }

    /// The reserved CIDR that contains all of `net`. Since neighboring CIDRs are joined, it exists if all addresses of
    /// `net` are reserved.
    pub fn covering(&self, net: IpNet) -> Option<IpNet> {
        self.cidrs.iter().copied().find(|cidr| cidr.contains(&net))
    }

    /// The number of addresses of a block that can be assigned.
    pub(crate) fn assignable(&self, block: &Block, now: Timestamp, cooldown: SignedDuration) -> u32 {
        if self.covering(block.cidr()).is_some() {
            return 0;
        }
        let block = block.without_cooled(now, cooldown);
        block.assignable(|address| self.contains(address)).count() as u32
    }

    /// True if some address of `net` is reserved.
    pub fn touches(&self, net: IpNet) -> bool {
        self.cidrs.iter().any(|cidr| cidr::overlap(*cidr, net))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_that_together_cover_a_block_cover_it() {
        let reservation = |cidrs: &[&str]| Reservation {
            name: "r".into(),
            cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        };
        let reserved = |cidrs: &[&str]| Reserved::new([&reservation(cidrs)]);
        let block: IpNet = "10.0.0.0/30".parse().unwrap();
        let joined = reserved(&["10.0.0.0/31", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.2/32"]);
        assert!(joined.covering(block).is_some());
        assert!(reserved(&["10.0.0.0/8"]).covering(block).is_some());
        let some = reserved(&["10.0.0.0/31", "10.0.0.3/32", "fd00::/64"]);
        assert!(some.covering(block).is_none() && some.touches(block));
        assert!(some.contains("10.0.0.1".parse().unwrap()) && !some.contains("10.0.0.2".parse().unwrap()));
        assert!(!reserved(&["10.0.0.4/30"]).touches(block));
    }
}
