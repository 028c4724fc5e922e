//! Failures of requests to a server.

use super::Cause;

/// The kind of server that a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Etcd,
    Kubernetes,
}

/// The reason why a request to etcd or a Kubernetes API server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Connection(#[from] Cause),
    /// An answer is cut off, is too long, or cannot be decoded.
    #[error("the answer is not complete: {0}")]
    Incomplete(String),
    /// etcd requires authentication, but no user was given, or the user's token has expired.
    #[error("the server requires a user name and password")]
    AuthNeeded,
    #[error("the user name or password is wrong")]
    WrongPassword,
    /// A plugin, an identity provider or a file did not provide credentials for Kubernetes.
    #[error("authentication failed: {0}")]
    Login(String),
    /// The API server answered with status 401.
    #[error("the server does not accept the credentials (401)")]
    Unauthorized,
    /// The user lacks permission. The text has details from Kubernetes, and is empty for etcd v3.
    #[error("permission denied{}", after_colon(.0))]
    PermissionDenied(String),
    /// The etcd cluster has no leader, or too few members are alive.
    #[error("the etcd cluster cannot answer: {0}")]
    NoQuorum(String),
    /// etcd has used up its quota and accepts only deletions.
    #[error("etcd has no space left: its quota is used up")]
    NoSpace,
    /// etcd was started with a limit below the usual 128 operations per request.
    #[error("the request has too many operations for this etcd")]
    TooManyOperations,
    /// The server no longer keeps the revision.
    #[error("the revision that was being read has been compacted")]
    Compacted,
    /// The API server answered with status 404, because there is no such object or kind.
    #[error("not found (404)")]
    NotFound,
    /// The API server answered with status 409, because the object already exists or does not have the expected
    /// version.
    #[error("the object has changed (409): {0}")]
    Conflict(String),
    /// The API server answered with status 429.
    #[error("the server is overloaded (429)")]
    TooManyRequests,
    /// The API server or etcd v2 rejects the request.
    #[error("the server rejects the request ({code}): {message}")]
    Refused {
        /// The HTTP status, below 500.
        code: u16,
        message: String,
    },
    #[error("the server failed ({code}): {message}")]
    Server {
        /// The HTTP status, 500 or higher.
        code: u16,
        message: String,
    },
    #[error("it does not serve etcd's v2 API")]
    NoV2Api,
    #[error("this is not an etcd v3 server: {0}")]
    NotEtcd(String),
    #[error("this is not a Kubernetes API server: {0}")]
    NotKubernetes(String),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// True if another attempt, perhaps at another etcd endpoint, may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NoQuorum(_)
                | Self::Connection(
                    Cause::Refused | Cause::TimedOut(_) | Cause::Network(_) | Cause::Broken(_)
                )
        )
    }

    /// True if the same request may succeed a little later.
    pub fn may_pass(&self) -> bool {
        let is_busy = matches!(
            self,
            Self::TooManyRequests | Self::Server { .. } | Self::Incomplete(_) | Self::NoSpace
        );
        is_busy || self.is_transient() || self.is_given_up()
    }

    /// True if the run has waited for the server as long as it may, so that it does not try again.
    pub fn is_given_up(&self) -> bool {
        matches!(self, Self::Connection(Cause::GivenUp(_)))
    }

    /// True if the server gave no answer within a time limit: that of the request, or of the whole run.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Connection(Cause::GivenUp(_) | Cause::TimedOut(_)))
    }

    /// Creates the failure of a connection that ended without a known cause.
    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self::Connection(Cause::Broken(reason.into()))
    }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}
