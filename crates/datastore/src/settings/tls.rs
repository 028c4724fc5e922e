//! Certificates and keys for etcd, as files or inline.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fields::Values;
use super::{Files, Overrides, TlsSettings};
use crate::error::SettingsError;
use crate::secret::Secret;

/// Reads certificates and key: all inline or all as files (facts 1.16), unless the command line overrides them.
pub(super) fn tls(
    values: &Values,
    overrides: &Overrides,
    files: &impl Files,
) -> Result<TlsSettings, SettingsError> {
    let inline = ["etcdCACert", "etcdCert", "etcdKey"].map(|name| values.text(name));
    let paths = ["etcdCACertFile", "etcdCertFile", "etcdKeyFile"].map(|name| values.text(name));
    if inline.iter().any(Option::is_some) && paths.iter().any(Option::is_some) {
        return Err(SettingsError::invalid(
            "TLS certificates are given both inline and as files",
            "keep either etcdCACert, etcdCert and etcdKey, or etcdCACertFile, etcdCertFile and etcdKeyFile",
        ));
    }

    let read = |content: PemContent, option: &Option<PathBuf>, inline: Option<&str>, path: Option<&str>| {
        if let Some(path) = option {
            checked_pem(read_pem(path, content, files)?, content)
        } else if let Some(text) = inline {
            checked_pem(text.to_owned(), content)
        } else if let Some(path) = path {
            checked_pem(read_pem(Path::new(path), content, files)?, content)
        } else {
            Ok(None)
        }
    };
    let ca = read(PemContent::Ca, &overrides.etcd_cacert, inline[0], paths[0])?;
    let certificate = read(PemContent::Certificate, &overrides.etcd_cert, inline[1], paths[1])?;
    let key = read(PemContent::Key, &overrides.etcd_key, inline[2], paths[2])?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, Secret::new(key))),
        (Some(_), None) => return Err(half("certificate")),
        (None, Some(_)) => return Err(half("key")),
        (None, None) => None,
    };
    Ok(TlsSettings { ca, identity })
}

const PEM: &str = "certificates and keys are PEM files";

/// The content of a PEM text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PemContent {
    Ca,
    Certificate,
    Key,
}

impl PemContent {
    /// The name in errors.
    fn name(self) -> &'static str {
        match self {
            Self::Ca => "CA certificate",
            Self::Certificate => "client certificate",
            Self::Key => "client key",
        }
    }
}

/// The error for a client certificate without its key, or a key without its certificate.
fn half(given: &str) -> SettingsError {
    let message = format!("a client certificate and its key belong together; only the {given} is given");
    SettingsError::invalid(message, "set both ETCD_CERT_FILE and ETCD_KEY_FILE, or neither")
}

/// Checks that text in PEM contains a key, or at least one certificate and no damaged one. The error does not contain
/// the text, which may be secret.
fn check_pem(text: &[u8], content: PemContent) -> Result<(), &'static str> {
    const MISSING: &str = "it has no such PEM block";
    const DAMAGED: &str = "its PEM text is damaged";
    match content {
        PemContent::Key => match PrivateKeyDer::from_pem_slice(text) {
            Ok(_) => Ok(()),
            Err(pem::Error::NoItemsFound) => Err(MISSING),
            Err(_) => Err(DAMAGED),
        },
        PemContent::Ca | PemContent::Certificate => {
            let mut has_certificate = false;
            for certificate in CertificateDer::pem_slice_iter(text) {
                certificate.map_err(|_| DAMAGED)?;
                has_certificate = true;
            }
            if has_certificate { Ok(()) } else { Err(MISSING) }
        }
    }
}

/// Returns the text if it is what it should be.
fn checked_pem(text: String, content: PemContent) -> Result<Option<String>, SettingsError> {
    match check_pem(text.as_bytes(), content) {
        Ok(()) => Ok(Some(text)),
        Err(reason) => {
            let name = content.name();
            Err(SettingsError::invalid(
                format!("the {name} is not usable: {reason}"),
                PEM,
            ))
        }
    }
}

/// Reads a file of certificates or a key.
fn read_pem(path: &Path, content: PemContent, files: &impl Files) -> Result<String, SettingsError> {
    let name = content.name();
    let unreadable = |reason: String| {
        SettingsError::unreadable(
            format!("cannot read the {name} {}: {reason}", path.display()),
            PEM,
        )
    };
    let bytes = files.read(path).map_err(|e| unreadable(e.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".into()))
}
