//! Hints to the next action, for errors and notes of every crate. Only the program knows the names of its commands and
//! options, so a hint holds them as values.

use std::borrow::Cow;
use std::path::PathBuf;

use ipnet::IpNet;

/// A text in which each `{}` stands for one of the calls, in order.
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

    /// The current call; the next ones change one thing in it.
    Again,
    DryRun,
    /// Confirmed in advance.
    Agreed,
    Forced,
    Locked,
    Unlocked,
    /// The options for the journal's place: that of this call, if it has one, and the environment variable.
    JournalPlace,
    MaxChanges(usize),
    EndpointsOnly,
    /// Names the pool instead of its CIDR.
    ByName,
    AutoAllocation,
    StrictAffinity,
    NoBlockLimit,
    Kubeconfig,
    KubeconfigAndContext,
    /// Another kubeconfig, without the context of this call.
    OtherKubeconfig,
    Context,
    /// Another settings file.
    OtherConfig,
    Etcd,
    EtcdCa,
    EtcdWithCa,
    EtcdKeyPair,
    /// Endpoints of etcd, instead of the named datastore or file.
    EtcdUrl,
    File,
    /// Endpoints of etcd, instead of Kubernetes and etcd options.
    EtcdInstead,
    FileInstead,

    /// Lists the pools.
    Show,
    ShowNodes,
    ShowBlocks,
    ShowBlock(IpNet),
    ShowConfiguration,
    /// Assigns released addresses without a cooldown.
    NoCooldown,
    /// Prints a report for programs.
    Check,
    Export,
    /// Adds an export to an archive.
    Archive(PathBuf),
    Record(PathBuf),
    Journals,
    Undo(PathBuf),
    /// Shows a migration, by its old pool if that is known.
    MigrateStatus(Option<String>),
    MigrateResume(String),
    /// Returns from a temporary pool to the old one.
    MigrateBack(String),
    /// Changes the block size through a temporary pool.
    MigrateThrough {
        pool: String,
        block_size: u8,
    },
}
