//! What the program can do: one file for each command.

mod check;
mod complete;
mod completion;
mod explain;
mod export;
mod install_links;
mod rebuild;
mod release;
mod repair;
mod show;
mod undo;

use crate::applet::Applet;
use crate::args::{Cli, Command};
use crate::exit::{Failure, Outcome};
use crate::output::Console;

/// Does what the command line says.
pub fn run(cli: Cli, applet: Applet, console: &Console) -> Result<Outcome, Failure> {
    let Cli { global, command } = cli;
    start_log(global.verbose);
    match command.plain() {
        Command::Check(args) => check::run(&args, &global, console),
        Command::Show(args) => show::run(&args, &global, console),
        Command::Release(args) => release::run(&args, &global, console),
        Command::Rebuild(args) => rebuild::run(&args, &global, console),
        Command::Undo(args) => undo::run(&args, &global, console),
        Command::Export(args) => export::run(&args, &global, console),
        Command::Explain(args) => explain::run(&args, console),
        Command::Completion(args) => completion::run(&args, applet, console),
        Command::InstallLinks(args) => install_links::run(&args, console),
        Command::Complete(args) => complete::run(&args, console),
        Command::Ipam(_) => Err(Failure::usage("unknown command `ipam ipam`")),
    }
}

/// With `-vv` the libraries say on stderr what they do.
fn start_log(verbose: u8) {
    if verbose < 2 {
        return;
    }
    let level = if verbose == 2 { tracing::Level::DEBUG } else { tracing::Level::TRACE };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    // A second logger can only be one that a test has set.
    let _ = log.without_time().try_init();
}
