//! What to do next, as errors and notes of every crate say it. Only the program knows how its commands and options are called, so
//! that a hint holds them as values.

use std::borrow::Cow;
use std::path::PathBuf;

use ipnet::IpNet;

/// A text in which each `{}` stands for one of the calls, in their order.
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

/// A command line of the program, or a name that a terminal has to see escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Name(String),

    /// This call as it is; the next ones change one thing in it.
    Again,
    DryRun,
    /// With agreement in advance.
    Agreed,
    Forced,
    Locked,
    Unlocked,
    /// A place for the journal: the option of this call, if it has one, and the environment.
    JournalPlace,
    MaxChanges(usize),
    EndpointsOnly,
    /// With the name of the pool.
    ByName,
    AutoAllocation,
    StrictAffinity,
    NoBlockLimit,
    Kubeconfig,
    KubeconfigAndContext,
    /// Another kubeconfig, and not the context of this call.
    OtherKubeconfig,
    Context,
    /// Another settings file.
    OtherConfig,
    Etcd,
    EtcdCa,
    EtcdWithCa,
    EtcdKeyPair,
    /// Endpoints of etcd in the place of a datastore that was named, or a file.
    EtcdUrl,
    File,
    /// The same in the place of Kubernetes, and of etcd.
    EtcdInstead,
    FileInstead,

    /// The pools.
    Show,
    ShowNodes,
    ShowBlocks,
    ShowBlock(IpNet),
    ShowConfiguration,
    /// Released addresses may be assigned at once.
    NoCooldown,
    /// A report for programs.
    Check,
    /// An export.
    Export,
    /// Adds an export to an archive.
    Archive(PathBuf),
    Record(PathBuf),
    /// The list of journals.
    Journals,
    Undo(PathBuf),
    /// The state of a migration, by its old pool if it is known.
    MigrateStatus(Option<String>),
    MigrateResume(String),
    /// From a temporary pool back to the old one.
    MigrateBack(String),
    /// To another block size through a temporary pool.
    MigrateThrough {
        pool: String,
        block_size: u8,
    },
}
