//! Tests that are left out because the machine lacks a tool.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::{tool, workspace};

/// The file to which each such test adds a line.
pub(crate) struct LeftOut {
    list: PathBuf,
}

impl LeftOut {
    /// Starts an empty list.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let folder = workspace::root().join("target");
        fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, &error))?;
        let list = folder.join(format!("tests-left-out-{}", std::process::id()));
        match fs::remove_file(&list) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::io("remove", &list, &error)),
            _ => Ok(Self { list }),
        }
    }

    /// The variable that allows tests to be left out, with the path of the list.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (tool::LEFT_OUT, self.list.clone())
    }

    /// Prints each test once, with the command that installs its tool.
    pub(crate) fn print(self) {
        let lines = fs::read_to_string(&self.list).unwrap_or_default();
        for line in lines.lines().collect::<BTreeSet<_>>() {
            eprintln!("left out: {line}");
        }
        fs::remove_file(self.list).ok();
    }
}
