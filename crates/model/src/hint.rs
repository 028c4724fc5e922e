//! Hints about the next action, for errors and notes in every crate. The names of commands and options are defined in
//! the command-line program, so hints refer to them by [`Call`] values.

use std::borrow::Cow;
use std::path::PathBuf;

use ipnet::IpNet;

/// A string with one `{}` for each call, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub text: Cow<'static, str>,
    pub calls: Vec<Call>,
}

impl Hint {
    pub fn new(text: impl Into<Cow<'static, str>>, calls: impl Into<Vec<Call>>) -> Self {
        Self { text: text.into(), calls: calls.into() }
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::new(text, [])
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::new(text, [])
    }
}

/// A command line of the program, or a name that must be escaped for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Name(String),

    /// The current call. Most other variants are this call with one change.
    Again,
    DryRun,
    /// The current call, confirmed in advance.
    Agreed,
    Forced,
    Locked,
    Unlocked,
    /// The ways to choose the journal's location: an option of the current call, if there is one, and environment
    /// variables.
    JournalPlace,
    MaxChanges(usize),
    EndpointsOnly,
    /// The current call, with the pool's name instead of its CIDR.
    ByName,
    /// The current call, with an option that states the kind of the name.
    As(&'static str, String),
    AutoAllocation,
    StrictAffinity,
    NoBlockLimit,
    Kubeconfig,
    KubeconfigAndContext,
    /// The current call with another kubeconfig, and without its context.
    OtherKubeconfig,
    Context,
    /// The current call with another settings file.
    OtherConfig,
    Etcd,
    EtcdCa,
    EtcdWithCa,
    EtcdKeyPair,
    /// The current call with etcd endpoints instead of the named datastore or file.
    EtcdUrl,
    File,
    /// The current call with etcd endpoints instead of the named datastore, kubeconfig and context.
    EtcdInstead,
    FileInstead,

    /// Lists the pools.
    Show,
    ShowNodes,
    ShowBlocks,
    ShowBlock(IpNet),
    ShowConfiguration,
    /// Turns off the cooldown of released addresses.
    NoCooldown,
    /// Prints a report for programs.
    Check,
    Export,
    /// Adds an export to an archive.
    Archive(PathBuf),
    Record(PathBuf),
    Journals,
    Undo(PathBuf),
    /// Shows a migration, by its old pool.
    Migrate(String),
    /// Carries out the next phase of a migration.
    ApplyMigration(String),
    /// Returns from a temporary pool to the old one.
    MigrateBack(String),
    /// Changes the block size through a temporary pool.
    MigrateThrough {
        pool: String,
        block_size: u8,
    },
}
