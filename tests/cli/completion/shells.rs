//! Completion in real shells on a terminal, with the scripts of packages, under each name of the program.

use std::fs;
use std::path::Path;

use calipam_testkit::servers::{Tool, find, left_out};

use super::super::program::command;
use super::super::pty::Session;
use super::{NAMES, link_all, scripts};

/// A shell on a terminal, a folder with links for all names of the program, and a folder with their completion scripts.
struct Shell {
    session: Session,
    folder: tempfile::TempDir,
    scripts: tempfile::TempDir,
}

/// A mark at the end of each word in the output of the shell. No typed line contains it.
const MARK: &str = "<>";

impl Shell {
    /// Starts a shell and runs some lines in it.
    fn start(program: &str, setup: &str) -> Self {
        let options = match program {
            "bash" => "--norc --noprofile -i",
            "zsh" => "-f -i",
            _ => "--no-config -i",
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = tempfile::tempdir().unwrap();
        link_all(folder.path());
        let scripts = scripts();
        autoloaded(folder.path(), scripts.path());
        let mut shell = command("setsid");
        shell.args(["--ctty", "--wait", program]).args(options.split(' '));
        shell
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8");
        shell.env("PATH", format!("{}:{path}", folder.path().display()));
        let mut shell = Self {
            session: Session::start(&mut shell),
            folder,
            scripts,
        };
        let setup = setup.replace("SCRIPTS", shell.scripts.path().to_str().unwrap());
        shell.session.send(&format!("{setup}\nprintf '%s{MARK}' ready\n"));
        shell.session.wait_for(&format!("ready{MARK}"));
        shell
    }

    /// Types a line, completes it, and returns the resulting words.
    fn completed(&mut self, line: &str) -> String {
        self.session.send(&format!("{line}\t"));
        self.session.settle();
        // Inserts `printf` at the start of the line, to print the words instead of running them.
        self.session
            .send(&format!("\u{1}printf '%s{MARK}' = \u{5} end\n"));
        let shown = self.session.wait_for(&format!("end{MARK}"));
        let begin = shown
            .rfind(&format!("={MARK}"))
            .unwrap_or_else(|| panic!("{shown}"));
        let words = shown[begin..].split(MARK).skip(1);
        words
            .take_while(|word| *word != "end")
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Asserts that the shell completes a line to these words. A busy machine may need several attempts.
    fn completes(&mut self, line: &str, words: &str) {
        let attempts: Vec<String> = (0..5)
            .map(|_| self.completed(line))
            .take_while(|it| it != words)
            .collect();
        assert!(attempts.len() < 5, "{line} -> {words}: {attempts:?}");
    }

    /// Completes a line, waits until the shell lists `entry`, and returns the output. Then clears the line.
    fn listed(&mut self, line: &str, entry: &str) -> String {
        self.session.send(&format!("{line}\t"));
        self.session.settle();
        self.session.send("\t");
        let mut shown = self.session.wait_for(entry);
        self.session.settle();
        shown.push_str(&self.session.shown());
        // Closes the list of suggestions, and clears the line.
        for key in ["\u{3}", "\u{15}"] {
            self.session.send(key);
            self.session.settle();
        }
        shown
    }

    /// Tests the completions that are the same in each shell under each name.
    fn completes_each_name(&mut self) {
        fs::write(self.folder.path().join("my ignored.txt"), "").unwrap();
        for name in NAMES {
            let ipam = if name == "kubectl-calico" { " ipam" } else { "" };
            let called = format!("{name}{ipam}");
            self.completes(&format!("{called} sho"), &format!("{called} show"));
            for (typed, becomes) in [
                ("check --rule leaked-a", "check --rule leaked-address"),
                ("check --rule=leaked-a", "check --rule=leaked-address"),
                (
                    "check --rule orphan-handle,leaked-a",
                    "check --rule orphan-handle,leaked-address",
                ),
                (
                    "check --skip-rule=orphan-handle,leaked-a",
                    "check --skip-rule=orphan-handle,leaked-address",
                ),
                ("explain leaked-a", "explain leaked-address"),
                ("check --fail-on nev", "check --fail-on never"),
                ("check --ignore my", "check --ignore my ignored.txt"),
            ] {
                self.completes(&format!("{called} {typed}"), &format!("{called} {becomes}"));
            }
            let list = self.listed(&format!("{called} "), "rebuild");
            for command in ["check", "release", "rebuild"] {
                assert!(list.contains(command), "{command}: {list}");
            }
            assert!(
                !list.contains("--output") && !list.contains("__complete"),
                "{list}"
            );
        }
    }
}

/// Creates the folder from which zsh loads a completion script when it is first needed.
fn autoloaded(folder: &Path, scripts: &Path) {
    fs::create_dir(folder.join("functions")).unwrap();
    for name in NAMES {
        let script = scripts.join(format!("{name}.zsh"));
        fs::copy(script, folder.join("functions").join(format!("_{name}"))).unwrap();
    }
}

/// kubectl, on a terminal, runs the links in `PATH` to complete the arguments of its plugins.
#[test]
fn kubectl_completes_its_plugins_in_each_shell() {
    if left_out(&[Tool::BashCompletion, Tool::Zsh, Tool::Fish]) {
        return;
    }
    let kubectl = find(Tool::Kubectl).unwrap();
    let kubectl = kubectl.parent().unwrap().display().to_string();
    let helper = "/usr/share/bash-completion/bash_completion";
    for (shell, setup) in [
        (
            "bash",
            format!("PATH=$PATH:{kubectl}; PS1='$ '; source {helper}; source <(kubectl completion bash)"),
        ),
        (
            "zsh",
            format!("PATH=$PATH:{kubectl}; {ZSH}; source <(kubectl completion zsh)"),
        ),
        (
            "fish",
            format!("set -x PATH $PATH {kubectl}; kubectl completion fish | source"),
        ),
    ] {
        let mut shell = Shell::start(shell, &setup);
        for (typed, becomes) in [
            ("kubectl ipam sho", "kubectl ipam show"),
            (
                "kubectl ipam check --rule leaked-a",
                "kubectl ipam check --rule leaked-address",
            ),
            (
                "kubectl ipam check --rule=leaked-a",
                "kubectl ipam check --rule=leaked-address",
            ),
            (
                "kubectl ipam explain leaked-a",
                "kubectl ipam explain leaked-address",
            ),
            ("kubectl calico ipam rel", "kubectl calico ipam release"),
            (
                "kubectl calico ipam check --fail-on nev",
                "kubectl calico ipam check --fail-on never",
            ),
        ] {
            shell.completes(typed, becomes);
        }
    }
}

const ZSH: &str = "PS1='$ '; autoload -Uz compinit; compinit -u -D";

#[test]
fn bash_completes_each_name() {
    let setup = "PS1='$ '; for script in SCRIPTS/*.bash; do source $script; done";
    Shell::start("bash", setup).completes_each_name();
}

#[test]
fn zsh_completes_each_name_with_scripts_that_are_sourced_or_loaded_by_itself() {
    if left_out(&[Tool::Zsh]) {
        return;
    }
    let sourced = format!("{ZSH}; for script in SCRIPTS/*.zsh; do source $script; done");
    for setup in [sourced, format!("fpath=(~/functions $fpath); {ZSH}")] {
        Shell::start("zsh", &setup).completes_each_name();
    }
}

#[test]
fn fish_completes_each_name() {
    if left_out(&[Tool::Fish]) {
        return;
    }
    let setup = "for script in SCRIPTS/*.fish; source $script; end";
    Shell::start("fish", setup).completes_each_name();
}
