//! What to do next: the only place that names commands and options in a text. Libraries give typed causes and
//! remedies.

mod command;
mod datastore;
mod error;
pub mod plan;
pub mod remedy;

pub use self::command::{
    command, command_elsewhere, command_in_document, remember_connection, remember_name,
};
pub use self::error::{error, repair};
