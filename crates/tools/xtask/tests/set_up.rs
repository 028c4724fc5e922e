//! `cargo xtask test` on machines without the tools that the tests need. Fake programs log their calls.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The variables that name servers. Each is set to an existing file, so that nothing is built or unpacked.
const SERVERS: [&str; 7] = [
    "CALIPAM_TEST_ETCD",
    "CALIPAM_TEST_ETCD_34",
    "CALIPAM_TEST_KUBE_APISERVER",
    "CALIPAM_TEST_KUBECTL",
    "CALIPAM_TEST_PROMTOOL",
    "CALIPAM_TEST_JV",
    "CALIPAM_TEST_CNI_CLIENT",
];

const PACKAGES: [&str; 9] = [
    "dpkg",
    "groff-base",
    "jq",
    "rpm",
    "strace",
    "systemd",
    "zsh",
    "fish",
    "chromium-headless-shell",
];

/// A fake cargo with one test, which needs zsh.
const CARGO: &str = r#"
case "$*" in
    "test --no-run"*) ;;
    test*) [ -f "$HERE/zsh" ] || echo "completes: zsh is missing; INSTALL" >> "$CALIPAM_TEST_LEFT_OUT" ;;
esac"#;

/// A fake apt-get that creates the program of the package.
const APT_GET: &str = r#"
for package; do :; done
case "$package" in
    dpkg) program=dpkg-deb ;;
    groff-base) program=groff ;;
    systemd) program=systemd-analyze ;;
    *) program="$package" ;;
esac
: > "$HERE/$program""#;

/// A folder with the programs of a machine, and the log of their calls.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// Creates a machine whose apt-get can install packages. `user` is the ID of the user.
    fn new(user: &str) -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        machine.add("cargo", CARGO);
        machine.add("apt-get", APT_GET);
        machine.add("id", &format!("echo {user}"));
        symlink("/usr/bin/env", machine.path().join("env")).unwrap();
        machine
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Adds a program that logs its call, and runs a script.
    fn add(&self, name: &str, script: &str) {
        let path = self.path().join(name);
        let log = "echo \"${0##*/} $*\" >> \"$HERE/log\"";
        fs::write(&path, format!("#!/bin/sh\n{log}\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, ci: bool) -> (bool, String) {
        let mut task = Command::new(env!("CARGO_BIN_EXE_xtask"));
        task.args(["test", "--", "completes"])
            .env_clear()
            .env("PATH", self.path())
            .env("HERE", self.path());
        task.env("CARGO", self.path().join("cargo"))
            .env("CC", "cc")
            .env("PROTOC", "protoc");
        task.envs(SERVERS.map(|name| (name, self.path().join("cargo"))));
        if ci {
            task.env("CI", "true");
        }
        let Output { status, stderr, .. } = task.output().unwrap();
        (status.success(), String::from_utf8(stderr).unwrap())
    }

    /// The calls so far, one per line.
    fn calls(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }
}

/// True if bash-completion is installed. It is a file and not a program, so the fake apt-get cannot install it.
fn has_bash_completion() -> bool {
    Path::new("/usr/share/bash-completion/bash_completion").is_file()
}

#[test]
fn root_installs_each_package_before_the_tests_are_built() {
    let machine = Machine::new("0");
    let (success, said) = machine.run(has_bash_completion());
    assert!(success, "{said}");
    let calls = machine.calls();
    let mut rest = calls.as_str();
    let installs = PACKAGES.map(|package| format!("install -qy --no-install-recommends {package}\n"));
    let last = ["cargo test --no-run completes\n", "cargo test completes\n"].map(str::to_owned);
    for call in ["update -q\n".to_owned()].iter().chain(&installs).chain(&last) {
        (_, rest) = rest
            .split_once(call.as_str())
            .unwrap_or_else(|| panic!("{call} is not in turn: {calls}"));
        assert!(
            !call.starts_with("install") || said.contains(call.trim()),
            "{call} is not printed: {said}"
        );
    }
    assert!(
        said.contains("DEBIAN_FRONTEND=noninteractive") && !said.contains("left out: completes"),
        "{said}"
    );
}

#[test]
fn a_user_with_sudo_installs_by_it() {
    let machine = Machine::new("1000");
    machine.add("sudo", "shift; PATH=\"$PATH:/usr/bin:/bin\" exec \"$@\"");
    machine.add("true", "");
    let (success, said) = machine.run(false);
    assert!(success && !said.contains("left out: completes"), "{said}");
    let calls = machine.calls();
    assert!(
        calls.contains("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"),
        "{calls}"
    );
}

#[test]
fn tests_of_missing_tools_are_skipped_and_listed() {
    let (user, wanting) = (Machine::new("1000"), Machine::new("1000"));
    wanting.add("sudo", "exit 1");
    let (failing, without) = (Machine::new("0"), Machine::new("0"));
    failing.add("apt-get", "echo no network >&2; exit 100");
    fs::remove_file(without.path().join("apt-get")).unwrap();
    for machine in [user, wanting, failing, without] {
        let (success, said) = machine.run(false);
        assert!(success, "{said}");
        let last = said.lines().last();
        assert_eq!(
            last,
            Some("left out: completes: zsh is missing; INSTALL"),
            "{said}"
        );
        assert!(
            said.contains("zsh is missing; `apt-get install -y zsh` installs it"),
            "{said}"
        );
        assert!(machine.calls().contains("cargo test completes\n"), "{said}");
    }
}

#[test]
fn in_ci_it_fails_before_anything_is_built() {
    let machine = Machine::new("1000");
    let (success, said) = machine.run(true);
    assert!(
        !success && said.contains("with CI=true no test may be left out"),
        "{said}"
    );
    assert!(!machine.calls().contains("cargo"), "{said}");
}
