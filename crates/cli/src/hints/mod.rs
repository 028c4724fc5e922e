//! Hints about next steps, with their command lines. Libraries return hints and remedies as values.

mod call;
mod command;
pub(crate) mod cure;
mod new_pool;
pub(crate) mod plan;
pub(crate) mod remedy;
pub(crate) mod service;
pub(crate) mod why;
mod words;

pub(crate) use self::command::{
    Reader, calicoctl, command, command_elsewhere, command_with, connected, dry_run, findings_in_document,
    for_cluster, into_file, kubectl, names_connection, remember_call, remember_connection, remember_fleet,
    remember_name, this_call, with_journal_option, with_kubectls_options,
};
use self::command::{list_findings, show_address};
pub(crate) use self::words::{of_failure, text};
