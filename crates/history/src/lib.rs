//! The history of Calico's IPAM data. Pure functions: no I/O, no clock.
//!
//! [`diff`]: the differences of two snapshots of one cluster. [`timeline`]: a row of states of some objects, read as events.
//! [`trend`]: what is assigned and released while a cluster is followed. [`rates`]: how often pods came and how long they stayed.
//! [`past`]: what a recording tells of both. All of them compare states of a block by one differ (`differ.rs`).
//!
//! An object that cannot be decoded, or was not read, is never said to be gone or to be the same: it is listed as not compared.

pub mod diff;
mod differ;
pub mod keep;
pub mod past;
pub mod rates;
pub mod timeline;
pub mod trend;

/// A map for a million short keys. Its hash does not resist keys that are made to collide: those would cost no more
/// than time.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
