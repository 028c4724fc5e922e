//! The model as other crates use it.

mod block_arithmetic;
mod edits;
mod facts;
mod generated;
