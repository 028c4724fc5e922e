//! Plans of releases, made on generated clusters, simulated, and judged again.

mod everything;
mod healthy;
mod missing_evidence;
mod support;
