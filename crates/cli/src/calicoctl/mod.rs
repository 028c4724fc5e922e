//! calipam called as `calicoctl`: the `ipam` commands, the datastore lock and `version`, with calicoctl's options,
//! output lines, report file and exit codes (facts 5.2, 7.4 to 7.8), so that scripts keep working. The findings and
//! writes are calipam's own. Messages on stderr explain the differences. All other commands run the real calicoctl
//! ([`real`]).

mod args;
mod check;
mod configure;
mod datastore;
mod real;
mod release;
mod show;
mod split;
mod table;
mod version;

use std::ffi::OsString;

use calipam_repair::LockAction;
use calipam_workflow::{Access, Criteria, Executed, FailureForm};
use clap::{CommandFactory, FromArgMatches};

use self::args::{Calicoctl, Command, DatastoreCommand, IpamCommand, MigrateCommand};
use crate::args::{DEFAULT_SETTLE, Global};
use crate::commands::{repair, start_log};
use crate::console::Console;
use crate::exit::{self, Failure, Outcome, Result};
use crate::operator::Person;
use crate::{connect, hints};

/// Runs a calicoctl command. Returns exit code 0 or 1. If the real calicoctl runs the command, it determines the exit
/// code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> u8 {
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Calicoctl::from_arg_matches(&matches));
    let call = match parsed {
        Ok(call) => call,
        Err(error) => {
            // For clap, help and version are errors, too.
            let is_help = matches!(exit::print_clap_text(&error), Ok(Outcome::Clean));
            return u8::from(!is_help);
        }
    };
    let global = call.global();
    hints::remember_connection(&global.overrides());
    let console = Console {
        progress: false,
        ..Console::new(&global)
    };
    start_log(&console);
    let context = Call {
        global: &global,
        console: &console,
    };
    let Err(failure) = carry_out(&call.command, context) else {
        return 0;
    };
    console.failure(&failure);
    1
}

pub(crate) fn command() -> clap::Command {
    Calicoctl::command()
}

/// Carries out a command of calicoctl; those that calipam lacks, by the real calicoctl.
fn carry_out(command: &Command, call: Call<'_>) -> Result<()> {
    match command {
        Command::Ipam(IpamCommand::Check(args)) => check::run(args, call),
        Command::Ipam(IpamCommand::Show(args)) => show::run(args, call),
        Command::Ipam(IpamCommand::Release(args)) => release::run(args, call),
        Command::Ipam(IpamCommand::Split(args)) => split::run(args, call),
        Command::Ipam(IpamCommand::Configure(args)) => configure::run(args, call),
        Command::Datastore(DatastoreCommand::Migrate(command)) => carry_out_migrate(command, call),
        Command::Version(args) if args.poll.is_some() => real::run("version --poll"),
        Command::Version(_) => version::run(call),
        Command::Other(words) => real::run(&words[0].to_string_lossy()),
    }
}

/// Carries out a command of `calicoctl datastore migrate`.
fn carry_out_migrate(command: &MigrateCommand, call: Call<'_>) -> Result<()> {
    match command {
        MigrateCommand::Lock => datastore::run(LockAction::Take, call),
        MigrateCommand::Unlock => datastore::run(LockAction::Restore, call),
        MigrateCommand::Other(words) => real::run(&format!("datastore migrate {}", words[0].display())),
    }
}

/// Creates a failure with calicoctl's message, which is printed without a label.
fn plain_failure(message: impl Into<String>) -> Failure {
    Failure::refused(message).form(FailureForm::Plain)
}

/// Returns fixed criteria, since calicoctl has no options for them.
fn criteria() -> Criteria {
    Criteria {
        options: calipam_check::Options::default(),
        recheck_after: DEFAULT_SETTLE,
    }
}

/// The connection and the output of a calicoctl command.
#[derive(Clone, Copy)]
struct Call<'a> {
    global: &'a Global,
    console: &'a Console,
}

impl Call<'_> {
    /// Runs `work` with the datastore, and with a [`Person`] that represents the calling script.
    fn with<T>(self, work: impl AsyncFnOnce(Access<'_>) -> Result<T>) -> Result<T> {
        connect::with_person(self.global, &Person::script(self.console), work)
    }

    fn print(self, text: &str) -> Result<()> {
        self.console.data(|out| out.write_all(text.as_bytes()))
    }

    /// Prints the conflicts of a run and the path of its journal on stderr. Fails if any of its steps was not done.
    fn print_run(self, run: Option<Executed>) -> Result<()> {
        // What the plan skips has been dealt with before.
        let is_partial = false;
        match repair::print_run(run, is_partial, self.console)? {
            Outcome::Clean => Ok(()),
            _ => Err(plain_failure(
                "error: objects changed after they were read, so not everything was done",
            )),
        }
    }
}
