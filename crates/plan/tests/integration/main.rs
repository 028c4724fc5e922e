//! Plans, made on generated clusters, simulated, and judged again.

mod rebuild;
mod release;
