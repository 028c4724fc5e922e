//! From what tonic, rustls and etcd say to a [`Failure`].

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError};
use tonic::{Code, Status};

use crate::error::Failure;

/// What the causes of an error say. `None` where none of them is known.
fn of_causes(
    error: &(dyn StdError + 'static),
    timeout: u64,
    has_client_certificate: bool,
) -> Option<Failure> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Some(tls(error, has_client_certificate));
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            // An error that is wrapped into an I/O error is no `source` of it.
            if let Some(inner) = io.get_ref()
                && let Some(failure) = of_causes(inner, timeout, has_client_certificate)
            {
                return Some(failure);
            }
            found = found
                .or_else(|| of_alert_text(&io.to_string(), has_client_certificate))
                .or_else(|| of_io(io, timeout));
        } else if cause.to_string().starts_with("dns error") {
            return Some(Failure::NameNotResolved);
        }
        next = cause.source();
    }
    found
}

fn of_io(error: &io::Error, timeout: u64) -> Option<Failure> {
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        io::ErrorKind::TimedOut => Failure::TimedOut(timeout),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::PermissionDenied => Failure::Network(error.to_string()),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Failure::Broken(error.to_string()),
        _ => return None,
    })
}

/// What an error of TLS means.
pub(super) fn tls(error: &rustls::Error, has_client_certificate: bool) -> Failure {
    match error {
        rustls::Error::InvalidCertificate(certificate) => of_certificate(certificate),
        // The first bytes are no TLS record: the server began to speak HTTP/2 in plain text.
        rustls::Error::InvalidMessage(_) => Failure::ServerIsPlain,
        rustls::Error::AlertReceived(alert) => of_alert(*alert, has_client_certificate),
        other => Failure::Tls(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription, has_client_certificate: bool) -> Failure {
    match (alert, has_client_certificate) {
        (AlertDescription::CertificateRequired, _) => Failure::ClientCertificateRequired,
        (alert, true) if REFUSALS.contains(&alert) => Failure::ClientCertificateRefused,
        (alert, false) if REFUSALS.contains(&alert) => Failure::ClientCertificateRequired,
        (other, _) => Failure::Tls(format!("the server answered with the alert {other:?}")),
    }
}

/// The alerts by which servers refuse the certificate of a client, or that there is none.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnknownCA,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::HandshakeFailure,
    AlertDescription::AccessDenied,
];

/// HTTP/2 keeps only the text of an error that ends a connection.
fn of_alert_text(text: &str, has_client_certificate: bool) -> Option<Failure> {
    let (_, name) = text.split_once("received fatal alert: ")?;
    let known = REFUSALS.into_iter().chain([AlertDescription::CertificateRequired]);
    let alert = known.into_iter().find(|alert| format!("{alert:?}") == name);
    Some(match alert {
        Some(alert) => of_alert(alert, has_client_certificate),
        None => Failure::Tls(format!("the server answered with the alert {name}")),
    })
}

fn of_certificate(error: &CertificateError) -> Failure {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Failure::CertificateNotTrusted,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Failure::CertificateExpired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Failure::CertificateWrongName
        }
        other => Failure::CertificateBad(other.to_string()),
    }
}

/// Why no connection came about. `timeout` in seconds.
pub(super) fn connecting(error: &tonic::transport::Error, timeout: u64, has_certificate: bool) -> Failure {
    of_causes(error, timeout, has_certificate).unwrap_or_else(|| Failure::Broken(innermost(error)))
}

/// What an unsuccessful answer means. `timeout` in seconds.
pub(super) fn status(status: &Status, timeout: u64, has_certificate: bool) -> Failure {
    if let Some(failure) = status.source().and_then(|e| of_causes(e, timeout, has_certificate)) {
        return failure;
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
            Some(error) => Failure::Broken(innermost(error)),
            None if status.code() == Code::Internal || status.code() == Code::Unknown => {
                Failure::NotEtcd(message.to_owned())
            }
            None => Failure::Other(message.to_owned()),
        },
    }
}

/// What the innermost cause says: the outer ones are wrappers such as "transport error".
pub(super) fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
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
    fn causes_inside_io_errors_are_found() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::new(io::ErrorKind::InvalidData, tls);
        assert_eq!(of_causes(&error, 5, false), Some(Failure::CertificateNotTrusted));
        let alert = rustls::Error::AlertReceived(AlertDescription::BadCertificate);
        let error = io::Error::new(io::ErrorKind::InvalidData, alert);
        assert_eq!(of_causes(&error, 5, true), Some(Failure::ClientCertificateRefused));
        assert_eq!(of_causes(&error, 5, false), Some(Failure::ClientCertificateRequired));
        let text = io::Error::other("received fatal alert: UnknownCA");
        assert_eq!(of_causes(&text, 5, true), Some(Failure::ClientCertificateRefused));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(of_causes(&refused, 5, false), Some(Failure::Refused));
    }
}
