//! Blocks, handles and endpoints as bytes, as they are kept in memory: what a cache holds of them. The form is that of this
//! program and of no other version; [`fingerprint`] tells one from the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::block::BlockContent;
use crate::endpoint::Endpoint;
use crate::handle::Handle;
pub use crate::packing::{push_number, push_sized};
use crate::packing::{take_number, take_sized};

/// An object that has a compact form.
pub trait Compact: Sized {
    /// Appends it. False, and nothing appended, where only its JSON holds all of it.
    #[must_use]
    fn push_compact(&self, out: &mut Vec<u8>) -> bool;

    /// Takes what [`Self::push_compact`] appended; `None` if the bytes are nothing of the kind.
    fn take_compact(bytes: &mut &[u8]) -> Option<Self>;
}

/// The compact form of one object of each kind: it differs between versions of this program whose forms differ.
pub fn fingerprint() -> Vec<u8> {
    const BLOCK: &[u8] = br#"{"cidr":"10.0.0.0/30","affinity":"host:a","affinity_claim_time":"T","allocations":[0,1,null,null],"unallocated":[3,2],"attributes":[{"handle_id":"k8s-pod-network.0123456789abcdef0123456789abcdef","secondary":{"node":"a","namespace":"n","pod":"p","timestamp":"2026-05-01 10:12:00.5 +0000 UTC"}},{"releasedAt":"2026-05-01T10:12:00Z"}],"sequenceNumber":7,"sequenceNumberForAllocation":{"0":5,"1":6},"deleted":false}"#;
    const HANDLE: &[u8] = br#"{"block":{"10.0.0.0/30":1},"deleted":false}"#;
    const ENDPOINT: &[u8] = br#"{"spec":{"node":"a","orchestrator":"k8s","pod":"p","endpoint":"eth0","containerID":"0123456789abcdef0123456789abcdef","ipNetworks":["10.0.0.0/32"]}}"#;
    let mut out = Vec::new();
    if let Ok(BlockContent::Sound(block)) = BlockContent::parse(BLOCK) {
        let _ = block.push_compact(&mut out);
    }
    if let Ok(handle) = Handle::parse("k8s-pod-network.0123456789abcdef0123456789abcdef", HANDLE) {
        let _ = handle.push_compact(&mut out);
    }
    if let Ok(parsed) = Endpoint::parse("n", "a-k8s-p-eth0", ENDPOINT) {
        let _ = parsed.value.push_compact(&mut out);
    }
    out
}

pub(crate) fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(6);
            out.extend_from_slice(&address.octets());
        }
    }
}

pub(crate) fn push_network(out: &mut Vec<u8>, network: IpNet) {
    push_address(out, network.addr());
    out.push(network.prefix_len());
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

pub fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    take_array(bytes).map(|[byte]| byte)
}

pub(crate) fn take_v4(bytes: &mut &[u8]) -> Option<Ipv4Addr> {
    take_array::<4>(bytes).map(Ipv4Addr::from)
}

pub(crate) fn take_address(bytes: &mut &[u8]) -> Option<IpAddr> {
    match take_byte(bytes)? {
        4 => take_v4(bytes).map(IpAddr::V4),
        6 => take_array::<16>(bytes).map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
        _ => None,
    }
}

pub(crate) fn take_network(bytes: &mut &[u8]) -> Option<IpNet> {
    let address = take_address(bytes)?;
    IpNet::new(address, take_byte(bytes)?).ok()
}

/// Takes a number that [`push_number`] appended.
pub fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    if bytes.is_empty() { None } else { Some(take_number(bytes) as u64) }
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take_u64(bytes)?.try_into().ok()
}

/// Takes what was appended with its number; `None` if it is cut short.
pub fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = *bytes;
    let length = take_number(&mut rest);
    if bytes.is_empty() || rest.len() < length {
        return None;
    }
    Some(take_sized(bytes))
}

/// The same as text.
pub fn take_utf8<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<T: Compact + PartialEq + std::fmt::Debug>(object: &T) {
        let mut bytes = Vec::new();
        assert!(object.push_compact(&mut bytes), "{object:?}");
        let whole = bytes.clone();
        let mut rest = bytes.as_slice();
        assert_eq!(T::take_compact(&mut rest).as_ref(), Some(object));
        assert!(rest.is_empty());
        for length in 0..whole.len() {
            assert!(T::take_compact(&mut &whole[..length]).as_ref() != Some(object), "cut at {length}");
        }
        // What is not such an object neither panics nor takes all memory.
        for place in 0..whole.len() {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut other = whole.clone();
                other[place] = value;
                let _ = T::take_compact(&mut other.as_slice());
            }
        }
    }

    #[test]
    fn objects_come_back_as_they_went_in() {
        let block = |more: &str| {
            let json = format!(
                r#"{{"cidr":"10.0.0.0/30",{more}"allocations":[0,1,null,null],"unallocated":[3,2],"attributes":[{{"handle_id":"x","secondary":{{"pod":"p"}}}},{{"handle_id":"y","future":1}}],"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{{"0":5}},"deleted":true}}"#
            );
            match BlockContent::parse(json.as_bytes()) {
                Ok(BlockContent::Sound(block)) => *block,
                other => panic!("{other:?}"),
            }
        };
        back(&block(""));
        back(&block(r#""affinity":"virtual:lb","affinity_claim_time":"2026-05-01T10:12:00Z","#));
        assert!(!block(r#""future":1,"#).push_compact(&mut Vec::new()));

        back(&Handle::parse("k8s-pod-network.ABC", br#"{"block":{"10.0.0.0/26":-3}}"#).unwrap());
        for other in
            [r#"{"block":{}}"#, r#"{"block":{"10.0.0.0/26":1},"x":1}"#, r#"{"block":{"fd00::/64":1}}"#]
        {
            let handle = Handle::parse("h", other.as_bytes()).unwrap();
            assert!(!handle.push_compact(&mut Vec::new()), "{other}");
        }
        for (name, networks) in
            [("a-k8s-p-eth0", r#"["10.0.0.1/32"]"#), ("odd", r#"["10.0.0.1","fd00::1"]"#), ("none", "[]")]
        {
            let json = format!(
                r#"{{"spec":{{"node":"a","orchestrator":"k8s","pod":"p","endpoint":"eth0","ipNetworks":{networks}}}}}"#
            );
            back(&Endpoint::parse("n", name, json.as_bytes()).unwrap().value);
        }
        assert!(fingerprint().len() > 100);
    }
}
