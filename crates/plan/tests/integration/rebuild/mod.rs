//! Rebuilds, planned and simulated on generated clusters: what can be repaired is, the rest is said, and nothing
//! else changes.

mod chaos;
mod corrupt;
mod details;
mod each_fault;
mod judge;
mod kubernetes;
mod leftovers;
mod many_faults;
mod scopes;
mod steps;
mod verified;
