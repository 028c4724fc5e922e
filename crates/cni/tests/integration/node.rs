//! A node's folder of plugins, into which Calico and the installer write.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use calipam_cni::install::place::{Place, Program};
use tempfile::TempDir;

use crate::runtime::{Outcome, PLUGIN};

/// A node's folder of plugins.
pub(crate) struct Node {
    pub folder: TempDir,
}

impl Node {
    /// A node on which Calico has installed its plugin of a version.
    pub(crate) fn with_calico(version: u32) -> Self {
        let node = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        node.calico_installs(version);
        node
    }

    /// Installs Calico's plugin as `install-cni` does: writes a temporary file, renames it, and sets the permissions
    /// last.
    pub(crate) fn calico_installs(&self, version: u32) {
        let part = self.path("calico-ipam.tmp");
        fs::write(&part, calicos(version)).unwrap();
        fs::rename(&part, self.path("calico-ipam")).unwrap();
        fs::set_permissions(self.path("calico-ipam"), fs::Permissions::from_mode(0o4755)).unwrap();
    }

    /// Writes a program.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn order(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PLUGIN);
        command
            .args(words)
            .arg("--bin-dir")
            .arg(self.folder.path())
            .arg("--no-check")
            .env_clear();
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Outcome {
        self.order(words).output().unwrap().into()
    }

    /// Installs or uninstalls the plugin. Returns what it prints.
    #[track_caller]
    pub(crate) fn succeed(&self, order: &str) -> String {
        let outcome = self.run(&order.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stderr
    }

    /// Tries to install or uninstall the plugin, which must fail. Returns the error.
    #[track_caller]
    pub(crate) fn fail(&self, order: &str) -> String {
        let outcome = self.run(&order.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        outcome.stderr
    }

    pub(crate) fn place(&self) -> Place {
        Place::new(self.folder.path(), Path::new(PLUGIN))
    }

    #[track_caller]
    pub(crate) fn assert_files(&self, expected: &[&str]) {
        let mut names: Vec<String> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, expected);
    }

    /// Asserts that this program is in place, and that Calico's plugin of a version is kept.
    #[track_caller]
    pub(crate) fn assert_installed(&self, version: u32) {
        self.assert_files(&["calico-ipam", "calico-ipam.calico"]);
        assert_eq!(self.place().plugin().unwrap(), Program::This);
        assert_eq!(
            fs::metadata(self.path("calico-ipam"))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777,
            0o755
        );
        assert_eq!(
            fs::read(self.path("calico-ipam.calico")).unwrap(),
            calicos(version)
        );
    }

    /// Asserts that Calico's plugin of a version is in place, next to a backup of version `kept`.
    #[track_caller]
    pub(crate) fn assert_beside(&self, version: u32, kept: u32) {
        self.assert_files(&["calico-ipam", "calico-ipam.calico"]);
        assert_eq!(fs::read(self.path("calico-ipam")).unwrap(), calicos(version));
        assert_eq!(fs::read(self.path("calico-ipam.calico")).unwrap(), calicos(kept));
    }

    /// Asserts that Calico's plugin of a version is in place, and that nothing else is left.
    #[track_caller]
    pub(crate) fn assert_calicos(&self, version: u32) {
        self.assert_files(&["calico-ipam"]);
        assert_eq!(fs::read(self.path("calico-ipam")).unwrap(), calicos(version));
    }
}

/// The content of Calico's plugin of a version, for which an executable script stands in.
pub(crate) fn calicos(version: u32) -> Vec<u8> {
    format!("#!/bin/sh\necho v3.{version}.0\n").into_bytes()
}
