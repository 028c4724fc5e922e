//! Calico IPAM data: the objects in the datastore, reading and writing of their keys and values, and the block
//! arithmetic. This crate has no I/O, no async and no clock.
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`.

pub mod affinity;
pub mod attributes;
pub mod block;
pub mod calico2;
pub mod changes;
pub mod cidr;
pub mod cidr_set;
mod cni_configuration;
pub mod config;
mod decode;
pub mod digest;
pub mod display;
pub mod document;
pub mod edit;
pub mod endpoint;
mod error;
pub mod handle;
pub mod hint;
mod json;
pub mod key;
pub mod names;
pub mod node;
mod owner_map;
pub mod packing;
pub mod parallel;
pub mod plugin;
pub mod pod;
pub mod pool;
mod resource;
pub mod selector;
pub mod service;
pub mod snapshot;
mod stored;
pub mod text;
pub mod time;
pub mod words;
pub mod writable;

pub use cni_configuration::CniConfiguration;
pub use error::DecodeError;
pub use ipnet::IpNet;
pub use json::{RawJson, Unknown, from_slice as from_json, or_empty, string_list};
pub use resource::Parsed;
