//! The output of reports and views.

mod bar;
pub(crate) mod check;
pub(crate) mod column;
mod decisions;
pub(crate) mod diff;
pub(crate) mod document;
pub(crate) mod explanation;
pub(crate) mod failure;
mod findings;
pub(crate) mod fleet;
pub(crate) mod header;
pub(crate) mod history;
pub(crate) mod html;
mod lines;
pub(crate) mod markdown;
pub(crate) mod migrate;
pub(crate) mod page;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod undo;
pub(crate) mod why;
pub(crate) mod wrap;
mod yaml;
