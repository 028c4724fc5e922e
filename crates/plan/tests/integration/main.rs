//! Plans, made on generated clusters, simulated, and checked again.

mod assign;
mod rebuild;
mod release;
