//! Programs that tests need: servers, and programs from packages of the distribution.
//!
//! This module uses only the standard library, since `xtask`, which installs the programs and builds without
//! etcd-client, also includes this file. As a result, tests look for them where `cargo xtask test` installs them.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the path of the list of skipped tests; set by `cargo xtask test`.
pub const LEFT_OUT: &str = "CALIPAM_TEST_LEFT_OUT";

/// The variable with the path of the socket on which a process lends API servers; set by `cargo xtask test`.
pub const LENDER: &str = "CALIPAM_TEST_LENDER";

/// The program names of the browser, in distributions' packages and in Google's.
const CHROMIUMS: [&str; 5] = [
    "chromium",
    "chromium-headless-shell",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// A program that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    BashCompletion,
    /// Chromium or Chrome.
    Chromium,
    /// The CNI client of `tests/cni-client`, which is always built from source.
    CniClient,
    Dpkg,
    /// etcd 3.6 or newer.
    Etcd,
    Fish,
    Groff,
    Jq,
    /// `jv`, which validates JSON against a schema.
    Jv,
    /// The Kubernetes API server, in any version.
    KubeApiserver,
    /// kubectl 1.26 or newer, which calls plugins for completion.
    Kubectl,
    /// An older etcd, 3.4 or 3.5, as distributions package it.
    OldEtcd,
    /// promtool, in any version. It reads metrics and alerts as Prometheus does.
    Promtool,
    /// The emulator that runs arm64 programs.
    Qemu,
    /// rpm, which installs packages for Fedora and other distributions.
    Rpm,
    Strace,
    SystemdAnalyze,
    Zsh,
}

impl Tool {
    /// The tools from packages of the distribution without which tests are skipped, in the order of their installation.
    pub const PACKAGED: [Self; 12] = [
        Self::OldEtcd,
        Self::Promtool,
        Self::Dpkg,
        Self::Groff,
        Self::Jq,
        Self::Rpm,
        Self::Strace,
        Self::SystemdAnalyze,
        Self::BashCompletion,
        Self::Zsh,
        Self::Fish,
        Self::Chromium,
    ];

    /// The tool's name in messages, its variable, its path where `cargo xtask test` installs it, and its Debian
    /// package. The last part of the path is its name in `PATH`. An empty text means that there is none.
    fn texts(self) -> [&'static str; 4] {
        match self {
            // The whole path is its name in any folder.
            Self::BashCompletion => {
                let file = "/usr/share/bash-completion/bash_completion";
                ["bash-completion", "", file, "bash-completion"]
            }
            Self::Chromium => ["Chromium", "CALIPAM_TEST_CHROMIUM", "", "chromium-headless-shell"],
            Self::CniClient => [
                "the CNI client of tests/cni-client",
                "CALIPAM_TEST_CNI_CLIENT",
                "calipam-cni-client",
                "",
            ],
            Self::Dpkg => ["dpkg-deb", "", "dpkg-deb", "dpkg"],
            Self::Etcd => ["etcd 3.6 or newer", "CALIPAM_TEST_ETCD", "etcd", ""],
            Self::Fish => ["fish", "", "fish", "fish"],
            Self::Groff => ["groff", "", "groff", "groff-base"],
            Self::Jq => ["jq", "", "jq", "jq"],
            Self::Jv => ["jv", "CALIPAM_TEST_JV", "jv", ""],
            Self::KubeApiserver => [
                "kube-apiserver",
                "CALIPAM_TEST_KUBE_APISERVER",
                "kube-apiserver",
                "",
            ],
            Self::Kubectl => ["kubectl 1.26 or newer", "CALIPAM_TEST_KUBECTL", "kubectl", ""],
            Self::OldEtcd => [
                "etcd 3.4 or 3.5",
                "CALIPAM_TEST_ETCD_34",
                "etcd-3.4/usr/bin/etcd",
                "etcd-server",
            ],
            Self::Promtool => [
                "promtool",
                "CALIPAM_TEST_PROMTOOL",
                "prometheus/usr/bin/promtool",
                "prometheus",
            ],
            Self::Qemu => {
                let file = "qemu/usr/bin/qemu-aarch64-static";
                ["QEMU for arm64", "CALIPAM_TEST_QEMU", file, "qemu-user-static"]
            }
            Self::Rpm => ["rpm", "", "rpm", "rpm"],
            Self::Strace => ["strace", "", "strace", "strace"],
            Self::SystemdAnalyze => ["systemd-analyze", "", "systemd-analyze", "systemd"],
            Self::Zsh => ["zsh", "", "zsh", "zsh"],
        }
    }

    /// The environment variable with the path of the tool. If it is set, the tool is not searched elsewhere.
    pub fn variable(self) -> &'static str {
        self.texts()[1]
    }

    /// The path at which `cargo xtask test` installs the tool if the machine lacks it.
    pub fn installed_path(self, workspace: &Path) -> PathBuf {
        workspace.join("target/servers").join(self.texts()[2])
    }

    /// The tool's Debian package.
    pub fn package(self) -> &'static str {
        self.texts()[3]
    }

    /// The names of the executable file.
    fn file_names(self) -> Vec<&'static str> {
        match (self, self.texts()[2]) {
            (Self::Chromium, _) => CHROMIUMS.to_vec(),
            (Self::BashCompletion, file) => vec![file],
            (_, path) => vec![path.rsplit('/').next().unwrap_or_default()],
        }
    }

    /// Finds the tool [on the machine](Self::find_installed), or else where `cargo xtask test` installs it below the
    /// workspace.
    pub fn find(self, workspace: &Path) -> Result<PathBuf, String> {
        let last = (!self.texts()[2].is_empty()).then(|| self.installed_path(workspace));
        self.search(last, |name| env::var_os(name), version_of)
    }

    /// Finds the tool on the machine: at the path in its [variable](Self::variable), or else the first one of a
    /// supported version in `PATH` or `KUBEBUILDER_ASSETS`.
    pub fn find_installed(self) -> Result<PathBuf, String> {
        self.search(None, |name| env::var_os(name), version_of)
    }

    /// Looks at `last` after all other places, unless the variable is set. Tests pass their own environment and version
    /// function.
    fn search(
        self,
        last: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
        version_of: impl Fn(&Path) -> Option<String>,
    ) -> Result<PathBuf, String> {
        let missing = |looked: &[String]| Err(format!("no {self}; looked at: {}", looked.join(", ")));
        let name = self.variable();
        if let Some(path) = variable(name).map(PathBuf::from) {
            if path.is_file() {
                return Ok(path);
            }
            return missing(&[format!("{name}={} (no such file)", path.display())]);
        }
        let mut looked = Vec::new();
        if !name.is_empty() {
            looked.push(format!("{name} (not set)"));
        }
        looked.push("PATH".to_owned());
        let mut folders: Vec<PathBuf> = variable("PATH").iter().flat_map(env::split_paths).collect();
        let assets = variable("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let value = assets
            .as_ref()
            .map_or(" (not set)".into(), |folder| format!("={}", folder.display()));
        looked.push(format!("KUBEBUILDER_ASSETS{value}"));
        folders.extend(assets);
        for name in self.file_names() {
            for path in folders
                .iter()
                .map(|folder| folder.join(name))
                .filter(|path| path.is_file())
            {
                if self.accepts(|| version_of(&path)) {
                    return Ok(path);
                }
                looked.push(format!("{} (another version)", path.display()));
            }
        }
        match last {
            Some(path) if path.is_file() => return Ok(path),
            last => looked.extend(last.map(|path| path.display().to_string())),
        }
        missing(&looked)
    }

    /// True if the file at `path` is the tool, in a supported version.
    pub fn is_wanted(self, path: &Path) -> bool {
        self.accepts(|| version_of(path))
    }

    /// True if the tests support the version. They support every version of most tools; servers must at least run.
    fn accepts(self, version: impl FnOnce() -> Option<String>) -> bool {
        match self {
            Self::KubeApiserver | Self::Promtool | Self::Jv | Self::CniClient | Self::Qemu => {
                version().is_some()
            }
            Self::Kubectl => {
                version_after("Client Version: v", version()).is_some_and(|found| found >= (1, 26))
            }
            Self::Etcd => version_after("etcd Version:", version()).is_some_and(|found| found >= (3, 6)),
            Self::OldEtcd => {
                let found = version_after("etcd Version:", version());
                found.is_some_and(|found| found == (3, 4) || found == (3, 5))
            }
            _ => true,
        }
    }

    /// A message that the tool is missing, with the command that installs it.
    pub fn missing(self) -> String {
        match self.package() {
            "" => format!("{self} is missing; `cargo xtask test` installs it"),
            package => format!("{self} is missing; `apt-get install -y {package}` installs it"),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts()[0])
    }
}

/// Finds the program that a shell would run for this name.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Adds a skipped test or step to the list, in a single write, so that concurrent tests do not mix their lines.
pub fn add_left_out(list: &Path, name: &str, why: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(list)?;
    file.write_all(format!("{name}: {why}\n").as_bytes())
}

/// True in CI, according to the environment. In CI, no test may be skipped.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// The output of a program for `--version`, or of kubectl for its own version command; `None` if the program does not
/// run.
fn version_of(path: &Path) -> Option<String> {
    let asked = [&["--version"][..], &["version", "--client"]].into_iter();
    let mut outputs = asked.filter_map(|arguments| Command::new(path).args(arguments).output().ok());
    let output = outputs.find(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The major and minor number in a line such as `etcd Version: 3.6.8`, which follow `before`.
fn version_after(before: &str, text: Option<String>) -> Option<(u32, u32)> {
    let version = text
        .as_ref()?
        .lines()
        .find_map(|line| line.strip_prefix(before))?
        .trim();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Creates a temporary folder with an empty file `etcd`.
    fn folder_with_etcd(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("calipam-tool-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("temporary folder");
        fs::write(folder.join("etcd"), "").expect("empty file");
        folder
    }

    fn accepts(tool: Tool, version: &str) -> bool {
        tool.accepts(|| Some(version.to_owned()))
    }

    #[test]
    fn versions_of_etcd_are_read() {
        let version = |text: &str| version_after("etcd Version:", Some(text.to_owned()));
        let text = "etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8\n";
        assert_eq!(version(text), Some((3, 6)));
        assert_eq!(version("etcd Version: 3.10.0-rc.1"), Some((3, 10)));
        assert_eq!(version("Kubernetes v1.36.3"), None);
        assert_eq!(version("etcd Version: three"), None);
    }

    #[test]
    fn each_etcd_program_takes_its_own_versions() {
        let (current, old) = ("etcd Version: 3.6.8", "etcd Version: 3.4.23");
        assert!(accepts(Tool::Etcd, current) && !accepts(Tool::Etcd, old));
        assert!(accepts(Tool::OldEtcd, old) && !accepts(Tool::OldEtcd, current));
        assert!(accepts(Tool::OldEtcd, "etcd Version: 3.5.16"));
        assert!(!accepts(Tool::OldEtcd, "etcd Version: 3.3.25"));
        assert!(accepts(Tool::KubeApiserver, "Kubernetes v1.36.3"));
        assert!(accepts(
            Tool::Kubectl,
            "Client Version: v1.36.3\nKustomize Version: v5.8.1\n"
        ));
        assert!(!accepts(Tool::Kubectl, "Client Version: v1.25.0\n") && !accepts(Tool::Kubectl, current));
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
        let versions = |file: &Path| {
            Some(format!(
                "etcd Version: {}",
                if file == on_path { "3.4.23" } else { "3.6.8" }
            ))
        };
        assert_eq!(
            Tool::Etcd.search(None, environment, versions),
            Ok(assets.join("etcd"))
        );
        assert_eq!(
            Tool::OldEtcd.search(None, environment, versions),
            Ok(on_path.clone())
        );
        let missing = Tool::KubeApiserver
            .search(None, environment, versions)
            .expect_err("there is none");
        assert!(
            missing.contains("CALIPAM_TEST_KUBE_APISERVER (not set)"),
            "{missing}"
        );
        fs::remove_dir_all(path).expect("clean up");
        fs::remove_dir_all(assets).expect("clean up");
    }

    #[test]
    fn messages_name_only_places_and_packages_that_exist() {
        let missing = Tool::Zsh
            .search(None, |_| None, |_| None)
            .expect_err("there is no PATH");
        assert_eq!(
            missing.to_string(),
            "no zsh; looked at: PATH, KUBEBUILDER_ASSETS (not set)"
        );
        assert_eq!(
            Tool::Jv.missing(),
            "jv is missing; `cargo xtask test` installs it"
        );
    }

    #[test]
    fn a_variable_that_names_no_file_is_an_error_even_where_another_one_is_there() {
        let path = folder_with_etcd("variable");
        let environment = |name: &str| match name {
            "CALIPAM_TEST_ETCD" => Some(OsString::from("/nowhere/etcd")),
            "PATH" => Some(path.clone().into_os_string()),
            _ => None,
        };
        let missing = Tool::Etcd
            .search(None, environment, |_| Some("etcd Version: 3.6.8".to_owned()))
            .expect_err("no such file");
        assert_eq!(
            missing,
            "no etcd 3.6 or newer; looked at: CALIPAM_TEST_ETCD=/nowhere/etcd (no such file)"
        );
        fs::remove_dir_all(path).expect("clean up");
    }
}
