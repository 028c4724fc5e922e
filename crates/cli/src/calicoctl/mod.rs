//! calipam called as `calicoctl`: the `ipam` commands, the datastore lock and `version`, with calicoctl's options,
//! output lines, report file and exit codes (facts 5.2, 7.4 to 7.8), so scripts keep working. Findings and writes are
//! calipam's; stderr reports any difference. All other commands run the real calicoctl ([`real`]).

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
use calipam_workflow::{Criteria, Executed, FailureForm};
use clap::{CommandFactory, FromArgMatches};
use jiff::SignedDuration;

use self::args::{Calicoctl, Command, Datastore, DatastoreCommand, IpamCommand, MigrateCommand};
use crate::args::Global;
use crate::commands::repair;
use crate::console::Console;
use crate::exit::{self, Failure, Outcome};
use crate::hints;

/// Runs a calicoctl command. Returns exit code 0 or 1; the real calicoctl exits with its own.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> u8 {
    let parsed = command().try_get_matches_from(arguments).and_then(|m| Calicoctl::from_arg_matches(&m));
    let call = match parsed {
        Ok(call) => call,
        Err(error) => return u8::from(!matches!(exit::command_line(&error), Ok(Outcome::Clean))),
    };
    let global = call.global();
    hints::remember_connection(&global);
    let console = Console { progress: false, ..Console::new(&global) };
    match carry_out(&call.command, &global, &console) {
        Ok(()) => 0,
        Err(failure) => {
            console.failure(&failure);
            1
        }
    }
}

/// The definition of the command line.
pub(crate) fn command() -> clap::Command {
    Calicoctl::command()
}

fn carry_out(command: &Command, global: &Global, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Ipam(ipam) => match &ipam.command {
            IpamCommand::Check(args) => check::run(args, global, console),
            IpamCommand::Show(args) => show::run(args, global, console),
            IpamCommand::Release(args) => release::run(args, global, console),
            IpamCommand::Split(args) => split::run(args, global, console),
            IpamCommand::Configure(args) => configure::run(args, global, console),
        },
        Command::Datastore(Datastore { command: DatastoreCommand::Migrate(migrate) }) => match &migrate
            .command
        {
            MigrateCommand::Lock => datastore::run(LockAction::Take, global, console),
            MigrateCommand::Unlock => datastore::run(LockAction::Restore, global, console),
            MigrateCommand::Other(words) => real::run(&format!("datastore migrate {}", words[0].display())),
        },
        Command::Version(args) if args.poll.is_some() => real::run("version --poll"),
        Command::Version(_) => version::run(global, console),
        Command::Other(words) => real::run(&words[0].to_string_lossy()),
    }
}

/// Creates a failure in calicoctl's words, which are printed without a label.
fn said(message: impl Into<String>) -> Failure {
    Failure::refused(message).form(FailureForm::Plain)
}

/// Prints the lines of a command on stdout.
fn print(text: &str, console: &Console) -> Result<(), Failure> {
    console.data(|out| out.write_all(text.as_bytes()))
}

/// Returns fixed criteria, since calicoctl has no options for them.
fn criteria() -> Criteria {
    Criteria { options: calipam_check::Options::default(), recheck_after: SignedDuration::from_secs(5) }
}

/// Prints the conflicts of a run and the path of its journal on stderr. Fails if anything was not done.
fn finish(run: Option<Executed>, console: &Console) -> Result<(), Failure> {
    let is_partial = false;
    match repair::outcome(run, is_partial, console)? {
        Outcome::Clean => Ok(()),
        _ => Err(said("error: something had changed since the read, and not everything was done")),
    }
}
