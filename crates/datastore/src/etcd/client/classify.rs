//! Classifies etcd errors.

use std::error::Error as StdError;

use tonic::{Code, Status};

use crate::error::{Attempt, Cause, Failure, innermost};

/// etcd's message for a revision that it has not reached.
pub(crate) const FUTURE: &str = "future revision";

/// The reason why a connection could not be opened.
pub(crate) fn connecting(error: &tonic::transport::Error, attempt: Attempt) -> Failure {
    match attempt.cause(error) {
        Some(cause) => Failure::Connection(cause),
        None => unknown(error),
    }
}

/// Converts an error of the connection that has no status.
fn unknown(error: &(dyn StdError + 'static)) -> Failure {
    let text = innermost(error);
    // The server has answered with `HTTP/1.1 …` instead of an HTTP/2 frame.
    if text.contains("frame with invalid size") {
        return Failure::NotEtcd("it does not speak HTTP/2".into());
    }
    Failure::broken(text)
}

/// The reason why a request failed.
pub(crate) fn request(error: &etcd_client::Error, attempt: Attempt) -> Failure {
    match error {
        etcd_client::Error::GRpcStatus(answer) => status(answer, attempt),
        etcd_client::Error::TransportError(error) => connecting(error, attempt),
        other => Failure::Other(other.to_string()),
    }
}

/// Converts a gRPC error status to a failure.
fn status(status: &Status, attempt: Attempt) -> Failure {
    if let Some(cause) = status.source().and_then(|source| attempt.cause(source)) {
        return cause.into();
    }

    let message = status.message();
    match status.code() {
        // The connection ended earlier; etcd-client keeps only the text of the cause.
        Code::Unknown if message.starts_with("Service was not ready") => Failure::broken(message),
        Code::InvalidArgument if message.contains("invalid user ID or password") => Failure::WrongPassword,
        Code::InvalidArgument if message.contains("user name is empty") => Failure::AuthNeeded,
        Code::InvalidArgument if message.contains("too many operations") => Failure::TooManyOperations,
        Code::Unauthenticated => Failure::AuthNeeded,
        Code::PermissionDenied => Failure::PermissionDenied(String::new()),
        Code::OutOfRange if message.contains("compacted") => Failure::Compacted,
        // This member lags behind another one, or a requested revision is in the future.
        Code::OutOfRange if message.contains(FUTURE) => Failure::NoQuorum(message.to_owned()),
        Code::DeadlineExceeded | Code::Cancelled if message.contains("expired") => {
            Cause::TimedOut(attempt.timeout).into()
        }
        Code::ResourceExhausted if message.contains("space exceeded") => Failure::NoSpace,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded
            if message.contains("etcdserver") =>
        {
            Failure::NoQuorum(message.to_owned())
        }
        Code::Unimplemented => Failure::NotEtcd(message.to_owned()),
        _ => match status.source() {
            Some(error) => unknown(error),
            None if status.code() == Code::Internal || status.code() == Code::Unknown => {
                Failure::NotEtcd(message.to_owned())
            }
            None => Failure::Other(message.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_errors_are_classified() {
        let of = |code, message: &str| {
            status(
                &Status::new(code, message),
                Attempt {
                    timeout: 5,
                    connect: 5,
                    has_certificate: false,
                },
            )
        };
        for (code, message, failure) in [
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Failure::WrongPassword,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                Failure::AuthNeeded,
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                Failure::AuthNeeded,
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Failure::PermissionDenied(String::new()),
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Failure::Compacted,
            ),
            (
                Code::Unavailable,
                "etcdserver: no leader",
                Failure::NoQuorum("etcdserver: no leader".into()),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                Failure::TooManyOperations,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Failure::NoSpace,
            ),
            (
                Code::Unimplemented,
                "unknown service",
                Failure::NotEtcd("unknown service".into()),
            ),
        ] {
            assert_eq!(of(code, message), failure, "{message}");
        }
    }
}
