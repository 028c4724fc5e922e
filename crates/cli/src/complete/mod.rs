//! Completion of command lines with clap_complete, for shells and kubectl. It works for every name of the program
//! except `calicoctl`.
//!
//! A shell runs the program with a variable such as `COMPLETE=bash` and the words of the line ([`shells`]). kubectl
//! runs `kubectl_complete-ipam` ([`cobra`]). Both complete the same [`view`] of the command line's definition, in which
//! options suggest [`values`] from the cluster that the line names.

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
use crate::applet::Applet;

/// The variable that names the shell.
const VARIABLE: &str = "COMPLETE";
/// The separator between the program and the words of the line to complete.
const WORDS: &str = "--";

/// Answers a request for suggestions from a shell or kubectl. Returns `None` for any other command line.
///
/// Ignores `COMPLETE` if it names no shell, or if there are arguments and the first is not `--`. This way, a stray
/// variable never makes a check print a completion script.
pub(crate) fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    if let Some((applet, words)) = kubectl_request(program, rest) {
        return Some(answer_kubectl(applet, words));
    }

    let applet = Applet::of(program.clone());
    let value = std::env::var_os(VARIABLE)?;
    let shell = Path::new(&value).file_stem().and_then(OsStr::to_str)?.to_owned();
    SHELLS.completer(&shell)?;
    let Some((first, words)) = rest.split_first() else {
        // Without arguments, the script that registers completion is asked for.
        return Some(answer_shell(applet, Request::default(), arguments));
    };
    if first != WORDS {
        return None;
    }
    be_silent();
    let request = Request::from_shell(&shell, words);
    Some(answer_shell(applet, request, arguments))
}

/// Returns the plugin for which kubectl requests suggestions, and the words after it; `None` for any other call.
fn kubectl_request<'a>(program: &OsStr, rest: &'a [OsString]) -> Option<(Applet, &'a [OsString])> {
    if let Some(applet) = Applet::completed_by(program) {
        return Some((applet, rest));
    }
    // Cobra's names of the command that completes a line, which kubectl's scripts call.
    let (first, words) = rest.split_first()?;
    if first == "__complete" || first == "__completeNoDesc" {
        return Some((Applet::of(program.to_owned()), words));
    }
    None
}

/// Prints the suggestions for a request or, if `arguments` have no words, the script that registers completion.
fn answer_shell(applet: Applet, request: Request, arguments: &[OsString]) -> ExitCode {
    let name = applet.executable();
    let folder = std::env::current_dir().ok();
    let definition = || view::build(applet, &request);
    let completion = CompleteEnv::with_factory(definition)
        .var(VARIABLE)
        .bin(name)
        .shells(SHELLS);
    match completion.try_complete(arguments.iter().cloned(), folder.as_deref()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints the suggestions for a plugin in the form that kubectl reads.
fn answer_kubectl(applet: Applet, words: &[OsString]) -> ExitCode {
    be_silent();
    let request = Request::from_words(words);
    match cobra::print(view::build(applet, &request), &request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Keeps other output and questions off the terminal, including those of credential plugins. A new session keeps
/// plugins from opening the terminal by name.
#[cfg(unix)]
fn be_silent() {
    let _ = rustix::process::setsid();
    if let Ok(nothing) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

#[cfg(not(unix))]
fn be_silent() {}
