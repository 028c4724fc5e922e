//! Go's `math/rand` with a given seed. Calico chooses by it where a node begins to search a pool for a block.

mod lehmer;

use self::lehmer::{LENGTH, MODULUS, TAP, mixed, place};

/// Numbers that are mixed into every seed. The build script computes them.
static MIXED_IN: [u64; LENGTH] = include!(concat!(env!("OUT_DIR"), "/go_seeds.rs"));

/// The seed that Go uses instead of 0.
const INSTEAD_OF_ZERO: u64 = 89_482_311;

/// The distance, in bits, of the three numbers of the small generator that make up a number of the state.
const SHIFT: u32 = 20;

/// The stream of numbers from a seed (`rand.New(rand.NewSource(seed))`).
pub(crate) struct GoRandom {
    seed: u64,
    /// The index of the next number. The first [`LENGTH`] numbers are the state at the beginning.
    next: u64,
}

impl GoRandom {
    /// Seeds the generator as Go's `rand.NewSource` does.
    pub(crate) fn new(seed: i64) -> Self {
        let seed = match seed.rem_euclid(MODULUS as i64) as u64 {
            0 => INSTEAD_OF_ZERO,
            seed => seed,
        };
        Self {
            seed,
            next: LENGTH as u64,
        }
    }

    /// Returns a number below 2^`bits`, as `big.Int.Rand` does. `bits` may be at most 128.
    pub(crate) fn below_power(&mut self, bits: u32) -> u128 {
        let words = bits / u64::BITS + 1;
        loop {
            let mut number = 0;
            let mut last = 0;
            for word in 0..words {
                last = u64::from(self.uint32()) | u64::from(self.uint32()) << 32;
                number |= u128::from(last).checked_shl(word * u64::BITS).unwrap_or(0);
            }
            // Go draws one bit more, and draws again if it is set: the number would not be below the limit.
            if last >> (bits % u64::BITS) & 1 == 0 {
                return number & 1u128.checked_shl(bits).map_or(u128::MAX, |limit| limit - 1);
            }
        }
    }

    /// The 32 bits below the highest of the next number.
    fn uint32(&mut self) -> u32 {
        let number = self.number(self.next);
        self.next += 1;
        (number >> 31) as u32
    }

    /// The number with this index. The first [`LENGTH`] numbers are computed from the seed; each later one is the sum of
    /// the numbers that are `LENGTH` and `TAP` before it.
    fn number(&self, index: u64) -> u64 {
        if index < LENGTH as u64 {
            let place = place(index);
            return mixed(self.seed, place, SHIFT) ^ MIXED_IN[place];
        }
        let earlier = self.number(index - LENGTH as u64);
        let later = self.number(index - TAP as u64);
        earlier.wrapping_add(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three numbers of Go's `Uint32`, and the two-thousandth.
    #[test]
    fn numbers_are_those_of_go() {
        for (seed, first, later) in [
            (0, [0xf1f8_5ff5, 0x3eb6_0825, 0xa7ec_bff2], 0x44f8_3779),
            (1, [0x9acb_0442, 0xf0c5_341e, 0xaa20_9b8e], 0xd6b4_2d0d),
            (-1, [0x652b_03be, 0x0f45_33e0, 0x55e0_9870], 0x2984_1506),
            (42, [0x5f7e_c963, 0x10e5_6897, 0x9aa5_e508], 0x1bf9_2978),
            (
                2_166_136_261,
                [0x025f_3c58, 0xedbb_9dba, 0x8b10_acb8],
                0xa5e6_4d15,
            ),
            (1 << 40, [0x97d4_5fcb, 0xaf7c_3e40, 0x20ae_61a3], 0x4b08_3f21),
            (i64::MIN, [0xd533_f43b, 0xbc1a_9aa9, 0xf2ce_5246], 0x7ffa_cbef),
        ] {
            let mut random = GoRandom::new(seed);
            assert_eq!(
                [random.uint32(), random.uint32(), random.uint32()],
                first,
                "{seed}"
            );
            random.next += 1_996;
            assert_eq!(random.uint32(), later, "{seed}");
        }
    }

    /// The first three numbers of Go's `big.Int.Rand` with the seed 7.
    #[test]
    fn numbers_below_a_power_of_two_are_those_of_go() {
        for (bits, numbers) in [
            (0, [0, 0, 0]),
            (1, [0, 1, 0]),
            (4, [0x9, 0, 0xe]),
            (16, [0x843c, 0xade0, 0xd69b]),
            (31, [0x3dcb_935a, 0x5aad_d080, 0x05b3_0370]),
            (32, [0x5aad_d080, 0x05b3_0370, 0x7575_86f9]),
            (
                62,
                [
                    0x3b44_0ddd_eb3c_843c,
                    0x256a_79e9_b2bf_9089,
                    0x295c_7e78_05b3_0370,
                ],
            ),
            (
                63,
                [
                    0x3b44_0ddd_eb3c_843c,
                    0x256a_79e9_b2bf_9089,
                    0x57ba_02cc_5aad_d080,
                ],
            ),
            (
                64,
                [
                    0x3b44_0ddd_eb3c_843c,
                    0x256a_79e9_b2bf_9089,
                    0xd948_99e5_251b_c5f5,
                ],
            ),
            (
                65,
                [
                    0x256a_79e9_b2bf_9089,
                    0x1_a95c_7e78_05b3_0370,
                    0x1_6c68_41bf_ae1b_f28a,
                ],
            ),
            (
                127,
                [
                    0x57ba_02cc_5aad_d080_256a_79e9_b2bf_9089,
                    0x6392_d2a2_7575_86f9_a95c_7e78_05b3_0370,
                    0x2e15_bbb0_2565_88ee_d948_99e5_251b_c5f5,
                ],
            ),
            (
                128,
                [
                    0x2e15_bbb0_2565_88ee_d948_99e5_251b_c5f5,
                    0x4f29_8965_f1ba_0038_214e_589c_da2a_d69b,
                    0xe121_f5c3_6bd1_bc9f_b73d_20ba_6122_df6a,
                ],
            ),
        ] {
            let mut random = GoRandom::new(7);
            assert_eq!([(); 3].map(|()| random.below_power(bits)), numbers, "{bits}");
        }
    }
}
