//! `cargo xtask help`.

use crate::task::Task;

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
