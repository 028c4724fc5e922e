//! How long a test with a random or a large matrix goes on.

use std::ops::Mul;

/// Set by `cargo xtask soak`.
const VARIABLE: &str = "CALIPAM_SOAK";

/// Rounds or seeds of a matrix: a sample of `usual`, or ten times as many in `cargo xtask soak`.
pub fn rounds<N: Mul<Output = N> + From<u8>>(usual: N) -> N {
    let factor = if std::env::var_os(VARIABLE).is_some() { 10 } else { 1 };
    usual * N::from(factor)
}
