//! Causes of failed connections with any protocol: errors of I/O, name resolution and TLS, which HTTP clients wrap
//! several times.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// The reason that a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("connection refused")]
    Refused,
    /// No connection or no complete answer within this many seconds.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// No answer at all for this many seconds, which is the whole [budget](crate::budget) of the run.
    #[error("no answer within {0} s")]
    GivenUp(u64),
    #[error("not reachable: {0}")]
    Network(String),
    #[error("the name cannot be resolved")]
    NameNotResolved,
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The connection is not encrypted, but the server wants TLS.
    #[error("the server requires TLS")]
    ServerWantsTls,
    /// The connection should be encrypted, but the server does not use TLS.
    #[error("the server does not use TLS")]
    ServerIsPlain,
    /// No trusted authority signed the server's certificate.
    #[error("the server's certificate is not trusted")]
    CertificateNotTrusted,
    #[error("the server's certificate has expired or is not valid yet")]
    CertificateExpired,
    #[error("the server's certificate is for a different name")]
    CertificateWrongName,
    #[error("the server's certificate is not acceptable: {0}")]
    CertificateBad(String),
    #[error("the server requires a client certificate")]
    ClientCertificateRequired,
    #[error("the server does not accept the client certificate")]
    ClientCertificateRefused,
    #[error("TLS failed: {0}")]
    Tls(String),
}

/// The settings of a connection that are needed to name the cause of its failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Time limit for an answer, in seconds.
    pub timeout: u64,
    /// Time limit for connecting, in seconds.
    pub connect: u64,
    pub has_certificate: bool,
}

/// The TLS alerts with which servers reject a client certificate, or the lack of one.
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

impl Attempt {
    /// Searches an error and its sources for a known cause. TLS and DNS tell most, so their errors win over an I/O error
    /// that wraps them. Otherwise the first I/O error counts.
    pub(crate) fn cause(self, error: &(dyn StdError + 'static)) -> Option<Cause> {
        let mut of_io = None;
        for source in sources(error) {
            if let Some(tls_error) = source.downcast_ref::<rustls::Error>() {
                return Some(self.tls(tls_error));
            }
            let Some(io) = source.downcast_ref::<io::Error>() else {
                if source.to_string().starts_with("dns error") {
                    return Some(Cause::NameNotResolved);
                }
                continue;
            };

            // The source of an I/O error is not the error that it wraps, but the source of that error.
            if let Some(wrapped) = io.get_ref().and_then(|inner| self.cause(inner)) {
                return Some(wrapped);
            }
            if of_io.is_none() {
                of_io = self.alert_text(&io.to_string()).or_else(|| self.io(io));
            }
        }
        of_io
    }

    /// Converts an error of TLS.
    pub(crate) fn tls(self, error: &rustls::Error) -> Cause {
        match error {
            rustls::Error::InvalidCertificate(error) => certificate(error),
            // The first bytes are not a TLS record, so the server does not use TLS.
            rustls::Error::InvalidMessage(_) => Cause::ServerIsPlain,
            rustls::Error::AlertReceived(alert) => self.alert(*alert),
            other => Cause::Tls(other.to_string()),
        }
    }

    /// Converts an alert of the server. A refusal is about the client's certificate, if it has one.
    fn alert(self, alert: AlertDescription) -> Cause {
        if alert == AlertDescription::CertificateRequired {
            return Cause::ClientCertificateRequired;
        }
        if !REFUSALS.contains(&alert) {
            return Cause::Tls(format!("the server answered with the alert {alert:?}"));
        }
        if self.has_certificate {
            Cause::ClientCertificateRefused
        } else {
            Cause::ClientCertificateRequired
        }
    }

    /// Finds the alert in an error's message. The HTTP/2 client keeps only the message of an error that ends a
    /// connection.
    fn alert_text(self, text: &str) -> Option<Cause> {
        let (_, name) = text.split_once("received fatal alert: ")?;
        let mut refusals = REFUSALS
            .into_iter()
            .chain([AlertDescription::CertificateRequired]);
        let cause = match refusals.find(|alert| format!("{alert:?}") == name) {
            Some(alert) => self.alert(alert),
            None => Cause::Tls(format!("the server answered with the alert {name}")),
        };
        Some(cause)
    }

    /// Converts an error of the system; `None` if it does not concern the connection.
    fn io(self, error: &io::Error) -> Option<Cause> {
        Some(match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::Refused,
            // System errors have a number. An error without one comes from our own time limit, which here is always the
            // one for connecting.
            io::ErrorKind::TimedOut if error.raw_os_error().is_none() => Cause::TimedOut(self.connect),
            io::ErrorKind::TimedOut => Cause::Network(error.to_string()),
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::PermissionDenied => Cause::Network(error.to_string()),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Cause::Broken(error.to_string()),
            _ => return None,
        })
    }
}

/// Converts the reason why the server's certificate is refused.
fn certificate(error: &CertificateError) -> Cause {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Cause::CertificateNotTrusted,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Cause::CertificateExpired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Cause::CertificateWrongName
        }
        other => Cause::CertificateBad(other.to_string()),
    }
}

/// An error and its sources, the outermost first.
pub(crate) fn sources<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The message of the innermost source. The outer errors only wrap it, with messages such as "transport error".
pub(crate) fn innermost(error: &(dyn StdError + 'static)) -> String {
    sources(error).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(has_certificate: bool) -> Attempt {
        Attempt {
            timeout: 60,
            connect: 5,
            has_certificate,
        }
    }

    #[test]
    fn causes_inside_io_errors_are_found() {
        let cause = |error: io::Error| attempt(true).cause(&error);
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, tls);
        assert_eq!(cause(wrapped), Some(Cause::CertificateNotTrusted));
        let alert = rustls::Error::AlertReceived(AlertDescription::BadCertificate);
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, alert);
        assert_eq!(cause(wrapped), Some(Cause::ClientCertificateRefused));
        let text = io::Error::other("received fatal alert: UnknownCA");
        assert_eq!(cause(text), Some(Cause::ClientCertificateRefused));
        assert_eq!(
            cause(io::ErrorKind::ConnectionRefused.into()),
            Some(Cause::Refused)
        );
        assert_eq!(cause(io::ErrorKind::TimedOut.into()), Some(Cause::TimedOut(5)));
        assert_eq!(cause(io::Error::other("no idea")), None);
    }

    #[test]
    fn an_alert_refuses_the_certificate_or_asks_for_one() {
        let cause =
            |alert, has_certificate| attempt(has_certificate).tls(&rustls::Error::AlertReceived(alert));
        assert_eq!(
            cause(AlertDescription::BadCertificate, true),
            Cause::ClientCertificateRefused
        );
        assert_eq!(
            cause(AlertDescription::BadCertificate, false),
            Cause::ClientCertificateRequired
        );
        assert_eq!(
            cause(AlertDescription::CertificateRequired, true),
            Cause::ClientCertificateRequired
        );
        let other = Cause::Tls("the server answered with the alert ProtocolVersion".into());
        assert_eq!(cause(AlertDescription::ProtocolVersion, true), other);
    }
}
