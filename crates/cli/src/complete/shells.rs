//! The shells and their completion scripts.
//!
//! fish, elvish and PowerShell use clap_complete's scripts. bash needs its own script because it splits words such as
//! `--rule=l` and URLs at `=` and `:`. zsh needs its own script because its words contain quotes, and because an
//! autoloaded script must also answer the call that loads it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine;
use clap_complete::env::{self, EnvCompleter, Shells};

use super::VARIABLE;
use super::line;
use super::request::Request;
use crate::applet::Applet;

/// The shells with completion.
pub(crate) const SHELLS: Shells<'static> = Shells(&[&BASH, &env::Elvish, &env::Fish, &env::Powershell, &ZSH]);

/// Returns the script that registers completion for a name of the program in `PATH`; `None` for an unknown shell.
pub(crate) fn registration(shell: &str, applet: Applet) -> Option<Vec<u8>> {
    let name = applet.executable();
    let mut script = Vec::new();
    SHELLS
        .completer(shell)?
        .write_registration(VARIABLE, name, name, name, &mut script)
        .ok()?;
    Some(script)
}

/// The script for bash. It passes the line up to the cursor and the part that bash replaces, and reads one suggestion
/// per line.
const BASH_SCRIPT: &str = include_str!("bash.sh");

/// The script for zsh. It reads clap_complete's format: a value with escaped colons, a colon, and a description.
const ZSH_SCRIPT: &str = include_str!("zsh.sh");

/// Puts the names of a program into the template of a script. Names of functions cannot have a dash.
fn fill(script: &str, variable: &str, name: &str, bin: &str, completer: &str) -> String {
    let script = script
        .replace("NAME", &name.replace('-', "_"))
        .replace("BIN", bin);
    script
        .replace("COMPLETER", &crate::render::text::shell_word(completer))
        .replace("VARIABLE", variable)
}

/// A shell for which calipam has its own script.
struct Scripted {
    name: &'static str,
    script: &'static str,
    /// Prints the suggestions for a line.
    answer: Answer,
}

/// A function with the parameters of [`EnvCompleter::write_complete`].
type Answer = fn(&mut Command, Vec<OsString>, Option<&Path>, &mut dyn Write) -> io::Result<()>;

/// Completion for bash 3.2 and later.
const BASH: Scripted = Scripted {
    name: "bash",
    script: BASH_SCRIPT,
    answer: answer_bash,
};

/// Completion for zsh 5 and later.
const ZSH: Scripted = Scripted {
    name: "zsh",
    script: ZSH_SCRIPT,
    answer: |command, arguments, folder, out| env::Zsh.write_complete(command, arguments, folder, out),
};

/// Prints the suggestions for bash, each as the rest of the line that it replaces.
fn answer_bash(
    command: &mut Command,
    arguments: Vec<OsString>,
    folder: Option<&Path>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let line = line::parse_arguments(&arguments);
    let Request { words, index, .. } = Request::from_line(&line);
    for candidate in engine::complete(command, words, index, folder)? {
        let value = candidate.get_value().to_string_lossy();
        // Each suggestion must be a single line.
        if !value.contains('\n') {
            writeln!(out, "{}", line.inserted(&value))?;
        }
    }
    Ok(())
}

impl EnvCompleter for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is(&self, name: &str) -> bool {
        name == self.name
    }

    /// Writes the script that registers completion in this shell.
    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        out.write_all(fill(self.script, variable, name, bin, completer).as_bytes())
    }

    /// Prints the suggestions for a command line.
    fn write_complete(
        &self,
        command: &mut Command,
        arguments: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        (self.answer)(command, arguments, folder, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_for_one_name() {
        for shell in SHELLS.names() {
            let script = String::from_utf8(registration(shell, Applet::KubectlIpam).unwrap()).unwrap();
            assert!(
                script.contains("kubectl-ipam") && script.contains("COMPLETE"),
                "{shell}: {script}"
            );
            assert!(
                !script.contains("BIN") && !script.contains("COMPLETER"),
                "{shell}: {script}"
            );
        }
        assert!(registration("csh", Applet::Calipam).is_none());
    }
}
