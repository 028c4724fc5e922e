//! From reports and views to what is printed.

pub mod check;
pub mod codes;
pub mod document;
mod header;
pub mod show;
pub mod table;
pub mod text;
