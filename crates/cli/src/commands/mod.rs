//! The commands of the program, one module each, and the code that they share.

pub(crate) mod check;
mod completion;
pub(crate) mod diff;
mod explain;
pub(crate) mod export;
pub(crate) mod history;
mod install_links;
mod journals;
mod migrate;
mod record;
mod release;
pub(crate) mod repair;
mod requests;
mod serve;
pub(crate) mod show;
mod simulate;
mod undo;
mod version;

pub use self::install_links::MAN_PAGES;

use std::fmt::Display;
use std::io::{self, Write as _};

use calipam_datastore::budget::SILENCE;
use calipam_datastore::log::Printer;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};

use crate::applet::Applet;
use crate::args::{Cli, Command, Global, IpamCommand, PrintingArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::format::Format;
use crate::render::text::escape;
use crate::watch;

/// The commands that take several clusters.
const COMMANDS_ON_FLEETS: [&str; 5] = ["check", "show", "diff", "history", "export"];

/// Runs a command. `name` is the name of the command.
pub(crate) fn run(cli: Cli, name: &str, applet: Applet, console: &Console) -> Result<Outcome> {
    let Cli { global, command } = cli;
    start_log(console);
    console.format.require_one_of(Format::of_command(name), name)?;
    if global.names_several() && !COMMANDS_ON_FLEETS.contains(&name) {
        let message = format!("--context names several clusters, but `{name}` works on one");
        return Err(Failure::usage(message).hint(
            "`check`, `show`, `diff`, `history` and `export` take several; repairs work on one cluster at a time",
        ));
    }
    match command {
        Command::Ipam(command) | Command::BelowIpam { command } => run_ipam(command, global, console),
        Command::Completion(args) => completion::run(&args, applet, console),
        Command::InstallLinks(args) => install_links::run(&args, console),
        Command::Version(args) => version::run(&args, &global, console),
    }
}

/// Runs a command of `calipam`.
fn run_ipam(command: IpamCommand, global: Global, console: &Console) -> Result<Outcome> {
    match command {
        IpamCommand::Check(args) => run_printing(&args.printing, &global, console, |console| {
            check::run(&args, &global, console)
        }),
        IpamCommand::Show(args) => run_printing(&args.printing, &global, console, |console| {
            show::run(&args, &global, console)
        }),
        IpamCommand::Diff(args) => diff::run(&args, &global, console),
        IpamCommand::History(args) => history::run(&args, &global, console),
        IpamCommand::Release(args) => release::run(&args, &global, console),
        IpamCommand::Rebuild(args) => requests::rebuild(&args, (&global, console)),
        IpamCommand::Split(args) => requests::split(&args, (&global, console)),
        IpamCommand::Migrate(args) => migrate::run(&args, &global, console),
        IpamCommand::Configure(args) => requests::configure(&args, (&global, console)),
        IpamCommand::Assign(args) => requests::assign(&args, (&global, console)),
        IpamCommand::Simulate(args) => simulate::run(&args, &global, console),
        IpamCommand::Undo(args) => undo::run(&args, &global, console),
        IpamCommand::Serve(args) => serve::run(args, global, console),
        IpamCommand::Export(args) => export::run(&args, &global, console),
        IpamCommand::Record(args) => record::run(&args, &global, console),
        IpamCommand::Explain(args) => explain::run(&args, &global, console),
    }
}

/// Runs a command with the options for tables and, with `--watch`, again and again. Refuses them where they would have
/// no effect.
fn run_printing(
    args: &PrintingArgs,
    global: &Global,
    console: &Console,
    run: impl Fn(&Console) -> Result<Outcome>,
) -> Result<Outcome> {
    let changes_table = args.no_headers || args.sort_by.is_some();
    if changes_table && !console.format.is_for_people() {
        return Err(Failure::usage("--no-headers and --sort-by only apply to tables")
            .hint("select and sort the output of `-o json` with jq: docs/recipes.md"));
    }
    let mut console = console.clone();
    if changes_table {
        console.page.rows_only = args.no_headers;
        // A page is copied everywhere, so it borrows the column. This leak happens only once per process.
        console.page.sort_by = args.sort_by.clone().map(|column| &*column.leak());
    }

    let Some(every) = args.watch else {
        return run(&console);
    };
    check_watch(global, console.format)?;
    watch::repeat(every, global, &console, run)
}

/// Refuses `--watch` for data that can be read only once, and for formats whose documents are not repeated.
fn check_watch(global: &Global, format: Format) -> Result<()> {
    if global.datastore.as_deref() == Some("-") {
        return Err(Failure::usage("stdin can be read only once: name the file"));
    }
    if !Format::of_command("show").contains(&format) {
        return Err(Failure::usage(
            "--watch prints tables, names, YAML and JSON; `serve` has the other formats",
        ));
    }
    Ok(())
}

/// Starts the log on stderr. It says which server does not answer. With `-vv`, it also contains requests; with `-vvv`,
/// also messages of libraries, down to TLS frames.
pub(crate) fn start_log(console: &Console) {
    let (level, shown): (_, fn(&Metadata<'_>) -> bool) = match console.verbose {
        0 | 1 => (LevelFilter::WARN, is_about_silence),
        2 => (LevelFilter::DEBUG, is_own_or_warning),
        _ => (LevelFilter::TRACE, |_| true),
    };
    let console = console.clone();
    let print = move |metadata: &Metadata<'_>, text: &str| match metadata.target() {
        SILENCE => console.note(text),
        target => write_log_line(metadata.level(), target, text),
    };
    // This fails only in tests, which may have set another logger.
    let _ = tracing::subscriber::set_global_default(Printer { level, shown, print });
    if level == LevelFilter::TRACE && log::set_logger(&Libraries).is_ok() {
        log::set_max_level(log::LevelFilter::Trace);
    }
}

/// True for the message that a server does not answer.
fn is_about_silence(message: &Metadata<'_>) -> bool {
    message.target() == SILENCE
}

/// True for the messages of calipam and the warnings of libraries.
fn is_own_or_warning(message: &Metadata<'_>) -> bool {
    // The most important level is the lowest one.
    message.target().starts_with("calipam") || *message.level() <= Level::WARN
}

fn write_log_line(level: &dyn Display, target: &str, text: &str) {
    // If stderr is closed, `eprintln!` would panic.
    let _ = writeln!(io::stderr(), "{level:>5} {target}: {}", escape(text));
}

/// The log of libraries that do not use tracing, such as the TLS library.
struct Libraries;

impl log::Log for Libraries {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        write_log_line(&record.level(), record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}
