//! Tests of the model's public API.

mod block_arithmetic;
mod borrowers;
mod changes;
mod edits;
mod facts;
mod generated;
mod plain_json;
