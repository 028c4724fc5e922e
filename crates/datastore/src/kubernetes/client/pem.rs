//! Reads certificates, keys and a server's URL, as named by settings and options.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use calipam_files::regular;
use http::Uri;
use kube::Config;
use kube::config::KubeconfigError;

use crate::error::Error;
use crate::secret::redact_url;

/// Parses the URL of an API server.
pub(super) fn endpoint(text: &str) -> Result<Uri, Error> {
    let wrong = |reason: &str| Error::Kubeconfig {
        what: format!("the API endpoint {}", redact_url(text)),
        reason: reason.to_owned(),
    };
    let uri: Uri = text.parse().map_err(|_| wrong("it is not a URL"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(wrong("it must begin with https:// or http://")),
    }
}

/// Sets the client's certificate and key.
pub(super) fn set_identity(config: &mut Config, certificate: &Path, key: &Path) -> Result<(), Error> {
    let certificate = read(certificate, "the client certificate")?;
    let key = read(key, "the client key")?;
    let auth = &mut config.auth_info;
    auth.client_certificate_data = Some(STANDARD.encode(certificate));
    auth.client_key_data = Some(STANDARD.encode(key).into());
    auth.client_certificate = None;
    auth.client_key = None;
    Ok(())
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    regular::read(path).map_err(|error| Error::KubeconfigFile {
        what: format!("{what} {}", path.display()),
        reason: error.to_string(),
    })
}

/// The certificates in a PEM file.
pub(super) fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let what = "the CA certificate";
    certificates_of(&read(path, what)?, &format!("{what} {}", path.display()))
}

/// The certificates in PEM text.
pub(super) fn certificates_of(pem: &[u8], what: &str) -> Result<Vec<Vec<u8>>, Error> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.unwrap_or_default();
    if certificates.is_empty() {
        return Err(Error::Kubeconfig {
            what: what.to_owned(),
            reason: "it has no PEM block `CERTIFICATE-----`".into(),
        });
    }
    Ok(certificates
        .into_iter()
        .map(|certificate| certificate.to_vec())
        .collect())
}

/// The error for an unreadable or invalid kubeconfig. Omits a parser's message, which could quote secrets.
pub(super) fn unusable_kubeconfig(what: &str, error: &KubeconfigError) -> Error {
    if let KubeconfigError::ReadConfig(error, _) = error {
        return Error::KubeconfigFile {
            what: what.into(),
            reason: error.to_string(),
        };
    }
    let reason = match error {
        KubeconfigError::Parse(_) => "it is not a kubeconfig in YAML".into(),
        KubeconfigError::CurrentContextNotSet => "it has no current context, and none was given".into(),
        KubeconfigError::LoadClusterOfContext(name) => format!("cluster {name:?} does not exist"),
        KubeconfigError::ParseClusterUrl(_) => "the URL of its cluster cannot be decoded".into(),
        other => other.to_string(),
    };
    Error::Kubeconfig {
        what: what.into(),
        reason,
    }
}
