//! Plans, made on generated clusters, simulated, and judged again.

mod assign;
mod rebuild;
mod release;
