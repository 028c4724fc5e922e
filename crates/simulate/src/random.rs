//! Random numbers. The same seed gives the same numbers on any machine.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::time::Micros;

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    /// Creates the source for one seed and purpose. Each part of a simulation has its own purpose, so the parts do not
    /// affect each other's numbers.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose,
        ))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A time that is evenly distributed around `mean`, within `permille` thousandths of `mean`.
    pub(crate) fn around(&mut self, mean: Micros, permille: u64) -> Micros {
        let span = mean.0.saturating_mul(permille.min(1_000)) / 1_000;
        Micros(mean.0 - span + self.below(2 * span + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_everywhere() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(drawn, DRAWN);
        assert_ne!(Random::new(1, 3).next(), Random::new(1, 2).next());
    }

    const DRAWN: [u64; 4] = [291_580, 478_418, 462_191, 533_233];

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(7, 0);
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!((750..=1_250).contains(&random.around(Micros(1_000), 250).0));
        }
        assert_eq!((random.below(0), random.around(Micros(0), 300)), (0, Micros(0)));
    }
}
