//! Tools for calipam's tests. No published crate depends on them.

pub mod allocator;
pub mod blocks;
pub mod browser;
pub mod calico2;
pub mod cluster;
pub mod datastore;
pub mod json;
pub mod kube;
pub mod memory;
pub mod operator;
pub mod relay;
mod runtime;
pub mod servers;
mod soak;
pub mod values;
mod world;

pub use soak::rounds;
pub use world::{World, on_server};
