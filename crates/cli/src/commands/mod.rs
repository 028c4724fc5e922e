//! What the program can do: one file for each command.

mod assign;
mod check;
mod completion;
mod configure;
mod diff;
mod explain;
mod export;
mod history;
mod install_links;
mod journals;
mod rebuild;
mod release;
pub(crate) mod repair;
mod serve;
mod show;
mod simulate;
mod split;
mod undo;
mod version;

pub use self::install_links::MAN_PAGES;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::applet::Applet;
use crate::args::{Cli, Command, Global, IpamCommand, PrintingArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::format::Format;
use crate::watch;

/// Does what the command line says.
pub(crate) fn run(cli: Cli, applet: Applet, console: &Console) -> Result<Outcome, Failure> {
    let Cli { global, command } = cli;
    start_log(global.verbose);
    refuse_format(&command, console.format)?;
    match command {
        Command::Ipam(command) | Command::BelowIpam { command } => run_ipam(command, global, console),
        Command::Completion(args) => completion::run(&args, applet, console),
        Command::InstallLinks(args) => install_links::run(&args, console),
        Command::Version => version::run(console),
    }
}

fn run_ipam(command: IpamCommand, global: Global, console: &Console) -> Result<Outcome, Failure> {
    match command {
        IpamCommand::Check(args) if args.show_problem_ips && console.format == Format::Table => {
            let console = Console { format: Format::Wide, ..console.clone() };
            printing(&args.printing, &global, &console, |console| check::run(&args, &global, console))
        }
        IpamCommand::Check(args) => {
            printing(&args.printing, &global, console, |console| check::run(&args, &global, console))
        }
        IpamCommand::Show(args) => {
            printing(&args.printing, &global, console, |console| show::run(&args, &global, console))
        }
        IpamCommand::Diff(args) => diff::run(&args, &global, console),
        IpamCommand::History(args) => history::run(&args, &global, console),
        IpamCommand::Release(args) => release::run(&args, &global, console),
        IpamCommand::Rebuild(args) => rebuild::run(&args, &global, console),
        IpamCommand::Split(args) => split::run(&args, &global, console),
        IpamCommand::Configure(args) => configure::run(&args, &global, console),
        IpamCommand::Assign(args) => assign::run(&args, &global, console),
        IpamCommand::Simulate(args) => simulate::run(&args, &global, console),
        IpamCommand::Undo(args) => undo::run(&args, &global, console),
        IpamCommand::Serve(args) => serve::run(args, global, console),
        IpamCommand::Export(args) => export::run(&args, &global, console),
        IpamCommand::Explain(args) => explain::run(&args, console),
    }
}

/// Runs a command as its options say how tables are printed, and when again.
fn printing(
    args: &PrintingArgs,
    global: &Global,
    console: &Console,
    run: impl Fn(&Console) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let mut console = console.clone();
    if args.no_headers || args.sort_by.is_some() {
        if console.format.detail().is_none() {
            return Err(Failure::Usage {
                message: "--no-headers and --sort-by are about tables".into(),
                hint: Some("jq selects and sorts what `-o json` prints: docs/recipes.md".into()),
            });
        }
        console.page.rows_only = args.no_headers;
        // Once in a process.
        console.page.sort_by = args.sort_by.clone().map(|column| &*column.leak());
    }
    match args.watch {
        None => run(&console),
        Some(_) if global.datastore.as_deref() == Some("-") => {
            Err(Failure::usage("stdin can be read once only: name the file"))
        }
        Some(_) if console.format.is_for_reports() && console.format != Format::Name => {
            Err(Failure::usage("--watch prints tables, names, YAML and JSON; `serve` has the others"))
        }
        Some(every) => watch::repeat(every, global, &console, run),
    }
}

/// Refuses what only the report of a check can be printed as, or, for a page, a simulation.
fn refuse_format(command: &Command, format: Format) -> Result<(), Failure> {
    let prints = match command {
        Command::Ipam(command) | Command::BelowIpam { command } => match command {
            IpamCommand::Check(args) => !args.list_rules,
            IpamCommand::Show(_) => format == Format::Name,
            IpamCommand::Simulate(_) => format == Format::Html,
            _ => false,
        },
        _ => false,
    };
    if prints || !format.is_for_reports() {
        return Ok(());
    }
    let name = format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    Err(Failure::usage(format!("`-o {name}` is a format of `check` only")))
}

/// With `-vv` every request is said on stderr, with `-vvv` also what the libraries do, down to frames of TLS.
fn start_log(verbose: u8) {
    if verbose < 2 {
        return;
    }
    let shown = match verbose {
        2 => Targets::new().with_target("calipam", Level::DEBUG).with_default(Level::WARN),
        _ => Targets::new().with_default(Level::TRACE),
    };
    let log =
        tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(std::io::stderr).with_ansi(false);
    // Where stderr takes nothing, the log would say so on stderr, and that panics.
    let log = log.log_internal_errors(false).without_time().finish();
    // A second logger can only be one that a test has set.
    let _ = log.with(shown).try_init();
}
