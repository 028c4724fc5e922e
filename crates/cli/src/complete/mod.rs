//! Completion of command lines: one engine, clap_complete's, behind every shell, every name of the program and kubectl.
//!
//! A shell runs the program with `COMPLETE=bash` and the words of the line ([`shells`]), kubectl runs
//! `kubectl_complete-ipam` ([`cobra`]). Both complete the same [`view`] of the command line's definition, whose options
//! have the [`values`] of the cluster that the line names.

mod cluster;
mod cobra;
mod journals;
mod line;
mod request;
mod shells;
mod values;
mod view;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap_complete::env::CompleteEnv;

pub(crate) use self::cobra::plugin_scripts;
use self::request::Request;
pub(crate) use self::shells::{SHELLS, registration};
use self::values::Values;
use crate::applet::Applet;

/// Names the shell that asks.
const VARIABLE: &str = "COMPLETE";
/// What is between the program and the words of the line that a shell asks about.
const WORDS: &str = "--";

/// Answers a shell or kubectl that asks for suggestions; `None` if the program was called for something else.
///
/// A value of `COMPLETE` that names no shell is not ours, and a call with arguments is a question only if `--`
/// begins them, as no other call does: a variable that is set by chance never turns a check into a script.
pub(crate) fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    if let Some(applet) = Applet::completed_by(program) {
        return Some(answer_kubectl(applet, rest));
    }
    let applet = Applet::of(program.clone());
    if let Some(("__complete" | "__completeNoDesc", words)) =
        rest.split_first().and_then(|(first, words)| Some((first.to_str()?, words)))
    {
        return Some(answer_kubectl(applet, words));
    }

    let shell = shell_that_asks()?;
    match rest.split_first() {
        None => {}
        Some((first, words)) if first == WORDS => {
            be_silent();
            return Some(answer_shell(applet, Request::of_shell(&shell, words), arguments));
        }
        Some(_) => return None,
    }
    Some(answer_shell(applet, Request::default(), arguments))
}

/// The shell that the environment names, if it names one that there is.
fn shell_that_asks() -> Option<String> {
    let value = std::env::var_os(VARIABLE)?;
    let name = Path::new(&value).file_stem().and_then(OsStr::to_str)?.to_owned();
    SHELLS.completer(&name).map(|_| name)
}

/// Prints suggestions, or the script by which the shell comes to ask.
fn answer_shell(applet: Applet, request: Request, arguments: &[OsString]) -> ExitCode {
    let name = applet.executable();
    let folder = std::env::current_dir().ok();
    let definition = || view::of(applet, &request, &Values::new(applet, &request));
    let asked = CompleteEnv::with_factory(definition).var(VARIABLE).bin(name).shells(SHELLS);
    match asked.try_complete(arguments.iter().cloned(), folder.as_deref()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_kubectl(applet: Applet, words: &[OsString]) -> ExitCode {
    be_silent();
    let request = Request::of_words(words);
    let command = view::of(applet, &request, &Values::new(applet, &request));
    match cobra::print(command, &request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Lets nothing but suggestions come to the terminal, and nothing be asked there: not by this process and not by a
/// credential plugin that it starts. Without a session of its own a plugin could open the terminal by name.
#[cfg(unix)]
fn be_silent() {
    let _ = rustix::process::setsid();
    if let Ok(nothing) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

#[cfg(not(unix))]
fn be_silent() {}
