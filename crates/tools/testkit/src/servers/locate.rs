//! Finds the programs of servers.
//!
//! This module uses only the standard library, because `xtask`, which builds without etcd-client, also includes this
//! file. As a result, tests look for the servers where `cargo xtask test` installs them.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server program that tests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd 3.6 or newer.
    Etcd,
    /// An older etcd, 3.4 or 3.5, as distributions package it.
    OldEtcd,
    /// The Kubernetes API server, in any version.
    KubeApiserver,
    /// kubectl 1.26 or newer, which calls plugins for completion. It is not a server, but is installed like one.
    Kubectl,
    /// promtool, in any version. It reads metrics and alerts as Prometheus does.
    Promtool,
    /// `jv`, which validates JSON against a schema.
    Jv,
    /// The CNI client of `tests/cni-client`, which is always built from source.
    CniClient,
    /// The emulator that runs arm64 programs.
    Qemu,
}

impl Program {
    /// The program's variable, its path where `cargo xtask test` installs it, and its name in messages.
    fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Etcd => ["CALIPAM_TEST_ETCD", "etcd", "etcd 3.6 or newer"],
            Self::OldEtcd => ["CALIPAM_TEST_ETCD_34", "etcd-3.4/usr/bin/etcd", "etcd 3.4 or 3.5"],
            Self::KubeApiserver => ["CALIPAM_TEST_KUBE_APISERVER", "kube-apiserver", "kube-apiserver"],
            Self::Kubectl => ["CALIPAM_TEST_KUBECTL", "kubectl", "kubectl 1.26 or newer"],
            Self::Promtool => ["CALIPAM_TEST_PROMTOOL", "prometheus/usr/bin/promtool", "promtool"],
            Self::Jv => ["CALIPAM_TEST_JV", "jv", "jv"],
            Self::CniClient => {
                ["CALIPAM_TEST_CNI_CLIENT", "calipam-cni-client", "the CNI client of tests/cni-client"]
            }
            Self::Qemu => ["CALIPAM_TEST_QEMU", "qemu/usr/bin/qemu-aarch64-static", "QEMU for arm64"],
        }
    }

    /// The environment variable with the path of the program. If it is set, the program is not searched elsewhere.
    pub fn variable(self) -> &'static str {
        self.texts()[0]
    }

    /// The path at which `cargo xtask test` installs the program if the machine lacks it.
    pub fn installed_path(self, workspace: &Path) -> PathBuf {
        workspace.join("target/servers").join(self.texts()[1])
    }

    /// The name of the executable file.
    fn file_name(self) -> &'static str {
        self.texts()[1].rsplit('/').next().unwrap_or_default()
    }

    /// True if the tests support the version in the output of `--version`.
    fn accepts(self, version: &str) -> bool {
        match (self, etcd_version(version)) {
            (Self::KubeApiserver | Self::Promtool | Self::Jv | Self::CniClient | Self::Qemu, _) => true,
            (Self::Kubectl, _) => kubectl_version(version).is_some_and(|found| found >= (1, 26)),
            (Self::Etcd, Some(found)) => found >= (3, 6),
            (Self::OldEtcd, Some(found)) => found == (3, 4) || found == (3, 5),
            (_, None) => false,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts()[2])
    }
}

/// A program that was not found.
#[derive(Debug, PartialEq, Eq)]
pub struct NotFound {
    program: Program,
    looked: Vec<String>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}; looked at: {}", self.program, self.looked.join(", "))
    }
}

impl std::error::Error for NotFound {}

/// Finds a program [on the machine](find_installed), or else where `cargo xtask test` installs it below the workspace.
pub fn find(program: Program, workspace: &Path) -> Result<PathBuf, NotFound> {
    let mut missing = match find_installed(program) {
        Ok(path) => return Ok(path),
        Err(missing) => missing,
    };
    // A variable with a path that does not exist is an error.
    if env::var_os(program.variable()).is_none() {
        let installed = program.installed_path(workspace);
        if installed.is_file() {
            return Ok(installed);
        }
        missing.looked.push(installed.display().to_string());
    }
    Err(missing)
}

/// Finds a program on the machine: at the path in its [variable](Program::variable), or else the first one of a
/// supported version in `PATH` or `KUBEBUILDER_ASSETS`.
pub fn find_installed(program: Program) -> Result<PathBuf, NotFound> {
    search(program, |name| env::var_os(name), version_of)
}

/// Does the work of [`find_installed`]. Tests pass their own environment and version function.
fn search(
    program: Program,
    variable: impl Fn(&str) -> Option<OsString>,
    version_of: impl Fn(&Path) -> Option<String>,
) -> Result<PathBuf, NotFound> {
    let name = program.variable();
    if let Some(path) = variable(name).map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        let looked = vec![format!("{name}={} (no such file)", path.display())];
        return Err(NotFound { program, looked });
    }
    let mut looked = vec![format!("{name} (not set)"), "PATH".to_owned()];
    let mut folders: Vec<PathBuf> = variable("PATH").iter().flat_map(env::split_paths).collect();
    match variable("KUBEBUILDER_ASSETS") {
        Some(folder) => {
            looked.push(format!("KUBEBUILDER_ASSETS={}", folder.display()));
            folders.push(folder.into());
        }
        None => looked.push("KUBEBUILDER_ASSETS (not set)".to_owned()),
    }
    for folder in folders {
        let path = folder.join(program.file_name());
        if path.is_file() {
            match version_of(&path) {
                Some(version) if program.accepts(&version) => return Ok(path),
                _ => looked.push(format!("{} (another version)", path.display())),
            }
        }
    }
    Err(NotFound { program, looked })
}

/// True if the file at `path` is the program, in a supported version.
pub fn is_wanted(program: Program, path: &Path) -> bool {
    version_of(path).is_some_and(|version| program.accepts(&version))
}

/// The output of a program for `--version`, or of kubectl for its own version command; `None` if the program does not
/// run.
fn version_of(path: &Path) -> Option<String> {
    let asked = [&["--version"][..], &["version", "--client"]].into_iter();
    let mut outputs = asked.filter_map(|arguments| Command::new(path).args(arguments).output().ok());
    let output = outputs.find(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The major and minor number in `Client Version: v1.36.3`.
fn kubectl_version(text: &str) -> Option<(u32, u32)> {
    let version = text.lines().find_map(|line| line.strip_prefix("Client Version: v"))?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The major and minor number in `etcd Version: 3.6.8`.
fn etcd_version(text: &str) -> Option<(u32, u32)> {
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?.trim();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Creates a temporary folder with an empty file `etcd`.
    fn folder_with_etcd(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("calipam-locate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("temporary folder");
        fs::write(folder.join("etcd"), "").expect("empty file");
        folder
    }

    #[test]
    fn versions_of_etcd_are_read() {
        let text = "etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8\n";
        assert_eq!(etcd_version(text), Some((3, 6)));
        assert_eq!(etcd_version("etcd Version: 3.10.0-rc.1"), Some((3, 10)));
        assert_eq!(etcd_version("Kubernetes v1.36.3"), None);
        assert_eq!(etcd_version("etcd Version: three"), None);
    }

    #[test]
    fn each_etcd_program_takes_its_own_versions() {
        let (current, old) = ("etcd Version: 3.6.8", "etcd Version: 3.4.23");
        assert!(Program::Etcd.accepts(current) && !Program::Etcd.accepts(old));
        assert!(Program::OldEtcd.accepts(old) && !Program::OldEtcd.accepts(current));
        assert!(Program::OldEtcd.accepts("etcd Version: 3.5.16"));
        assert!(!Program::OldEtcd.accepts("etcd Version: 3.3.25"));
        assert!(Program::KubeApiserver.accepts("Kubernetes v1.36.3"));
        assert!(Program::Kubectl.accepts("Client Version: v1.36.3\nKustomize Version: v5.8.1\n"));
        assert!(!Program::Kubectl.accepts("Client Version: v1.25.0\n") && !Program::Kubectl.accepts(current));
    }

    #[test]
    fn the_first_one_of_a_wanted_version_is_taken() {
        let (path, assets) = (folder_with_etcd("path"), folder_with_etcd("assets"));
        let environment = |name: &str| match name {
            "PATH" => Some(path.clone().into_os_string()),
            "KUBEBUILDER_ASSETS" => Some(assets.clone().into_os_string()),
            _ => None,
        };
        let on_path = path.join("etcd");
        let versions =
            |file: &Path| Some(format!("etcd Version: {}", if file == on_path { "3.4.23" } else { "3.6.8" }));
        assert_eq!(search(Program::Etcd, environment, versions), Ok(assets.join("etcd")));
        assert_eq!(search(Program::OldEtcd, environment, versions), Ok(on_path.clone()));
        let missing = search(Program::KubeApiserver, environment, versions).expect_err("there is none");
        let text = missing.to_string();
        assert!(text.contains("CALIPAM_TEST_KUBE_APISERVER (not set)"), "{text}");
        fs::remove_dir_all(path).expect("clean up");
        fs::remove_dir_all(assets).expect("clean up");
    }

    #[test]
    fn a_variable_that_names_no_file_is_an_error_even_where_another_one_is_there() {
        let path = folder_with_etcd("variable");
        let environment = |name: &str| match name {
            "CALIPAM_TEST_ETCD" => Some(OsString::from("/nowhere/etcd")),
            "PATH" => Some(path.clone().into_os_string()),
            _ => None,
        };
        let missing = search(Program::Etcd, environment, |_| Some("etcd Version: 3.6.8".to_owned()))
            .expect_err("no such file");
        let text = missing.to_string();
        assert_eq!(text, "no etcd 3.6 or newer; looked at: CALIPAM_TEST_ETCD=/nowhere/etcd (no such file)");
        fs::remove_dir_all(path).expect("clean up");
    }
}
