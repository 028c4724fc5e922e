//! Rebuilds, planned and simulated on generated clusters. All that can be repaired is, the rest is skipped with
//! reasons, and nothing else changes.

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
