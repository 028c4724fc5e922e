//! A hash for a million short keys: quicker than the standard one, and the same in every run. It does
//! not resist keys that are made to collide, and must not be used where those would cost more than time.

use std::hash::{BuildHasherDefault, Hasher};

/// A map that uses it.
pub(crate) type QuickMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<QuickHasher>>;

/// An odd number without pattern: the fraction of the golden ratio.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multiplies every eight bytes into the state, and folds the upper half of the product onto the lower.
#[derive(Default)]
pub(crate) struct QuickHasher(u64);

impl QuickHasher {
    fn add(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word ^ MIX) * u128::from(MIX.rotate_left(17) ^ word.rotate_left(32));
        self.0 = product as u64 ^ (product >> 64) as u64 ^ self.0.rotate_left(23);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.add(chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
        // The length tells apart what differs in zeros at the end only.
        let tail = chunks.remainder().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.add(tail ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.0 ^ MIX) * u128::from(MIX);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        let mut hasher = QuickHasher::default();
        hasher.write(bytes);
        hasher.finish()
    }

    #[test]
    fn similar_keys_have_different_hashes() {
        let mut seen = HashSet::new();
        for number in 0..200_000u32 {
            assert!(seen.insert(hash(format!("k8s-pod-network.{number}").as_bytes())), "{number}");
            assert!(seen.insert(hash(&number.to_be_bytes())), "{number}");
        }
        for length in 0..64 {
            assert!(seen.insert(hash(&vec![0; length])) || length == 4, "{length}");
        }
    }

    #[test]
    fn every_bit_of_the_key_spreads_over_the_hash() {
        let key = *b"ipip-tunnel-addr-node-17";
        for bit in 0..key.len() * 8 {
            let mut other = key;
            other[bit / 8] ^= 1 << (bit % 8);
            let changed = (hash(&key) ^ hash(&other)).count_ones();
            assert!((12..=52).contains(&changed), "bit {bit} changes {changed} bits");
        }
    }
}
