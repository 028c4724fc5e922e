//! Key ranges of the blocks that share addresses with a CIDR. Keys sort as strings, so a range may also contain blocks
//! outside the CIDR.

use std::net::Ipv6Addr;

use calipam_model::IpNet;

/// Number of leading IPv4 address bits that all keys in a span share, which are the first three of the four numbers.
const SHARED_V4: u8 = 24;

/// Keys from `first` on, up to the last one that starts with `last`. `first` and `last` are each either a whole
/// address, followed by the `-` that precedes the prefix length, or the beginning of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub first: String,
    pub last: String,
}

impl Span {
    /// The span of the keys that start with `beginning`.
    fn of_beginning(beginning: String) -> Self {
        Self {
            first: beginning.clone(),
            last: beginning,
        }
    }
}

/// Spans that contain the keys of all blocks whose first address is in `net`, the CIDR of a block.
pub(crate) fn spans(net: IpNet) -> Vec<Span> {
    match net {
        IpNet::V4(net) => {
            let mut spans = Vec::new();
            for subnet in net.subnets(SHARED_V4.max(net.prefix_len())).into_iter().flatten() {
                let [first, second, third, _] = subnet.network().octets();
                spans.push(Span::of_beginning(format!("{first}.{second}.{third}.")));
            }
            spans
        }
        IpNet::V6(net) => v6_spans(net.network(), net.broadcast()),
    }
}

/// The beginnings of the keys of all blocks whose first address is in `pool`. They may also begin keys of other blocks
/// in the same network: for IPv4 in the same /16, for IPv6 among the addresses with the same first numbers.
pub(crate) fn beginnings(pool: IpNet) -> Vec<String> {
    match pool {
        IpNet::V4(pool) => {
            let is_large = pool.prefix_len() <= 8;
            let shared_bits = if is_large { 8 } else { 16 };
            let prefix_len = pool.prefix_len().max(shared_bits);
            let mut beginnings = Vec::new();
            for network in pool.subnets(prefix_len).into_iter().flatten() {
                let [first, second, ..] = network.network().octets();
                beginnings.push(if is_large {
                    format!("{first}.")
                } else {
                    format!("{first}.{second}.")
                });
            }
            beginnings
        }
        IpNet::V6(pool) => {
            let shared_numbers = usize::from(pool.prefix_len() / 16);
            let mut beginning = String::new();
            for number in pool.network().segments().into_iter().take(shared_numbers) {
                // The text of an address abbreviates zeros differently, depending on the numbers after them.
                if number == 0 {
                    break;
                }
                beginning.push_str(&format!("{number:x}:"));
            }
            vec![beginning]
        }
    }
}

/// The spans of an IPv6 block, whose addresses differ only in the last number.
fn v6_spans(first: Ipv6Addr, last: Ipv6Addr) -> Vec<Span> {
    let last_number_of_first = first.segments()[7];
    if last_number_of_first != 0 {
        return vec![Span {
            first: format!("{first}-"),
            last: format!("{last}-"),
        }];
    }

    let mut spans = vec![Span::of_beginning(format!("{first}-"))];
    if first != last {
        // The text of an address abbreviates its zeros differently if its last number is 0.
        let second = Ipv6Addr::from(u128::from(first) + 1).to_string();
        let shared = second.trim_end_matches('1');
        spans.push(Span {
            first: format!("{shared}1"),
            last: format!("{shared}f"),
        });
    }
    spans
}

#[cfg(test)]
mod tests {
    use calipam_assign::blocks_holding_elsewhere;
    use calipam_model::cidr::{dashed, overlap};

    use super::*;

    fn has(spans: &[Span], key: &str) -> bool {
        spans.iter().any(|span| {
            key >= span.first.as_str() && (key < span.last.as_str() || key.starts_with(&span.last))
        })
    }

    /// The blocks of all sizes in `around`, which is a /20 or a /116.
    fn blocks(around: IpNet) -> impl Iterator<Item = IpNet> {
        let prefixes = if around.addr().is_ipv4() {
            20..=32
        } else {
            116..=128
        };
        prefixes.flat_map(move |prefix| around.subnets(prefix).unwrap())
    }

    #[test]
    fn the_keys_of_all_blocks_that_overlap_are_found() {
        for (net, around) in [
            ("10.7.4.64/26", "10.7.0.0/20"),
            ("10.7.4.0/22", "10.7.0.0/20"),
            ("10.7.4.0/24", "10.7.0.0/20"),
            ("10.7.4.9/32", "10.7.0.0/20"),
            ("fd00::40/122", "fd00::/116"),
            ("fd00::/122", "fd00::/116"),
            ("fd00:0:0:1::/124", "fd00:0:0:1::/116"),
            ("fd00:1:0:0:1::/120", "fd00:1:0:0:1::/116"),
            ("fd00::7:abc0/122", "fd00::7:a000/116"),
            ("fd00::7:a000/116", "fd00::7:a000/116"),
            ("1:2:3:4:5:6:7:0/122", "1:2:3:4:5:6:7:0/116"),
            ("fd00::/128", "fd00::/116"),
        ] {
            let (net, around): (IpNet, IpNet) = (net.parse().unwrap(), around.parse().unwrap());
            let spans = spans(net);
            let beyond = Vec::from_iter(blocks_holding_elsewhere(net));
            for block in blocks(around).filter(|block| overlap(*block, net)) {
                let is_found = beyond.contains(&block) || has(&spans, &dashed(block));
                // In Kubernetes, names contain `-` in place of `.` and `:`.
                let form = |text: &str| text.replace(['.', ':'], "-");
                let other: Vec<Span> = spans
                    .iter()
                    .map(|span| Span {
                        first: form(&span.first),
                        last: form(&span.last),
                    })
                    .collect();
                let is_found_there = beyond.contains(&block) || has(&other, &form(&dashed(block)));
                assert!(is_found && is_found_there, "{block} in {net}: {spans:?}");
            }
        }
    }

    #[test]
    fn the_keys_of_all_blocks_of_a_pool_begin_alike() {
        for (pool, begins) in [
            ("10.0.0.0/7", vec!["10.", "11."]),
            ("10.0.0.0/8", vec!["10."]),
            ("10.4.0.0/14", vec!["10.4.", "10.5.", "10.6.", "10.7."]),
            ("10.7.0.0/16", vec!["10.7."]),
            ("10.7.64.0/18", vec!["10.7."]),
            ("10.7.4.9/32", vec!["10.7."]),
            ("fd00:1:2::/48", vec!["fd00:1:2:"]),
            ("fd00:1:2::/44", vec!["fd00:1:"]),
            ("fd00:0:0:1::/64", vec!["fd00:"]),
            ("fd00:1:2:3:4:5:6:0/112", vec!["fd00:1:2:3:4:5:6:"]),
            ("::/0", vec![""]),
        ] {
            let net: IpNet = pool.parse().unwrap();
            let found = beginnings(net);
            assert_eq!(found, begins, "{pool}");
            let smallest = if net.addr().is_ipv4() { 26 } else { 122 }.max(net.prefix_len());
            let size = (net.prefix_len() + 7).min(smallest);
            for far in net.subnets(size).unwrap() {
                let block = IpNet::new(far.broadcast(), smallest).unwrap().trunc();
                let key = dashed(block);
                assert!(
                    found.iter().any(|begin| key.starts_with(begin)),
                    "{key} in {pool}"
                );
            }
        }
    }

    #[test]
    fn spans_have_few_keys_of_others() {
        let of = |net: &str| spans(net.parse().unwrap());
        assert_eq!(of("10.7.4.64/26"), [Span::of_beginning("10.7.4.".into())]);
        let v6 = of("fd00::7:abc0/122");
        let pool: IpNet = "fd00::7:0/112".parse().unwrap();
        let keys = pool
            .subnets(122)
            .unwrap()
            .filter(|block| has(&v6, &dashed(*block)))
            .count();
        assert_eq!(keys, 1);
        let small = of("fd00::7:40/122");
        let keys = pool
            .subnets(122)
            .unwrap()
            .filter(|block| has(&small, &dashed(*block)))
            .count();
        assert!((1..300).contains(&keys), "{keys}");
    }
}
