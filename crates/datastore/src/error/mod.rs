//! What can go wrong with a datastore. Every error names the object and has a hint; none holds a secret.

mod failure;
mod file;
mod settings;

use std::fmt;
use std::path::PathBuf;

pub use self::failure::Failure;
pub use self::file::FileError;
pub use self::settings::SettingsError;
use crate::kube::KubeError;

/// The result of everything that touches a datastore.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a datastore could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings make no sense: a usage error.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No etcd endpoint could be used.
    #[error("cannot use etcd: {}", Tries(.0))]
    Connect(Vec<Tried>),
    /// etcd refused or broke off a request.
    #[error("{endpoint}: cannot read {what}: {failure}")]
    Request {
        /// The endpoint, without user and password.
        endpoint: String,
        /// What was being read.
        what: String,
        /// What happened.
        failure: Failure,
    },
    /// A write was refused or broke off. Where it broke off, it may have taken place.
    #[error("{endpoint}: cannot write {what}: {failure}")]
    Write {
        /// The endpoint, without user and password.
        endpoint: String,
        /// What was being written.
        what: String,
        /// What happened.
        failure: Failure,
    },
    /// The datastore is a file or memory.
    #[error("{location}: is only read, never written")]
    NotWritable {
        /// The file.
        location: String,
    },
    /// The revision that was being read was compacted away, again and again.
    #[error("{endpoint}: compacted the revision that was being read {attempts} times in a row")]
    Compacted {
        /// The endpoint.
        endpoint: String,
        /// How often the read was begun.
        attempts: u32,
    },
    /// The datastore was read and holds nothing of Calico.
    #[error("{location}: holds no Calico data: there is no key under /calico/")]
    NoCalico {
        /// Where was read.
        location: String,
    },
    /// Kubernetes could not be read.
    #[error(transparent)]
    Kubernetes(#[from] KubeError),
    /// A file of data could not be read or written.
    #[error("{}: {kind}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        kind: FileError,
    },
}

/// An endpoint that was tried, and why it could not be used.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The endpoint, without user and password.
    pub endpoint: String,
    /// What happened.
    pub failure: Failure,
}

impl Error {
    /// True where the user has to change the call or the settings: exit code 2. All others are exit
    /// code 3.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(_) => true,
            Self::Kubernetes(error) => error.is_usage(),
            _ => false,
        }
    }

    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Settings(error) => error.hint(),
            Self::Connect(tried) => {
                tried.iter().map(|t| &t.failure).max_by_key(|f| f.weight()).and_then(Failure::hint)
            }
            Self::Request { failure, .. } => failure.hint(),
            Self::Write { failure: Failure::PermissionDenied, .. } => Some(
                "the user needs to write /calico/: `etcdctl role grant-permission ROLE --prefix=true readwrite \
                 /calico/`"
                    .into(),
            ),
            Self::Write { failure, .. } => failure.hint(),
            Self::NotWritable { .. } => Some(
                "repairs of a file are planned and simulated with `--dry-run`; to make them, connect to the datastore"
                    .into(),
            ),
            Self::Compacted { .. } => Some(
                "something compacts this etcd every few seconds; read a snapshot of it instead \
                 (`etcdctl snapshot save FILE`, then `--datastore FILE`)"
                    .into(),
            ),
            Self::NoCalico { .. } => Some(
                "is this the etcd that Calico uses? A cluster often has another one for the Kubernetes API; \
                 with the Kubernetes datastore, Calico uses no etcd of its own"
                    .into(),
            ),
            Self::Kubernetes(error) => error.hint(),
            Self::File { kind, .. } => kind.hint(),
        }
    }

    /// True where another connection, to another endpoint perhaps, may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Request { failure, .. } if failure.is_transient())
    }

    /// A file error for `path`.
    pub(crate) fn file(path: impl Into<PathBuf>, kind: impl Into<FileError>) -> Self {
        Self::File { path: path.into(), kind: kind.into() }
    }
}

/// Endpoints that were tried, in one line.
struct Tries<'a>(&'a [Tried]);

impl fmt::Display for Tries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, tried) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", tried.endpoint, tried.failure)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_that_of_the_most_telling_failure() {
        let tried = |endpoint: &str, failure| Tried { endpoint: endpoint.into(), failure };
        let error = Error::Connect(vec![
            tried("https://a:2379", Failure::Refused),
            tried("https://b:2379", Failure::WrongPassword),
        ]);
        assert_eq!(error.hint(), Failure::WrongPassword.hint());
        assert_eq!(
            error.to_string(),
            format!(
                "cannot use etcd: https://a:2379: {}; https://b:2379: {}",
                Failure::Refused,
                Failure::WrongPassword
            )
        );
        assert!(!error.is_usage() && Error::from(SettingsError::SrvUnsupported("x".into())).is_usage());
    }
}
