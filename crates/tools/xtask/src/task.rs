//! Tasks, and their help.

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

const INTRODUCTION: &str = "\
Development tasks of calipam. Run them from anywhere in the checkout.

Usage: cargo xtask <task>

Tasks:
";

const CLOSING: &str = "
`cargo xtask help <task>` says what a task does and needs.
New here? `cargo xtask demo` shows what calipam finds in an example cluster.
";

/// The help of `cargo xtask`: a list of the tasks.
pub(crate) fn overview(tasks: &[Task]) -> String {
    let width = tasks.iter().map(|task| task.name.len()).max().unwrap_or_default();
    let list: String =
        tasks.iter().map(|task| format!("  {:width$}  {}\n", task.name, task.summary)).collect();
    format!("{INTRODUCTION}{list}{CLOSING}")
}

/// The help of one task.
pub(crate) fn details(task: &Task) -> String {
    let usage = format!("cargo xtask {} {}", task.name, task.arguments);
    format!("{}\n\nUsage: {}\n\n{}", task.summary, usage.trim_end(), task.details)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TASKS;

    #[test]
    fn every_task_is_listed_and_explained() {
        let text = overview(TASKS);
        for task in TASKS {
            assert!(text.contains(&format!("  {}", task.name)), "{text}");
            let own = details(task);
            assert!(own.contains(&format!("Usage: cargo xtask {}", task.name)), "{own}");
            assert!(own.ends_with('\n') && !own.ends_with("\n\n"), "{own:?}");
        }
    }

    #[test]
    fn lines_fit_a_terminal_of_eighty_columns() {
        for text in std::iter::once(overview(TASKS)).chain(TASKS.iter().map(details)) {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
