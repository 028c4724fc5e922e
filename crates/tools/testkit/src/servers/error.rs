//! Errors of servers that tests have started.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::locate::NotFound;
use super::tool::Tool;

/// A server that was not found, did not start, or failed.
///
/// `Debug` also prints the message, so that `unwrap()` in a test shows all of it with its line breaks.
#[derive(thiserror::Error)]
pub enum ServerError {
    /// The program is not on this machine.
    #[error("{0}\nhint: `cargo xtask test` installs the missing servers")]
    NotFound(#[from] NotFound),
    /// There is no browser on this machine, or none at the path in the variable.
    #[error("{}; CALIPAM_TEST_CHROMIUM names another one", Tool::Chromium.missing())]
    NoBrowser,
    /// The program could not be run.
    #[error("cannot run {}: {source}", path.display())]
    Spawn { path: PathBuf, source: io::Error },
    /// The server ended while a test was waiting for it.
    #[error("{name} exited unexpectedly ({status}); its log:\n{log}")]
    Ended {
        name: &'static str,
        status: ExitStatus,
        /// The server's log, shortened in the middle.
        log: String,
    },
    /// The server is running, but does not reach the awaited state.
    #[error("{name} is not {state} after {limit:?} ({reason}); its log:\n{log}")]
    NotReady {
        name: &'static str,
        /// The state to reach, such as "healthy".
        state: &'static str,
        limit: Duration,
        /// The error of the last attempt.
        reason: String,
        /// The server's log, shortened in the middle.
        log: String,
    },
    /// An operation on a file, a folder, a port or a process failed.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// etcd refused a request, or could not be reached.
    #[error("etcd: {0}")]
    Etcd(#[from] etcd_client::Error),
    /// The API server refused a request of a test.
    #[error("{what}: {status} {body}")]
    Refused { what: String, status: u16, body: String },
    /// The allocator refused an operation, or the datastore did not answer.
    #[error("the allocator: {0}")]
    Allocator(#[from] calipam_assign::Error),
    /// The datastore of an allocator refused a request, or did not answer.
    #[error("the datastore: {0}")]
    Store(#[from] calipam_assign::StoreError),
    /// The datastore of an allocator could not be connected to.
    #[error("the datastore: {0}")]
    Connection(#[from] calipam_datastore::Error),
    /// A snapshot that does not consist of whole pages and a SHA-256 sum of 32 bytes.
    #[error("the snapshot has {0} bytes: not whole pages and a checksum")]
    Snapshot(u64),
    /// A TLS set-up or handshake failed.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ServerError {
    /// Creates an [`Io`](Self::Io) error. `what` describes the failed operation.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// True if the server ended because another process has its port.
    pub(super) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("address already in use"))
    }
}
