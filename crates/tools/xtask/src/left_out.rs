//! The tests that are left out, because the machine has not what they need.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::{tool, workspace};

/// The file to which each of them adds a line.
pub(crate) struct LeftOut {
    list: PathBuf,
}

impl LeftOut {
    /// Begins an empty list.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let folder = workspace::root().join("target");
        fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, &error))?;
        let list = folder.join(format!("tests-left-out-{}", std::process::id()));
        match fs::remove_file(&list) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::io("remove", &list, &error)),
            _ => Ok(Self { list }),
        }
    }

    /// What tells tests that they may be left out.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (tool::LEFT_OUT, self.list.clone())
    }

    /// Names each test once, with what brings the tool that it needs.
    pub(crate) fn tell(self) {
        let lines = fs::read_to_string(&self.list).unwrap_or_default();
        for line in lines.lines().collect::<BTreeSet<_>>() {
            eprintln!("left out: {line}");
        }
        fs::remove_file(self.list).ok();
    }
}
