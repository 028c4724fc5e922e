use std::collections::BTreeSet;

use calipam_model::{IpNet, cidr};

use super::sweep::overlaps;

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Makes ranges of few addresses, so that CIDRs are often equal, nested, or in one cluster.
fn random_ranges(dice: &mut Dice) -> Vec<(IpNet, usize)> {
    let number = dice.below(24);
    (0..number)
        .map(|_| {
            let prefix = 26 + dice.below(7) as u8;
            let address = [10, 0, 0, dice.below(64) as u8].into();
            let cidr = match dice.below(6) {
                0 => "fd00::/126".parse().unwrap(),
                _ => cidr::block_around(address, prefix).unwrap(),
            };
            (cidr, dice.below(4) as usize)
        })
        .collect()
}

#[test]
fn the_sweep_finds_what_comparing_all_pairs_finds() {
    let mut dice = Dice(7);
    for round in 0..5_000 {
        let ranges = random_ranges(&mut dice);
        let most = dice.below(4) as usize;
        let (all, few) = (overlaps(&ranges, usize::MAX), overlaps(&ranges, most));
        for (position, (cidr, cluster)) in ranges.iter().enumerate() {
            let is_other = |other: &usize| {
                let (there, of) = ranges[*other];
                of != *cluster && cidr::overlap(there, *cidr)
            };
            let expected: BTreeSet<usize> = (0..ranges.len()).filter(is_other).collect();
            let found: BTreeSet<usize> = all[position].listed.iter().copied().collect();
            assert_eq!(
                (&found, all[position].number),
                (&expected, expected.len()),
                "round {round}: {ranges:?}"
            );
            let few = &few[position];
            assert_eq!((few.number, few.listed.len()), (expected.len(), expected.len().min(most)));
            assert!(few.listed.iter().all(|listed| expected.contains(listed)));
        }
    }
}
