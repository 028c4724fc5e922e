//! The size of random tests and of large matrices.

use std::ops::Mul;

/// The variable that `cargo xtask soak` sets.
const VARIABLE: &str = "CALIPAM_SOAK";

/// The number of rounds or seeds: `usual`, or ten times as many in `cargo xtask soak`.
pub fn rounds<N: Mul<Output = N> + From<u8>>(usual: N) -> N {
    let factor = if std::env::var_os(VARIABLE).is_some() { 10 } else { 1 };
    usual * N::from(factor)
}
