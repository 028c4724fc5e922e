//! Test tools of calipam; no published crate depends on it.

pub mod allocator;
pub mod browser;
pub mod calico2;
pub mod cluster;
pub mod json;
pub mod kube;
pub mod servers;
mod soak;

pub use soak::rounds;
