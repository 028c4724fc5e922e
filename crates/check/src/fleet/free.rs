//! Ranges that no cluster uses.

use calipam_model::cidr_set::CidrSet;
use calipam_model::{IpNet, cidr};

/// Returns the first `most` CIDRs of length `prefix` that are in one of `within` and share no address with `taken`,
/// ascending within each of these networks. Jumps from one taken range to the next, so it takes only about as long as
/// sorting `taken`.
pub fn free_ranges(
    prefix: u8,
    within: &[IpNet],
    taken: impl IntoIterator<Item = IpNet>,
    most: usize,
) -> Vec<IpNet> {
    let taken = CidrSet::new(taken);
    let mut free = Vec::new();
    for region in within.iter().filter(|region| region.prefix_len() <= prefix) {
        let mut next = cidr::subnet_at(*region, prefix, 0);
        while let Some(candidate) = next.filter(|candidate| region.contains(candidate)) {
            if free.len() == most {
                return free;
            }
            if !taken.touches(candidate) {
                free.push(candidate);
            }
            // The next candidate comes after this one or, if a larger taken range contains it, after that range.
            let skipped = taken.around(candidate).unwrap_or(candidate);
            let last_place = cidr::subnet_place(*region, prefix, skipped.broadcast());
            next = last_place.and_then(|place| cidr::subnet_at(*region, prefix, place.checked_add(1)?));
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_ranges_are_found_between_what_is_taken() {
        let nets =
            |texts: &[&str]| -> Vec<IpNet> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let free = |prefix, within: &[&str], taken: &[&str], most| {
            let found = free_ranges(prefix, &nets(within), nets(taken), most);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let taken = ["10.0.0.0/9", "10.128.3.4/32", "10.130.0.0/16", "192.168.0.0/17"];
        assert_eq!(
            free(16, &["10.0.0.0/8"], &taken, 2),
            ["10.129.0.0/16", "10.131.0.0/16"]
        );
        assert_eq!(free(16, &["192.168.0.0/16"], &taken, 2), [""; 0]);
        assert_eq!(free(17, &["192.168.0.0/16"], &taken, 2), ["192.168.128.0/17"]);
        assert_eq!(free(8, &["10.0.0.0/9"], &[], 2), [""; 0]);
        assert_eq!(free(8, &["255.0.0.0/8"], &[], 2), ["255.0.0.0/8"]);
        assert_eq!(free(64, &["fd00::/8"], &["fd00::/48"], 1), ["fd00:0:1::/64"]);
    }
}
