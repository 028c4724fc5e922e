//! What to do next: the only place that names commands and options in a text. Libraries give typed causes and
//! remedies.

mod call;
mod command;
mod datastore;
mod error;
pub(crate) mod plan;
pub(crate) mod remedy;
pub(crate) mod why;

pub(crate) use self::command::{
    Reader, again, command, command_elsewhere, command_in_document, command_with, connected, dry_run,
    into_file, names_connection, remember_call, remember_connection, remember_name, with_journal,
};
pub(crate) use self::error::{error, repair};
