//! From what tonic, rustls and etcd say to a [`Failure`].

use std::error::Error as StdError;

use rustls::AlertDescription;
use tonic::{Code, Status};

use crate::cause::{Cause, REFUSALS, innermost};
use crate::error::Failure;

/// What the cause of an error means. `timeout` in seconds.
fn of_cause(cause: Cause, timeout: u64, has_certificate: bool) -> Failure {
    match cause {
        Cause::NameNotResolved => Failure::NameNotResolved,
        Cause::Refused => Failure::Refused,
        Cause::TimedOut => Failure::TimedOut(timeout),
        Cause::Network(text) => Failure::Network(text),
        Cause::Broken(text) => Failure::Broken(text),
        Cause::ServerIsPlain => Failure::ServerIsPlain,
        Cause::CertificateNotTrusted => Failure::CertificateNotTrusted,
        Cause::CertificateExpired => Failure::CertificateExpired,
        Cause::CertificateWrongName => Failure::CertificateWrongName,
        Cause::CertificateBad(text) => Failure::CertificateBad(text),
        Cause::Alert(AlertDescription::CertificateRequired) => Failure::ClientCertificateRequired,
        Cause::Alert(alert) if !REFUSALS.contains(&alert) => {
            Failure::Tls(format!("the server answered with the alert {alert:?}"))
        }
        Cause::Alert(_) if has_certificate => Failure::ClientCertificateRefused,
        Cause::Alert(_) => Failure::ClientCertificateRequired,
        Cause::Tls(text) => Failure::Tls(text),
    }
}

/// What an error of TLS means.
pub(super) fn tls(error: &rustls::Error, has_certificate: bool) -> Failure {
    of_cause(Cause::of_tls(error), 0, has_certificate)
}

/// What an error means of which no cause is known.
fn broken(error: &(dyn StdError + 'static)) -> Failure {
    let text = innermost(error);
    // That is how `HTTP/1.1 …` looks to who expects a frame of HTTP/2.
    if text.contains("frame with invalid size") {
        return Failure::NotEtcd("it does not speak HTTP/2".into());
    }
    Failure::Broken(text)
}

/// Why no connection came about. `timeout` in seconds.
pub(super) fn connecting(error: &tonic::transport::Error, timeout: u64, has_certificate: bool) -> Failure {
    Cause::of(error).map_or_else(|| broken(error), |cause| of_cause(cause, timeout, has_certificate))
}

/// What an unsuccessful answer means. `timeout` in seconds.
pub(super) fn status(status: &Status, timeout: u64, has_certificate: bool) -> Failure {
    if let Some(cause) = status.source().and_then(Cause::of) {
        return of_cause(cause, timeout, has_certificate);
    }
    let message = status.message();
    match status.code() {
        Code::InvalidArgument if message.contains("invalid user ID or password") => Failure::WrongPassword,
        Code::InvalidArgument if message.contains("user name is empty") => Failure::AuthNeeded,
        Code::Unauthenticated => Failure::AuthNeeded,
        Code::PermissionDenied => Failure::PermissionDenied,
        Code::OutOfRange if message.contains("compacted") => Failure::Compacted,
        // A member that lags behind the one that was asked first.
        Code::OutOfRange if message.contains("future revision") => Failure::NoQuorum(message.to_owned()),
        Code::DeadlineExceeded | Code::Cancelled if message.contains("expired") => Failure::TimedOut(timeout),
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded
            if message.contains("etcdserver") =>
        {
            Failure::NoQuorum(message.to_owned())
        }
        Code::Unimplemented => Failure::NotEtcd(message.to_owned()),
        _ => match status.source() {
            Some(error) => broken(error),
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
    fn what_etcd_says() {
        let of = |code, message: &str| status(&Status::new(code, message), 5, false);
        for (code, message, failure) in [
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Failure::WrongPassword,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Failure::AuthNeeded),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Failure::AuthNeeded),
            (Code::PermissionDenied, "etcdserver: permission denied", Failure::PermissionDenied),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Failure::Compacted),
            (Code::Unavailable, "etcdserver: no leader", Failure::NoQuorum("etcdserver: no leader".into())),
            (Code::Unimplemented, "unknown service", Failure::NotEtcd("unknown service".into())),
        ] {
            assert_eq!(of(code, message), failure, "{message}");
        }
    }

    #[test]
    fn what_alerts_mean() {
        let of = |alert, has_certificate| tls(&rustls::Error::AlertReceived(alert), has_certificate);
        assert_eq!(of(AlertDescription::BadCertificate, true), Failure::ClientCertificateRefused);
        assert_eq!(of(AlertDescription::BadCertificate, false), Failure::ClientCertificateRequired);
        assert_eq!(of(AlertDescription::CertificateRequired, true), Failure::ClientCertificateRequired);
        let other = Failure::Tls("the server answered with the alert ProtocolVersion".into());
        assert_eq!(of(AlertDescription::ProtocolVersion, true), other);
    }
}
