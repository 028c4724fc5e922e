//! Why a command could not do its work.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use calipam_model::IpNet;
use calipam_plan::configure::ConfigureRefusal;
use calipam_plan::migrate::MigrateRefusal;
use calipam_plan::release::ReportError;
use calipam_plan::split::SplitRefusal;
use calipam_plan::{Doubt, FailedTrial};
use calipam_repair::RepairError;
use calipam_repair::journal::JournalError;

use crate::migrate::EvictError;
use crate::operator::NoConsent;

/// Why a command could not do its work. Nothing was written, except if a run has begun ([`Error::Repair`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Datastore(#[from] calipam_datastore::Error),
    #[error(transparent)]
    Repair(RepairError),
    /// A file, or another service of the system.
    #[error("cannot {doing}: {error}")]
    Io { doing: String, error: io::Error },
    #[error("node {:?} not found", .0.name)]
    UnknownNode(NotFound),
    #[error("the selector matches none of the nodes")]
    NoNodeSelected,
    #[error("namespace {:?} not found: no pod, endpoint, service or record names it", .0.name)]
    UnknownNamespace(NotFound),
    /// The IDs are some of those that begin so.
    #[error("several handles begin with {begin:?}")]
    AmbiguousHandle { begin: String, ids: Vec<String> },
    #[error("{} holds no export", .0.display())]
    EmptyArchive(PathBuf),
    #[error("{} tells no rates: it holds one state, and no changes after it", .0.display())]
    OneState(PathBuf),
    #[error("{} has no export of {time} or before; the first one is of {first}", folder.display())]
    BeforeArchive { folder: PathBuf, time: jiff::Timestamp, first: jiff::Timestamp },
    /// The GUIDs of two datastores that are to be of one cluster.
    #[error("{what} are of two clusters: {} and {}", .guids[0], .guids[1])]
    TwoClusters { what: &'static str, guids: [String; 2] },
    /// The GUIDs of an archive, and of what is checked; empty if it has none.
    #[error("the archive is of cluster {:?}, but the checked data is of {:?}", .guids[0], .guids[1])]
    ArchiveOfAnother { guids: [String; 2] },
    #[error("there is no pool {:?}", .0.name)]
    UnknownPool(NotFound),
    #[error("nothing is in {0}: no pool, no block, and no address in use")]
    UnknownNetwork(IpNet),
    #[error("nothing of {nodes} is in {pools}")]
    NothingInCommon { nodes: String, pools: String },
    /// Nothing is there, and nothing uses an address of it.
    #[error("there is no block {0}")]
    UnknownBlock(IpNet),
    /// The file of a report holds something else.
    #[error("{}: {error}", path.display())]
    NoReport { path: PathBuf, error: ReportError },
    /// The report cannot be used here.
    #[error("the report {report} cannot be used: {objection}")]
    UnusableReport { report: String, objection: ReportError },
    /// On etcd, only endpoints say what runs, and after a restore they are as old as the blocks.
    #[error("no pods were read, and the endpoints in etcd may be as old as the blocks")]
    PodsNotRead,
    /// Nothing that Kubernetes says shows that it is the cluster of the etcd.
    #[error("the Kubernetes of the kubeconfig may be of another cluster than the etcd: {0}")]
    DoubtfulKubernetes(Doubt),
    /// Something uses an address that was to be assigned.
    #[error("{0}; nothing was changed")]
    TakenSince(String),
    /// A mistake in the planner.
    #[error("the plan was tried in memory and refused: {0}")]
    Trial(#[from] FailedTrial),
    #[error("the plan makes {changes} changes, more than the limit of {limit}; nothing was changed")]
    TooManyChanges { changes: usize, limit: usize },
    #[error(transparent)]
    Split(#[from] SplitRefusal),
    #[error(transparent)]
    Configure(#[from] ConfigureRefusal),
    #[error(transparent)]
    Migrate(#[from] MigrateRefusal),
    #[error(transparent)]
    Evict(#[from] EvictError),
    #[error("the pools {} and {} have the same CIDR", .pools[0], .pools[1])]
    SeveralPools { pools: [String; 2] },
    /// The datastore is not locked, and the call wants others to have locked it.
    #[error("the datastore is not locked")]
    NotLocked,
    /// The schema of the cluster has no such field: Kubernetes drops it silently.
    #[error("{setting} was written, but this cluster drops it: its custom resource definitions are older")]
    SettingNotKept { setting: &'static str },
    #[error("neither HOME nor XDG_STATE_HOME is an absolute path, so there is no place for journals")]
    NoJournalDirectory,
    /// The datastore is a file, and was to be written.
    #[error("a file is never changed; {0} needs the datastore itself")]
    NotLive(&'static str),
    #[error("{}", match .0 {
        NoConsent::Declined => "aborted; nothing was changed".to_owned(),
        NoConsent::NoTerminal => "confirmation needed, but stdin is not a terminal".to_owned(),
        NoConsent::Failed(error) => format!("cannot ask: {error}"),
    })]
    NoConsent(NoConsent),
}

/// A name that nothing has.
#[derive(Debug)]
pub struct NotFound {
    pub name: String,
    /// The known name that is most like it, if one is.
    pub nearest: Option<String>,
}

impl NotFound {
    pub(crate) fn of(name: &str, known: &BTreeSet<String>) -> Self {
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Self { name: name.to_owned(), nearest }
    }
}

/// Of the names that are known, the one that was probably meant: the first that contains the text, else the one with the
/// fewest letters that differ.
pub fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let part = |name: &&str| text.len() > 3 && name.contains(text);
    known.clone().find(part).or_else(|| {
        let near = known.map(|name| (strsim::levenshtein(text, name), name)).min();
        near.filter(|(distance, _)| *distance <= 3 && *distance < text.len()).map(|(_, name)| name)
    })
}

impl From<calipam_files::Error> for Error {
    fn from(error: calipam_files::Error) -> Self {
        Self::Datastore(error.into())
    }
}

impl Error {
    /// For `map_err`: what was being done with a path when the system refused.
    pub(crate) fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let doing = format!("{doing} {}", path.display());
        |error| Self::Io { doing, error }
    }

    /// The only one of the handles that begin so; `None` if there is none.
    pub(crate) fn only_handle(
        begin: &str,
        ids: impl IntoIterator<Item = String>,
    ) -> Result<Option<String>, Self> {
        let mut ids: Vec<String> = ids.into_iter().collect();
        match ids.len() {
            0 | 1 => Ok(ids.pop()),
            _ => Err(Self::AmbiguousHandle { begin: begin.to_owned(), ids }),
        }
    }

    pub(crate) fn showing(error: io::Error) -> Self {
        Self::Io { doing: "show the plan".into(), error }
    }
}

impl From<RepairError> for Error {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Datastore(error) => Self::Datastore(error),
            other => Self::Repair(other),
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        Self::Repair(error.into())
    }
}
