//! The model as other crates use it.

mod block_arithmetic;
mod facts;
mod generated;
