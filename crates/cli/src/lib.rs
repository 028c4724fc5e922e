//! The command line of calipam.
//!
//! [`main`] reads the command line, runs one of [`commands`](crate::commands), prints its result, and
//! turns the outcome into an exit code in one place: [`exit`](crate::exit).

mod applet;
mod args;
mod calicoctl;
mod commands;
mod complete;
mod connect;
mod console;
mod exit;
mod fleet;
mod format;
mod hints;
mod ignore;
mod operator;
mod output_file;
mod past;
mod preview;
mod progress;
mod render;
mod rerun;
mod watch;
mod watched;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::FromArgMatches;

pub use self::commands::MAN_PAGES;
use crate::applet::Applet;
use crate::args::{Cli, When};
use crate::console::Console;
use crate::exit::{Outcome, Result};

/// Runs the program under the name by which it was called, and returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = complete::answer(&arguments) {
        return code;
    }
    exit::report_panics();
    let program = std::env::args_os().next().unwrap_or_default();
    if Applet::of(program) == Applet::Calicoctl {
        return run_as_calicoctl();
    }

    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(exit::panicked()));
    let code = exit::code(&result);
    if let Err(failure) = &result {
        console::print_failure(failure, code, std::env::args_os().skip(1));
    }
    ExitCode::from(code)
}

/// Runs the program with calicoctl's command line and exit codes.
fn run_as_calicoctl() -> ExitCode {
    hints::remember_name(Applet::Calicoctl);
    let result = catch_unwind(AssertUnwindSafe(|| calicoctl::run(std::env::args_os())));
    match result {
        // A thread can panic without ending the command.
        Ok(code) if !exit::has_panicked() => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    }
}

/// Returns the definition of the command line, for man pages.
pub fn command() -> clap::Command {
    args::tidy(args::command())
}

/// Returns the file name and content of each completion script: the scripts that register completion in a shell, and
/// those that kubectl runs to complete a plugin.
pub fn completion_scripts() -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut scripts = Vec::new();
    for name in applet::Applet::ALL {
        for shell in complete::SHELLS.names() {
            if let Some(script) = complete::registration(shell, name) {
                scripts.push((format!("{}.{shell}", name.executable()), script));
            }
        }
    }
    for (name, text) in complete::plugin_scripts() {
        scripts.push((name.to_owned(), text.into_bytes()));
    }
    scripts.into_iter()
}

/// Runs the command of the command line, and prints its failure.
fn run() -> Result<Outcome> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before clap, whose errors are colored as well.
    When::of_command_line(&arguments).apply();
    let applet = Applet::of(arguments.first().cloned().unwrap_or_default());
    hints::remember_name(applet);
    let mut definition = args::tidy(applet.command());
    if args::asks_for_help(&arguments) {
        definition = args::with_help(definition);
    }
    let cli = definition
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| {
            hints::remember_call(&definition, &matches);
            Ok((Cli::from_arg_matches(&matches)?, command_name(&matches)))
        });
    let (cli, name) = match cli {
        Ok(cli) => cli,
        Err(error) => return exit::print_clap_text(&args::name_commands(&definition, error)),
    };
    let console = Console::new(&cli.global);
    let result = commands::run(cli, &name, applet, &console);
    if let Err(failure) = &result {
        console.failure(failure);
    }
    result
}

/// Returns the command's name, without `ipam` before it.
fn command_name(matches: &clap::ArgMatches) -> String {
    match matches.subcommand() {
        Some(("ipam", below)) => command_name(below),
        Some((name, _)) => name.to_owned(),
        None => String::new(),
    }
}
