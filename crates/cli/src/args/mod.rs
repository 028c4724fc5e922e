//! The command line: options and help.

mod address;
mod assign;
mod check;
mod check_options;
mod cni_config;
mod code;
mod configure;
mod diff;
pub(crate) mod duration;
mod fleet;
mod global;
mod history;
mod kubectl;
mod layout;
mod migrate;
mod moment;
mod printing;
mod rebuild;
mod release;
mod selection;
mod serve;
mod show;
mod simulate;
mod simulate_values;
mod split;
mod writing;

use std::path::PathBuf;

use calipam_history::keep::Keep;
use clap::ValueHint::{DirPath, FilePath};
use clap::{Args, CommandFactory, Parser, Subcommand};

pub(crate) use self::address::address;
pub(crate) use self::assign::AssignArgs;
pub(crate) use self::check::{CheckArgs, ReportArgs};
pub(crate) use self::check_options::CheckOptions;
pub(crate) use self::cni_config::CniConfigArgs;
pub(crate) use self::configure::ConfigureArgs;
pub(crate) use self::diff::{DiffArgs, StateName};
pub(crate) use self::fleet::FleetArgs;
pub(crate) use self::global::{Global, When, value_in_words};
pub(crate) use self::history::HistoryArgs;
pub(crate) use self::kubectl::CONNECTION;
pub(crate) use self::layout::{asks_for_help, name_commands, tidy, with_help};
pub(crate) use self::migrate::MigrateArgs;
pub(crate) use self::printing::PrintingArgs;
pub(crate) use self::rebuild::{RebuildArgs, UndoArgs};
pub(crate) use self::release::ReleaseArgs;
pub(crate) use self::selection::SelectionArgs;
pub(crate) use self::serve::ServeArgs;
pub(crate) use self::show::{ShowArgs, Subject};
pub(crate) use self::simulate::SimulateArgs;
pub(crate) use self::split::SplitArgs;
pub(crate) use self::writing::{DEFAULT_SETTLE, WritingArgs, journals_folder};

/// Inspect, check and repair the IP address management (IPAM) data of Calico.
///
/// calipam reads blocks, affinities, handles and pools, compares them with what really uses addresses, and
/// reports what is wrong, the evidence, and what to do. It reads etcd, the Kubernetes API, exports, and etcd
/// snapshots. Only `release`, `rebuild --apply`, `assign`, `split`, `migrate`, `configure` and `undo` change anything: they show a plan, ask,
/// and keep a journal for `undo`.
#[derive(Debug, Parser)]
#[command(
    name = "calipam",
    version,
    after_help = "Start with `check`. The --help of each command shows examples.",
    after_long_help = include_str!("help/calipam.txt"),
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Ipam(IpamCommand),
    /// Print the completion script for a shell
    ///
    /// The shell runs calipam at each TAB to complete commands, options and values.
    #[command(after_long_help = include_str!("help/completion.txt"))]
    Completion(CompletionArgs),
    /// Create links in a directory, so that `ipam` and `kubectl ipam` work too
    ///
    /// One link is a short name; the others are the names under which kubectl finds its plugins.
    #[command(after_long_help = include_str!("help/install-links.txt"))]
    InstallLinks(InstallLinksArgs),
    /// Print the version, the commit, and the data formats that can be read
    ///
    /// Lists the datastores and files that calipam reads, and the supported versions of exports, journals and Calico.
    #[command(after_long_help = include_str!("help/version.txt"))]
    Version(VersionArgs),
    /// Check, show, repair, export and explain the IPAM data
    #[command(name = "ipam", hide = true)]
    BelowIpam {
        #[command(subcommand)]
        command: IpamCommand,
    },
}

/// The commands that `calipam` and `calipam ipam` have.
#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// Find what is wrong with the IPAM data
    ///
    /// Reads the IPAM data and what uses addresses: pods, workload endpoints, nodes, services. Prints one line for
    /// each kind of finding, the most severe first. Changes nothing.
    #[command(after_help = "Exit code 1 if there are findings. `calipam check --help` shows examples.", after_long_help = include_str!("help/check.txt"))]
    Check(CheckArgs),
    /// Show pools, blocks, nodes, or everything about one address or handle
    ///
    /// Prints pools unless an option names something else. Changes nothing.
    #[command(after_help = "Shows pools unless an option says otherwise. `calipam show --help` shows examples.", after_long_help = include_str!("help/show.txt"))]
    Show(ShowArgs),
    /// Compare two states of a cluster: addresses, blocks, handles, pools, findings
    ///
    /// Prints which addresses were assigned, released or moved between OLD and NEW, and what else differs.
    /// Changes nothing.
    #[command(after_long_help = include_str!("help/diff.txt"))]
    Diff(DiffArgs),
    /// Show the history of an address, a handle, a block or a node
    ///
    /// Prints events from etcd revisions, or from an archive or recording. Changes nothing.
    #[command(after_long_help = include_str!("help/history.txt"))]
    History(HistoryArgs),
    /// Release unused addresses, and delete orphan handles
    ///
    /// Checks the cluster, shows a plan, and asks before it writes.
    #[command(after_help = "Shows the plan and asks before it writes. `calipam release --help` shows examples.", after_long_help = include_str!("help/release.txt"))]
    Release(ReleaseArgs),
    /// Make blocks, handles and affinities match the addresses in use
    ///
    /// Prints a plan; --apply shows it, asks, and carries it out.
    #[command(after_help = "Prints a plan; --apply carries it out. `calipam rebuild --help` shows examples.", after_long_help = include_str!("help/rebuild.txt"))]
    Rebuild(RebuildArgs),
    /// Replace an IP pool with smaller ones of equal size; blocks are kept
    ///
    /// Shows a plan, and asks before it writes.
    #[command(after_long_help = include_str!("help/split.txt"))]
    Split(SplitArgs),
    /// Move from one IP pool to another, phase by phase, to change range or block size
    ///
    /// Prints the state of the migration and the plan for its next phase; --apply shows it, asks, and carries it out.
    #[command(after_help = "Prints a plan; --apply carries out one phase. `calipam migrate --help` shows examples.", after_long_help = include_str!("help/migrate.txt"))]
    Migrate(MigrateArgs),
    /// Set how addresses are allocated: strict affinity, blocks per node, cooldown
    ///
    /// Shows a plan, and asks before it writes.
    #[command(after_long_help = include_str!("help/configure.txt"))]
    Configure(ConfigureArgs),
    /// Assign addresses by hand
    ///
    /// Assigns the addresses that --ip names, or as many as --count says. Shows a plan, and asks before it writes.
    #[command(after_help = "Shows a plan and asks before it writes. `calipam assign --help` shows examples.", after_long_help = include_str!("help/assign.txt"))]
    Assign(AssignArgs),
    /// Simulate a cluster: pod start times, block sizes, node failures
    ///
    /// Runs the allocator on a simulated datastore, and prints how long pods wait. Changes nothing.
    #[command(after_help = "Changes nothing. `calipam simulate --help` shows examples.", after_long_help = include_str!("help/simulate.txt"))]
    Simulate(Box<SimulateArgs>),
    /// Undo what a run changed, using its journal
    ///
    /// Restores what `release`, `rebuild`, `assign`, `split`, `migrate`, `configure` or an earlier `undo` changed. Shows a plan, and
    /// asks before it writes.
    #[command(after_long_help = include_str!("help/undo.txt"))]
    Undo(UndoArgs),
    /// Check repeatedly, and serve metrics, a report and a page over HTTP
    ///
    /// Checks after each change and at an interval, and serves the report of the last check that succeeded. Without
    /// `--events`, changes nothing.
    #[command(after_long_help = include_str!("help/serve.txt"))]
    Serve(ServeArgs),
    /// Export everything that a check reads to a file
    ///
    /// Every command can read the file with --datastore, on any machine.
    #[command(after_long_help = include_str!("help/export.txt"))]
    Export(ExportArgs),
    /// Record every change to the IPAM data, until a signal ends it
    ///
    /// Adds full states and the changes after them to a folder, which `history`, `diff` and `show` read. Changes nothing else.
    #[command(after_long_help = include_str!("help/record.txt"))]
    Record(RecordArgs),
    /// Explain a rule, or why a pod, service or node gets no address
    ///
    /// For a rule, prints its severity, the risk, the possible causes, and what to do. For a pod, LoadBalancer service
    /// or node, prints the allocator's answer in one sentence, and what to do.
    #[command(after_long_help = include_str!("help/explain.txt"))]
    Explain(ExplainArgs),
}

/// Options of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The file to write, compressed if its name ends in `.zst`; `-` for standard output. With several clusters, the
    /// folder in which each gets a file
    #[arg(value_name = "FILE", value_hint = FilePath, required_unless_present = "archive")]
    pub file: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, conflicts_with = "archive")]
    pub overwrite: bool,
    /// Add a dated, compressed export to this folder instead
    #[arg(long, value_name = "DIR", value_hint = DirPath, conflicts_with = "file")]
    pub archive: Option<PathBuf>,
    /// Prune the archive afterwards: which exports to keep, and up to which age, such as `24h:all,30d:daily,1y:monthly`
    #[arg(long, value_name = "RULES", requires = "archive")]
    pub keep: Option<Keep>,
    #[command(flatten)]
    pub fleet: FleetArgs,
}

/// Options of `record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The folder to record in
    #[arg(value_name = "DIR", value_hint = DirPath)]
    pub folder: PathBuf,
    /// Full states to keep, with the changes after them, and up to which age, such as
    /// `24h:all,30d:daily,1y:monthly`
    #[arg(long, value_name = "RULES")]
    pub keep: Option<Keep>,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The rules to explain; without any, all rules are listed
    #[arg(
        value_name = "RULE",
        value_delimiter = ',',
        value_parser = code::CodeParser,
        hide_possible_values = true,
        conflicts_with = "cni_config"
    )]
    pub rules: Vec<calipam_check::Code>,
    /// Explain why this pod gets an address, or none
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = show::pod, conflicts_with_all = ["rules", "node"])]
    pub pod: Option<calipam_check::views::PodName>,
    /// Explain why this LoadBalancer service gets an address, or none
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_parser = show::service,
        conflicts_with_all = ["rules", "node", "pod"]
    )]
    pub service: Option<calipam_check::views::PodName>,
    /// Explain why the next pod on this node gets an address, or none
    #[arg(long, value_name = "NODE", conflicts_with = "rules")]
    pub node: Option<String>,
    #[command(flatten)]
    pub cni_config: CniConfigArgs,
}

/// Options of `version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Also read the cluster's Calico version; exit code 1 unless calipam knows that version
    #[arg(long)]
    pub check_compat: bool,
}

/// Options of `completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Options of `install-links`.
#[derive(Debug, Args)]
pub(crate) struct InstallLinksArgs {
    /// A directory in PATH
    #[arg(value_name = "DIR", value_hint = DirPath)]
    pub directory: PathBuf,
    /// Also install man pages, and completion scripts for the installed shells, in `share` next to the directory
    #[arg(long)]
    pub completions: bool,
    /// Also link `calicoctl`; the link runs instead of the real calicoctl if the directory comes before it in PATH
    #[arg(long)]
    pub calicoctl: bool,
    /// Replace other files that have these names
    #[arg(long)]
    pub force: bool,
    /// Remove the links to this program, and the files that it installed
    #[arg(long, conflicts_with = "force")]
    pub remove: bool,
}

/// Returns the definition of the command line.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}
