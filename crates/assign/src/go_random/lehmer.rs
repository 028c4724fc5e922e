//! The small generator with which Go's `math/rand` fills the large one. Also compiled into the build script.

/// The number of numbers in the large generator's state.
pub(crate) const LENGTH: usize = 607;
/// The distance to the nearer of the two numbers whose sum is the next one.
pub(crate) const TAP: usize = 273;
/// The small generator's modulus, a prime.
pub(crate) const MODULUS: u64 = (1 << 31) - 1;
/// The small generator's factor, by which each number is multiplied to get the next one.
const FACTOR: u64 = 48_271;
/// The number of steps before the first number is used.
const SKIPPED: u64 = 20;

/// The place in the state of the number with this index. The state is filled from its middle downwards.
pub(crate) fn place(index: u64) -> usize {
    let start = (LENGTH - TAP - 1) as u64;
    let length = LENGTH as u64;
    ((start + length - index % length) % length) as usize
}

/// The number at a place of the state, made of three numbers of the small generator that are `shift` bits apart.
pub(crate) fn mixed(seed: u64, place: usize, shift: u32) -> u64 {
    let first = power(SKIPPED + 3 * place as u64 + 1) * seed % MODULUS;
    let second = first * FACTOR % MODULUS;
    let third = second * FACTOR % MODULUS;
    first << (2 * shift) ^ second << shift ^ third
}

/// The factor's power, modulo [`MODULUS`].
fn power(mut exponent: u64) -> u64 {
    let mut power = 1;
    let mut square = FACTOR;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * square % MODULUS;
        }
        square = square * square % MODULUS;
        exponent >>= 1;
    }
    power
}
