//! The address families and their prefix lengths.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use calipam_model::IpNet;
use calipam_model::cidr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Both families, in the order in which Calico assigns addresses.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub fn of(net: IpNet) -> Self {
        if cidr::is_v4(net) { Self::V4 } else { Self::V6 }
    }

    pub fn of_address(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// The family's name in documents and keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The prefix length of a single address.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The prefix lengths that blocks can have.
    pub fn block_prefixes(self) -> RangeInclusive<u8> {
        match self {
            Self::V4 => cidr::BLOCK_PREFIXES_V4,
            Self::V6 => cidr::BLOCK_PREFIXES_V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPv{}", self.number())
    }
}
