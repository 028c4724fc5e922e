//! What a task is.

use crate::failure::Failure;

/// A development task, run as `cargo xtask NAME`.
pub(crate) struct Task {
    /// What it is called by.
    pub name: &'static str,
    /// What follows the name on the command line, empty if nothing does.
    pub arguments: &'static str,
    /// One line for the list of tasks.
    pub summary: &'static str,
    /// What it does, what it needs and how to go on; for `cargo xtask help NAME`.
    pub details: &'static str,
    /// Does it. Takes the arguments after the name, without a leading `--`.
    pub run: fn(&[String]) -> Result<(), Failure>,
}

pub(crate) fn named<'a>(tasks: &'a [Task], name: &str) -> Option<&'a Task> {
    tasks.iter().find(|task| task.name == name)
}

/// Refuses arguments, for tasks that take none.
pub(crate) fn no_arguments(name: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => {
            Err(Failure::new(format!("`cargo xtask {name}` takes no arguments, but got `{first}`"))
                .hint(format!("`cargo xtask help {name}` says what it does")))
        }
    }
}
