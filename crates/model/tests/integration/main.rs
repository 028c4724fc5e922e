//! The model as other crates use it.

mod block_arithmetic;
mod borrowers;
mod edits;
mod facts;
mod generated;
mod plain_json;
