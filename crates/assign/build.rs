//! Computes the numbers that Go's `math/rand` mixes into every seed. They are the state of its own generator, seeded
//! with 1, after 7.8e12 steps.
//!
//! The generator adds two earlier numbers: `z[n] = z[n - 607] + z[n - 273]`, modulo 2^64. So `z[n]` is a sum of the
//! first 607 numbers, and its factors are the coefficients of `x^n` modulo `x^607 - x^334 - 1`.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

#[path = "src/go_random/lehmer.rs"]
mod lehmer;

use self::lehmer::{LENGTH, TAP, place};

/// The number of steps after which Go's authors took the state.
const STEPS: u64 = 7_800_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/go_random/lehmer.rs");
    let mut text = String::from("[\n");
    for number in state_after(STEPS) {
        writeln!(text, "    {number:#x},")?;
    }
    text.push(']');
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("go_seeds.rs"), text)?;
    Ok(())
}

/// The generator's state, after this many steps from the seed 1.
fn state_after(steps: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..LENGTH)
        .map(|number| lehmer::mixed(1, place(number as u64), 10))
        .collect();
    for next in LENGTH..2 * LENGTH {
        numbers.push(numbers[next - LENGTH].wrapping_add(numbers[next - TAP]));
    }
    let factors = power(steps);
    let mut state = vec![0; LENGTH];
    for number in 0..LENGTH {
        let terms = factors.iter().zip(&numbers[number..]);
        let sum = terms.fold(0u64, |sum, (factor, number)| {
            sum.wrapping_add(factor.wrapping_mul(*number))
        });
        state[place(steps + number as u64)] = sum;
    }
    state
}

/// The coefficients of `x^exponent`, from the lowest.
fn power(exponent: u64) -> Vec<u64> {
    let mut power = vec![1];
    for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
        let mut next = square(&power);
        if exponent >> bit & 1 == 1 {
            next.insert(0, 0);
        }
        power = reduced(next);
    }
    power
}

fn square(factors: &[u64]) -> Vec<u64> {
    let mut square = vec![0u64; 2 * factors.len() - 1];
    for (degree, factor) in factors.iter().enumerate().filter(|(_, factor)| **factor != 0) {
        for (sum, other) in square[degree..].iter_mut().zip(factors) {
            *sum = sum.wrapping_add(factor.wrapping_mul(*other));
        }
    }
    square
}

/// Replaces `x^607` by `x^334 + 1` until the degree is less than 607.
fn reduced(mut factors: Vec<u64>) -> Vec<u64> {
    for degree in (LENGTH..factors.len()).rev() {
        let factor = factors[degree];
        for lower in [degree - LENGTH, degree - TAP] {
            factors[lower] = factors[lower].wrapping_add(factor);
        }
    }
    factors.truncate(LENGTH);
    factors
}
