//! Tools for calipam's tests. No published crate depends on them.

pub mod allocator;
pub mod blocks;
pub mod browser;
pub mod calico2;
pub mod cluster;
pub mod datastore;
pub mod golden;
pub mod json;
pub mod kube;
pub mod memory;
pub mod operator;
pub mod relay;
mod runtime;
pub mod servers;
pub mod values;
mod world;

pub use world::{World, on_server};

/// The number of rounds or seeds of random tests and of large matrices: `usual`, or ten times as many in `cargo xtask
/// soak`, which sets the variable.
pub fn rounds<N: std::ops::Mul<Output = N> + From<u8>>(usual: N) -> N {
    let factor = if std::env::var_os("CALIPAM_SOAK").is_some() {
        10
    } else {
        1
    };
    usual * N::from(factor)
}
