//! Which objects of a long list may be near some addresses. The list itself says so, so that a million objects are looked through in
//! some milliseconds.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::endpoint::Endpoint;
use calipam_model::handle::Handle;

use crate::cidr_set::CidrSet;
use crate::parallel::in_parts;

/// Where an address lies: addresses of a block of the usual size have the same place, and others may have it by chance.
pub(super) type Place = u32;

/// The place of what names no address.
const NOWHERE: Place = Place::MAX;
/// So many of the last bits of an address do not count.
const BITS_OF_PLACE: u32 = 6;
/// Places are told apart by so many bits.
const BITS: u32 = 18;
/// Where a CIDR has more places, all are taken for near.
const MOST_PLACES: u128 = 1 << 14;

/// The place of an address.
pub(super) fn place_of(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(address) => address.to_bits() >> BITS_OF_PLACE,
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> BITS_OF_PLACE;
            spread(bits as u64 ^ (bits >> 64) as u64)
        }
    }
}

/// The place of a block: of the address that it is written with.
pub(super) fn place_of_block(block: IpNet) -> Place {
    place_of(block.addr())
}

/// The place of the first address of an endpoint.
pub(super) fn place_of_endpoint(endpoint: &Endpoint) -> Place {
    endpoint.addresses().next().map_or(NOWHERE, place_of)
}

/// The place of the first block of a handle.
pub(super) fn place_of_handle(handle: &Handle) -> Place {
    handle.blocks().next().map_or(NOWHERE, |(block, _)| place_of_block(block))
}

fn spread(bits: u64) -> u32 {
    (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// A set of places. It may seem to hold others as well.
pub(super) struct Near {
    bits: Vec<u64>,
    is_everything: bool,
}

impl Near {
    pub(super) fn new() -> Self {
        Self { bits: vec![0; 1 << (BITS - u64::BITS.ilog2())], is_everything: false }
    }

    pub(super) fn add_everything(&mut self) {
        self.is_everything = true;
    }

    pub(super) fn add(&mut self, place: Place) {
        let (word, bit) = position(place);
        self.bits[word] |= bit;
    }

    pub(super) fn add_all(&mut self, addresses: &CidrSet) {
        addresses.iter().for_each(|cidr| self.add_cidr(cidr));
    }

    /// Adds the places of all addresses of a CIDR.
    fn add_cidr(&mut self, cidr: IpNet) {
        let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len()).saturating_sub(BITS_OF_PLACE);
        let places = 1_u128.checked_shl(bits).unwrap_or(u128::MAX);
        if places > MOST_PLACES {
            return self.add_everything();
        }
        for offset in (0..places).map(|place| place << BITS_OF_PLACE) {
            self.add(place_of(match cidr.network() {
                IpAddr::V4(first) => IpAddr::V4((first.to_bits() + offset as u32).into()),
                IpAddr::V6(first) => IpAddr::V6((first.to_bits() + offset).into()),
            }));
        }
    }

    pub(super) fn has(&self, place: Place) -> bool {
        let (word, bit) = position(place);
        self.is_everything || self.bits[word] & bit != 0
    }

    /// Positions of endpoints with an address that may be near, or that were found without any.
    pub(super) fn endpoints<T: Sync>(&self, list: &[T], of: impl Fn(&T) -> &Endpoint + Sync) -> Vec<usize> {
        positions(list, |object| self.has_any(of(object).addresses().map(place_of)))
    }

    /// Positions of handles that name a block that may be near, or that were found without any.
    pub(super) fn handles<T: Sync>(&self, list: &[T], of: impl Fn(&T) -> &Handle + Sync) -> Vec<usize> {
        positions(list, |object| self.has_any(of(object).blocks().map(|(block, _)| place_of_block(block))))
    }

    fn has_any(&self, mut places: impl Iterator<Item = Place>) -> bool {
        self.has(places.next().unwrap_or(NOWHERE)) || places.any(|place| self.has(place))
    }
}

fn position(place: Place) -> (usize, u64) {
    let bits = spread(place.into()) >> (u32::BITS - BITS);
    ((bits / u64::BITS) as usize, 1 << (bits % u64::BITS))
}

fn positions<T: Sync>(list: &[T], is_wanted: impl Fn(&T) -> bool + Sync) -> Vec<usize> {
    let found = in_parts(list.len(), |range| {
        let wanted = range.clone().zip(&list[range]).filter(|(_, object)| is_wanted(object));
        wanted.map(|(position, _)| position).collect::<Vec<_>>()
    });
    found.concat()
}
