//! Errors of connection settings.

use std::path::PathBuf;

/// Invalid settings. All of these are usage errors, except unreadable files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The requested settings file cannot be read.
    #[error("cannot read the settings file {}: {reason}", path.display())]
    Unreadable {
        path: PathBuf,
        /// The I/O error.
        reason: String,
    },
    /// The settings file is invalid.
    #[error("{}: {reason}", path.display())]
    BadFile { path: PathBuf, reason: String },
    /// The settings file has an unknown field, which calicoctl also rejects.
    #[error("{}: unknown field `{field}`", path.display())]
    UnknownField {
        path: PathBuf,
        field: String,
        /// A field with a similar name.
        similar: Option<&'static str>,
    },
    /// An environment variable has an invalid value.
    #[error("the environment variable {name} must be {expected}")]
    BadVariable {
        name: String,
        /// The valid values.
        expected: &'static str,
    },
    /// The datastore type is neither `etcdv3`, `etcdv2` nor `kubernetes`.
    #[error("unknown datastore type {0:?}")]
    UnknownDatastore(String),
    /// The etcd datastore is set, but no endpoint.
    #[error("no etcd endpoints are set")]
    NoEndpoints,
    /// An endpoint is not a usable URL.
    #[error("{endpoint:?} is not an etcd endpoint: {reason}")]
    BadEndpoint {
        /// The endpoint, without user and password.
        endpoint: String,
        reason: String,
    },
    /// Both endpoints and a discovery domain are set.
    #[error("both etcd endpoints and a discovery domain are set")]
    EndpointsAndSrv,
    /// Only a discovery domain is set.
    #[error("the discovery domain {0:?} is set, but SRV records are not looked up")]
    SrvUnsupported(String),
    /// Certificates are given inline and as files.
    #[error("TLS certificates are given both inline and as files")]
    MixedTls,
    /// Either the certificate or its key is missing.
    #[error("a client certificate and its key belong together; only the {0} is given")]
    HalfKeyPair(&'static str),
    /// A certificate or key cannot be read.
    #[error("cannot read the {what} {}: {reason}", path.display())]
    UnreadablePem {
        what: &'static str,
        path: PathBuf,
        /// The I/O error, or a note that the file is not UTF-8.
        reason: String,
    },
    /// A certificate or key is not valid PEM text of its kind.
    #[error("the {what} is not usable: {reason}")]
    BadPem { what: &'static str, reason: &'static str },
    /// A context is set without the kubeconfig that would define it.
    #[error("the context {0:?} is named, but no kubeconfig is")]
    ContextAlone(String),
    /// The name is neither a kind of datastore nor an existing file.
    #[error("no data file or datastore {0:?}: it is neither `etcd`, nor `kubernetes`, nor a file")]
    NoSuchDatastore(String),
}
