//! Benchmarks of calipam: what they share. `cargo xtask bench` builds and runs the programs in `src/bin`.

pub mod check;
pub mod child;
pub mod cluster;
pub mod kubernetes;
pub mod leak;
pub mod plugin;
pub mod views;

/// What can fail in a benchmark.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
