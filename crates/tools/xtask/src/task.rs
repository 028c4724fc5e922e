//! Tasks, and how they are found by name.

use crate::failure::Failure;

/// A development task, run as `cargo xtask NAME`.
pub(crate) struct Task {
    pub name: &'static str,
    /// The arguments as the task's help shows them; empty if there are none.
    pub arguments: &'static str,
    /// One line for the list of tasks.
    pub summary: &'static str,
    /// The rest of the help: what the task does and needs, and what to do next.
    pub details: &'static str,
    /// Runs the task. Takes the arguments after the task's name, without a leading `--`.
    pub run: fn(&[String]) -> Result<(), Failure>,
}

pub(crate) fn find<'a>(tasks: &'a [Task], name: &str) -> Option<&'a Task> {
    tasks.iter().find(|task| task.name == name)
}

/// Fails if there are arguments.
pub(crate) fn no_arguments(name: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => {
            Err(Failure::new(format!("`cargo xtask {name}` takes no arguments, but got `{first}`"))
                .hint(format!("`cargo xtask help {name}` says what it does")))
        }
    }
}
