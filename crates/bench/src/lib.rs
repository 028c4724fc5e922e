//! Benchmarks of calipam: what they share. `cargo xtask bench` builds and runs the programs in `src/bin`.

pub mod check;
pub mod child;
pub mod kubernetes;
pub mod leak;
