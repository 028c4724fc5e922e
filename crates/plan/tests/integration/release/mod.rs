//! Plans of releases, made on generated clusters, simulated, and judged again.

mod everything;
mod missing_evidence;
mod support;
