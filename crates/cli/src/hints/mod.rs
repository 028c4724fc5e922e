//! Hints about next steps, with their command lines. Libraries return hints and remedies as values.

mod call;
mod command;
pub(crate) mod cure;
pub(crate) mod plan;
pub(crate) mod remedy;
pub(crate) mod service;
pub(crate) mod why;
mod words;

pub(crate) use self::command::{
    Reader, again, command, command_elsewhere, command_in_document, command_with, connected, dry_run,
    into_file, names_connection, remember_call, remember_connection, remember_name, with_journal,
};
use self::command::{list_findings, show_address};
pub(crate) use self::words::{of_failure, text};
