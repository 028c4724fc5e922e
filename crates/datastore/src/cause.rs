//! Why a connection did not come about or ended, whatever is spoken over it: what I/O, name resolution and TLS
//! say, which HTTP clients wrap several times.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// What broke a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The name has no address.
    NameNotResolved,
    /// Nothing listens there.
    Refused,
    /// No answer came in time.
    TimedOut,
    /// The network does not reach it.
    Network(String),
    /// The connection was lost.
    Broken(String),
    /// The first bytes are no TLS record: the server began to speak in plain text.
    ServerIsPlain,
    /// No trusted authority has signed the server's certificate.
    CertificateNotTrusted,
    /// The server's certificate has expired or is not valid yet.
    CertificateExpired,
    /// The server's certificate names other hosts.
    CertificateWrongName,
    /// The server's certificate is faulty in another way.
    CertificateBad(String),
    /// The server ended the handshake with this alert.
    Alert(AlertDescription),
    /// TLS failed in another way.
    Tls(String),
}

/// The alerts by which servers refuse the certificate of a client.
pub(crate) const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnknownCA,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::HandshakeFailure,
    AlertDescription::AccessDenied,
];

impl Cause {
    /// Looks through an error and what caused it. `None` where nothing in it is known.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut found = None;
        for cause in causes(error) {
            if let Some(error) = cause.downcast_ref::<rustls::Error>() {
                return Some(Self::of_tls(error));
            }
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                // An error that is wrapped into an I/O error is no `source` of it.
                if let Some(inner) = io.get_ref().and_then(|inner| Self::of(inner)) {
                    return Some(inner);
                }
                found = found.or_else(|| of_alert_text(&io.to_string())).or_else(|| of_io(io));
            } else if cause.to_string().starts_with("dns error") {
                return Some(Self::NameNotResolved);
            }
        }
        found
    }

    /// What an error of TLS means.
    pub fn of_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(certificate) => of_certificate(certificate),
            rustls::Error::InvalidMessage(_) => Self::ServerIsPlain,
            rustls::Error::AlertReceived(alert) => Self::Alert(*alert),
            other => Self::Tls(other.to_string()),
        }
    }
}

/// An error and its sources, from the outermost to the innermost.
pub(crate) fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What the innermost cause says: the outer ones are wrappers such as "transport error".
pub(crate) fn innermost(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn of_io(error: &io::Error) -> Option<Cause> {
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::Refused,
        io::ErrorKind::TimedOut => Cause::TimedOut,
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

/// HTTP/2 keeps only the text of an error that ends a connection.
fn of_alert_text(text: &str) -> Option<Cause> {
    let (_, name) = text.split_once("received fatal alert: ")?;
    let known = REFUSALS.into_iter().chain([AlertDescription::CertificateRequired]);
    let alert = known.into_iter().find(|alert| format!("{alert:?}") == name);
    Some(alert.map_or_else(|| Cause::Tls(format!("the server answered with the alert {name}")), Cause::Alert))
}

fn of_certificate(error: &CertificateError) -> Cause {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_inside_io_errors_are_found() {
        let of = |error: io::Error| Cause::of(&error);
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(of(io::Error::new(io::ErrorKind::InvalidData, tls)), Some(Cause::CertificateNotTrusted));
        let alert = rustls::Error::AlertReceived(AlertDescription::BadCertificate);
        let bad = Some(Cause::Alert(AlertDescription::BadCertificate));
        assert_eq!(of(io::Error::new(io::ErrorKind::InvalidData, alert)), bad);
        let unknown = Some(Cause::Alert(AlertDescription::UnknownCA));
        assert_eq!(of(io::Error::other("received fatal alert: UnknownCA")), unknown);
        assert_eq!(of(io::ErrorKind::ConnectionRefused.into()), Some(Cause::Refused));
        assert_eq!(of(io::ErrorKind::TimedOut.into()), Some(Cause::TimedOut));
        assert_eq!(of(io::Error::other("no idea")), None);
    }
}
