//! Rebuilds, planned and simulated on generated clusters. Everything that can be repaired is repaired, everything else
//! is skipped with a reason, and no other object changes.

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
