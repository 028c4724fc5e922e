//! Tests and steps that are left out because the machine lacks a tool.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::{tool, workspace};

/// The list of skipped tests: a file to which each skipped test adds a line.
pub(crate) struct LeftOut {
    list: PathBuf,
}

impl LeftOut {
    /// Starts an empty list.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let list = workspace::root().join(format!("target/tests-left-out-{}", std::process::id()));
        workspace::write(&list, "")?;
        Ok(Self { list })
    }

    /// The variable that allows tests to be left out, with the path of the list.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (tool::LEFT_OUT, self.list.clone())
    }

    /// Adds a step that this machine cannot run. Unlike tests, steps may be skipped in CI, where pip and rustup may be
    /// missing.
    pub(crate) fn add(&self, step: &str, failure: &Failure) -> Result<(), Failure> {
        let reason = failure.to_string().replace('\n', "; ");
        tool::add_left_out(&self.list, step, &reason)
            .map_err(|error| Failure::io("write", &self.list, &error))
    }

    /// Prints each skipped test once, with the command that installs the tool it needs.
    pub(crate) fn print(self) {
        let lines = fs::read_to_string(&self.list).unwrap_or_default();
        for line in lines.lines().collect::<BTreeSet<_>>() {
            eprintln!("left out: {line}");
        }
        fs::remove_file(self.list).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_left_out_with_its_reason() {
        let list = std::env::temp_dir().join(format!("calipam-xtask-left-out-{}", std::process::id()));
        let left_out = LeftOut { list: list.clone() };
        left_out
            .add("macOS", &Failure::new("no pip").hint("install it"))
            .unwrap();
        assert_eq!(
            fs::read_to_string(&list).unwrap(),
            "macOS: error: no pip; hint: install it\n"
        );
        left_out.print();
    }
}
