//! From reports and views to what is printed.

pub mod check;
pub mod codes;
pub mod document;
mod header;
pub mod plan;
pub mod show;
pub mod table;
pub mod text;
pub mod undo;
