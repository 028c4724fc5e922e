//! Plans of releases that are made on generated clusters, simulated, and checked again.

mod everything;
mod healthy;
mod missing_evidence;
mod support;
