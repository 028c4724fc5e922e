//! Rebuilds, planned and simulated on generated clusters: what can be repaired is, the rest is said, and nothing
//! else changes.

mod chaos;
mod corrupt;
mod details;
mod judge;
mod kubernetes;
mod manifold;
mod scopes;
mod single;
mod steps;
mod verified;
