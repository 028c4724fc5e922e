//! CIDRs in Calico's form, and the conversion between addresses and ordinals in a block.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Block sizes that Calico allows for IPv4, as prefix lengths (facts section 8).
pub const BLOCK_PREFIXES_V4: std::ops::RangeInclusive<u8> = 20..=32;
/// Block sizes that Calico allows for IPv6, as prefix lengths.
pub const BLOCK_PREFIXES_V6: std::ops::RangeInclusive<u8> = 116..=128;

/// The length of `::ffff:0:0/96`, the prefix of IPv4-mapped IPv6 addresses.
const MAPPED_PREFIX: u8 = 96;

/// Reads a CIDR, or a bare address as a CIDR of full length. Like Calico's reader, clears the host bits.
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    if let Some((address, prefix)) = parse_plain_v4(text) {
        return block_around(address.into(), prefix.unwrap_or(32));
    }
    parse_any(text).map(|net| net.trunc())
}

/// A CIDR as part of the name of an object in Kubernetes, such as that of a block: `10-244-1-0-26`, `fd00-10-244---122`.
pub fn resource_name(cidr: IpNet) -> String {
    cidr.to_string().replace(['.', ':', '/'], "-")
}

/// Reads an address, or a CIDR that Go's `ParseCIDR` accepts. Keeps the host bits. Does not use ipnet's parser, because
/// it accepts leading zeros (`010.7.0.0/29`), which some programs read as octal numbers.
fn parse_any(text: &str) -> Option<IpNet> {
    let Some((address, prefix)) = text.split_once('/') else {
        return Some(text.parse::<IpAddr>().ok()?.into());
    };
    // Rust's parser would accept a plus sign.
    let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok()
}

/// Reads a pool's CIDR as Go's `net.ParseCIDR` does: it needs a prefix length. Like Calico, reads IPv4-mapped IPv6
/// (`::ffff:192.0.2.0/120`) as IPv4.
pub fn parse_pool(text: &str) -> Option<IpNet> {
    if !text.contains('/') {
        return None;
    }
    parse_cidr(text).map(to_canonical)
}

/// Reads an entry in a reservation like Calico: ignores blanks around it, and reads IPv4-mapped IPv6 as IPv4.
pub fn parse_reserved(text: &str) -> Option<IpNet> {
    parse_cidr(text.trim()).map(to_canonical)
}

/// Converts an IPv4-mapped IPv6 CIDR (`::ffff:192.0.2.0/120`) to IPv4; returns any other CIDR unchanged.
pub fn to_canonical(net: IpNet) -> IpNet {
    let IpNet::V6(mapped) = net else { return net };
    let Some(address) = mapped.addr().to_ipv4_mapped() else {
        return net;
    };
    let Some(prefix) = mapped.prefix_len().checked_sub(MAPPED_PREFIX) else {
        return net;
    };
    Ipv4Net::new(address, prefix).map_or(net, IpNet::V4)
}

/// Reads an address, or the address part of a CIDR (`192.0.2.11/24` gives 192.0.2.11). Like Go, which prints such an
/// address as IPv4, takes IPv4-mapped IPv6 (`::ffff:192.0.2.11`) for IPv4.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if let Some((address, _)) = parse_plain_v4(text) {
        return Some(address.into());
    }
    parse_any(text).map(|net| net.addr().to_canonical())
}

/// Reads an address as Go's `net.ParseIP` does: without zone, blanks or prefix length. An IPv4-mapped IPv6 address is
/// an IPv4 address.
pub fn parse_go_address(text: &str) -> Option<IpAddr> {
    Some(text.parse::<IpAddr>().ok()?.to_canonical())
}

/// Reads an IPv4 address, with or without a prefix length, in canonical form; `None` for anything else. This has to be
/// fast: each of a million handles and endpoints has an address.
fn parse_plain_v4(text: &str) -> Option<(Ipv4Addr, Option<u8>)> {
    let mut bytes = text.bytes();
    let mut octets = [0; 4];
    let mut end = None;
    for (index, octet) in octets.iter_mut().enumerate() {
        if index > 0 && end != Some(b'.') {
            return None;
        }
        (*octet, end) = plain_number(&mut bytes)?;
    }

    let address = Ipv4Addr::from(octets);
    match end {
        None => Some((address, None)),
        Some(b'/') => match plain_number(&mut bytes)? {
            (prefix @ ..=32, None) => Some((address, Some(prefix))),
            _ => None,
        },
        Some(_) => None,
    }
}

/// Reads a number up to 255 without leading zeros, and the byte that follows it, if any. `None` for other bytes.
fn plain_number(bytes: &mut std::str::Bytes<'_>) -> Option<(u8, Option<u8>)> {
    let mut number = u16::from(bytes.next().filter(u8::is_ascii_digit)? - b'0');
    for _ in 0..3 {
        match bytes.next() {
            Some(digit @ b'0'..=b'9') if number > 0 => number = 10 * number + u16::from(digit - b'0'),
            Some(b'0'..=b'9') => return None,
            end => return Some((u8::try_from(number).ok()?, end)),
        }
    }
    None
}

/// Prints the form used in etcd keys, with `-` for `/` (`10.244.1.0-26`).
pub fn dashed(cidr: IpNet) -> String {
    format!("{}-{}", cidr.addr(), cidr.prefix_len())
}

/// Reads the form used in etcd keys, in which the first `-` stands for `/`.
pub fn parse_dashed(text: &str) -> Option<IpNet> {
    parse_cidr(&text.replacen('-', "/", 1))
}

/// Number of addresses in `cidr`; [`u128::MAX`] instead of `2^128` for `::/0`.
pub fn size(cidr: IpNet) -> u128 {
    let host_bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
    1u128.checked_shl(host_bits).unwrap_or(u128::MAX)
}

/// The ordinal of `address` in the block `cidr`, if it is in the block.
pub fn ordinal_of(cidr: IpNet, address: IpAddr) -> Option<u32> {
    let offset = match (cidr, address) {
        (IpNet::V4(net), IpAddr::V4(ip)) if net.contains(&ip) => {
            u128::from(u32::from(ip) - u32::from(net.network()))
        }
        (IpNet::V6(net), IpAddr::V6(ip)) if net.contains(&ip) => u128::from(ip) - u128::from(net.network()),
        _ => return None,
    };
    u32::try_from(offset).ok()
}

/// The address with `ordinal` in the block `cidr`. Wraps around at the end of the address space.
pub fn address_at(cidr: IpNet, ordinal: u32) -> IpAddr {
    match cidr {
        IpNet::V4(net) => Ipv4Addr::from(u32::from(net.network()).wrapping_add(ordinal)).into(),
        IpNet::V6(net) => Ipv6Addr::from(u128::from(net.network()).wrapping_add(ordinal.into())).into(),
    }
}

/// The CIDR with prefix length `prefix` whose position, counted from 0 at the start of `net`, is `place`. The position
/// can be beyond the end of `net`. `None` if the CIDR would be after the family's last address.
pub fn subnet_at(net: IpNet, prefix: u8, place: u128) -> Option<IpNet> {
    let host_bits = net.max_prefix_len().checked_sub(prefix)?;
    let offset = place.checked_shl(host_bits.into())?;
    let first = number(net.network()).checked_add(offset)?;
    let address = match net {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(first).ok()?).into(),
        IpNet::V6(_) => Ipv6Addr::from(first).into(),
    };
    block_around(address, prefix)
}

/// The position, counted from 0 at the start of `net`, of the CIDR with prefix length `prefix` that contains `address`.
/// `None` if `address` is outside `net`.
pub fn subnet_place(net: IpNet, prefix: u8, address: IpAddr) -> Option<u128> {
    if !net.contains(&address) {
        return None;
    }
    let offset = number(address) - number(net.network());
    let host_bits = net.max_prefix_len().checked_sub(prefix)?;
    offset.checked_shr(host_bits.into())
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The block with prefix length `prefix` that contains `address`. `None` if the prefix is longer than the address.
pub fn block_around(address: IpAddr, prefix: u8) -> Option<IpNet> {
    let net = match address {
        IpAddr::V4(ip) => IpNet::V4(Ipv4Net::new(ip, prefix).ok()?),
        IpAddr::V6(ip) => IpNet::V6(Ipv6Net::new(ip, prefix).ok()?),
    };
    Some(net.trunc())
}

/// True if the two CIDRs share an address.
pub fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

pub fn is_v4(cidr: IpNet) -> bool {
    matches!(cidr, IpNet::V4(_))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cidrs_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("10.7.0.9/29", Some("10.7.0.8/29")),
            ("10.7.0.0/029", Some("10.7.0.0/29")),
            ("fd00::9/125", Some("fd00::8/125")),
            ("010.7.0.0/29", None),
            ("10.7.0.0/+8", None),
            ("10.7.0.0/33", None),
            ("10.7.0.0/", None),
            ("0.0.00.0/0", None),
            ("10.7.0.0/29 ", None),
            ("10.7.0/24", None),
            ("10.7.0.256/24", None),
            ("fd00::%eth0/64", None),
        ] {
            assert_eq!(
                parse_cidr(text).map(|cidr| cidr.to_string()).as_deref(),
                expected,
                "{text}"
            );
            assert_eq!(parse_address(text).is_some(), expected.is_some(), "{text}");
            assert_eq!(parse_pool(text), parse_cidr(text));
        }
        for text in ["::ffff:10.0.0.1", "::FFFF:a00:1", "::ffff:10.0.0.1/120"] {
            assert_eq!(parse_address(text), parse_address("10.0.0.1"), "{text}");
        }
        assert_eq!(
            parse_pool("::ffff:10.0.0.0/120").unwrap().to_string(),
            "10.0.0.0/24"
        );
        assert_eq!(parse_pool("10.0.0.1"), None);
    }

    /// Strings that look like IPv4 addresses or CIDRs.
    fn v4() -> impl Strategy<Value = String> {
        let number = || prop_oneof![4 => any::<u8>().prop_map(|n| n.to_string()), 1 => "[0-9]{0,4}", 1 => "[+ a]?[0-9]"];
        let address = prop::collection::vec(number(), 3..6).prop_map(|octets| octets.join("."));
        let prefix = prop_oneof![2 => Just(String::new()), 4 => (0..40).prop_map(|n| format!("/{n}")), 1 => "/[0-9/+ ]{0,3}"];
        (address, prefix, "[./ ]?").prop_map(|(address, prefix, end)| format!("{address}{prefix}{end}"))
    }

    proptest! {
        #[test]
        fn plain_cidrs_are_read_as_all_others(text in prop_oneof![v4(), "[0-9a-f:.]{0,20}(/[0-9]{0,3})?"]) {
            prop_assert_eq!(parse_cidr(&text), parse_any(&text).map(|net| net.trunc()));
            prop_assert_eq!(parse_address(&text), parse_any(&text).map(|net| net.addr().to_canonical()));
        }
    }

    #[test]
    fn plain_reader_accepts_ipv4_in_calicos_form() {
        for text in ["10.244.1.0/26", "0.0.0.0/0", "255.255.255.255", "10.0.0.7/32"] {
            assert!(parse_plain_v4(text).is_some(), "{text}");
        }
        for text in [
            "fd00::/8",
            "10.0.0.0/33",
            "10.0.0",
            "10.0.0.256",
            "010.0.0.0",
            "10.0.0.0.0",
            "10.0.0.0/",
            "",
        ] {
            assert!(parse_plain_v4(text).is_none(), "{text}");
        }
    }

    #[test]
    fn keys_replace_the_first_slash_only() {
        for (text, key) in [
            ("10.244.1.0/26", "10.244.1.0-26"),
            ("fd00:10:244::/122", "fd00:10:244::-122"),
        ] {
            let cidr = parse_cidr(text).unwrap();
            assert_eq!(dashed(cidr), key);
            assert_eq!(parse_dashed(key), Some(cidr));
        }
        assert_eq!(
            parse_dashed("10.244.1.7-26").map(dashed).as_deref(),
            Some("10.244.1.0-26")
        );
        assert_eq!(parse_dashed("10.244.1.0"), parse_cidr("10.244.1.0/32"));
        assert_eq!(parse_dashed("10.244.1.0-99"), None);
    }

    #[test]
    fn entries_of_reservations_as_calico_reads_them() {
        let read = |text: &str| parse_reserved(text).map(|net| net.to_string());
        let read = |text: &str| read(text).unwrap_or_default();
        assert_eq!(
            [read(" 10.7.0.0/29\t"), read("10.7.0.5/30")],
            ["10.7.0.0/29", "10.7.0.4/30"]
        );
        assert_eq!(
            [read("::ffff:10.7.0.6"), read("::ffff:10.7.0.5/127")],
            ["10.7.0.6/32", "10.7.0.4/31"]
        );
        assert_eq!([read("::/0"), read("::ffff:0:0/95")], ["::/0", "::fffe:0:0/95"]);
        assert_eq!([read("10.7.0.300"), read("10.7.0.0/33"), read("")], [""; 3]);
    }

    #[test]
    fn ordinals_and_addresses_are_inverse() {
        for text in ["10.244.1.64/26", "fd00::40/122", "255.255.255.192/26"] {
            let cidr = parse_cidr(text).unwrap();
            for ordinal in 0..64 {
                assert_eq!(ordinal_of(cidr, address_at(cidr, ordinal)), Some(ordinal));
            }
        }
        let cidr = parse_cidr("10.244.1.64/26").unwrap();
        assert_eq!(ordinal_of(cidr, "10.244.1.63".parse().unwrap()), None);
        assert_eq!(ordinal_of(cidr, "::1".parse().unwrap()), None);
    }

    #[test]
    fn sizes_of_the_extremes() {
        assert_eq!(size(parse_cidr("10.0.0.1").unwrap()), 1);
        assert_eq!(size(parse_cidr("0.0.0.0/0").unwrap()), 1 << 32);
        assert_eq!(size(parse_cidr("::/0").unwrap()), u128::MAX);
    }
}
