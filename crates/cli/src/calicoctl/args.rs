//! The part of calicoctl's command line that calipam implements. The real calicoctl runs all other commands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::args::Global;

/// calipam under the name calicoctl: the `ipam` commands, the datastore lock and `version`. Every other command
/// runs the real calicoctl: the program that CALIPAM_CALICOCTL names, else the next one in PATH.
#[derive(Debug, Parser)]
#[command(name = "calicoctl", disable_help_subcommand = true, max_term_width = 100)]
pub(super) struct Calicoctl {
    /// Path to the file containing connection configuration
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The name of the kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Set the log level; info and debug show what is read
    #[arg(short, long, global = true, default_value = "panic", value_name = "LEVEL")]
    log_level: LogLevel,
    /// Has no effect: versions are never compared
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    #[allow(dead_code)]
    allow_version_mismatch: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogLevel {
    Panic,
    Fatal,
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// IP address management
    #[command(subcommand)]
    Ipam(IpamCommand),
    /// Calico datastore management
    #[command(subcommand)]
    Datastore(DatastoreCommand),
    /// Display the version of calicoctl that this replaces, and that of the cluster
    Version(VersionArgs),
    /// Any other command and its arguments, which the real calicoctl runs.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Poll for changes to the cluster information; runs the real calicoctl
    #[arg(long, value_name = "POLL")]
    pub poll: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum IpamCommand {
    /// Check the integrity of the IPAM datastructures
    Check(CheckArgs),
    /// Release a Calico assigned IP address
    Release(ReleaseArgs),
    /// Show details of a Calico assigned IP address or overall IP usage
    Show(ShowArgs),
    /// Split an IP pool into the specified number of smaller IP pools
    Split(SplitArgs),
    /// Configure IPAM
    Configure(ConfigureArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum DatastoreCommand {
    /// Lock and unlock the datastore
    #[command(subcommand)]
    Migrate(MigrateCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Lock the datastore: no pod starts or stops
    Lock,
    /// Unlock the datastore
    Unlock,
    /// Any other command, such as `export` or `import`, which the real calicoctl runs.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Print all IPs that are checked
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub show_all_ips: bool,
    /// Print all IPs that are leaked or not allocated properly
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub show_problem_ips: bool,
    /// Path to output report file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Path to Kubeconfig file
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    /// IP address to release
    #[arg(long, value_name = "IP")]
    pub ip: Option<String>,
    /// Release all leaked addresses from the report; can be repeated
    #[arg(long, value_name = "FILE")]
    pub from_report: Vec<PathBuf>,
    /// Do not check a report's version or the lock; with --ip, release the address even if it is in use
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Report whether this specific IP address is in use
    #[arg(long, value_name = "IP")]
    pub ip: Option<String>,
    /// Show detailed information for IP blocks as well as pools
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub show_blocks: bool,
    /// Show detailed information for borrowed IP addresses
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub show_borrowed: bool,
    /// Show current Calico IPAM configuration
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub show_configuration: bool,
}

#[derive(Debug, Args)]
pub(super) struct SplitArgs {
    /// Number of pools to create
    #[arg(value_name = "NUMBER", allow_negative_numbers = true)]
    pub number: String,
    /// CIDR of the IP pool to split
    #[arg(long, value_name = "CIDR")]
    pub cidr: Option<String>,
    /// Name of the IP pool to split
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ConfigureArgs {
    /// Set StrictAffinity to true/false
    #[arg(long, value_name = "BOOL")]
    pub strictaffinity: Option<String>,
    /// Set the maximum number of blocks that can be affine to a host
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub max_blocks_per_host: Option<String>,
    /// Control whether KubeVirt VMs retain persistent IP addresses (Enabled|Disabled)
    #[arg(long, value_name = "VALUE")]
    pub kubevirt_ip_persistence: Option<String>,
    /// Set the minimum time between release and re-allocation of an IP address
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true)]
    pub ip_cooldown_seconds: i64,
}

impl Calicoctl {
    /// Returns calipam's options for the connection and the log. As in calicoctl, an empty value means that the option
    /// is not given.
    pub(super) fn global(&self) -> Global {
        let kubeconfig = match &self.command {
            Command::Ipam(IpamCommand::Check(check)) => check.kubeconfig.clone(),
            _ => None,
        };
        // calicoctl's levels, by the number of `v` in calipam's `-vv`.
        let verbose = match self.log_level {
            LogLevel::Debug => 2,
            LogLevel::Info => 1,
            LogLevel::Panic | LogLevel::Fatal | LogLevel::Error | LogLevel::Warn => 0,
        };
        let mut contexts: Vec<String> = self.context.iter().cloned().collect();
        contexts.retain(|context| !context.is_empty());
        Global {
            config: self.config.clone().filter(|path| !path.as_os_str().is_empty()),
            contexts,
            kubeconfig,
            verbose,
            ..Global::default()
        }
    }
}
