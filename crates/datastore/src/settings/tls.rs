//! Certificates and keys for etcd, as files or inline.

use std::path::Path;

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
    let named = ["etcdCACertFile", "etcdCertFile", "etcdKeyFile"].map(|name| values.text(name));
    let whats = ["CA certificate", "client certificate", "client key"];
    if inline.iter().any(Option::is_some) && named.iter().any(Option::is_some) {
        return Err(SettingsError::invalid(
            "TLS certificates are given both inline and as files",
            "keep either etcdCACert, etcdCert and etcdKey, or etcdCACertFile, etcdCertFile and etcdKeyFile",
        ));
    }
    let mut pems = [None, None, None];
    let given = [&overrides.etcd_cacert, &overrides.etcd_cert, &overrides.etcd_key];
    for (i, what) in whats.into_iter().enumerate() {
        pems[i] = match (given[i], inline[i], named[i]) {
            (Some(path), _, _) => Some(read_pem(path, what, files)?),
            (None, Some(text), _) => Some(text.to_owned()),
            (None, None, Some(path)) => Some(read_pem(Path::new(path), what, files)?),
            (None, None, None) => None,
        };
        if let Some(text) = &pems[i] {
            check_pem(text.as_bytes(), i == 2).map_err(|reason| {
                SettingsError::invalid(format!("the {what} is not usable: {reason}"), PEM)
            })?;
        }
    }
    let [ca, certificate, key] = pems;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, Secret::new(key))),
        (Some(_), None) => return Err(half("certificate")),
        (None, Some(_)) => return Err(half("key")),
        (None, None) => None,
    };
    Ok(TlsSettings { ca, identity })
}

const PEM: &str = "certificates and keys are PEM files";

/// The error for a client certificate without its key, or a key without its certificate.
fn half(given: &str) -> SettingsError {
    let message = format!("a client certificate and its key belong together; only the {given} is given");
    SettingsError::invalid(message, "set both ETCD_CERT_FILE and ETCD_KEY_FILE, or neither")
}

/// Checks text in PEM; the error does not contain the text.
fn check_pem(text: &[u8], is_key: bool) -> Result<(), &'static str> {
    let reason = |error: pem::Error| match error {
        pem::Error::NoItemsFound => "it has no such PEM block",
        _ => "its PEM text is damaged",
    };
    if is_key {
        return PrivateKeyDer::from_pem_slice(text).map(drop).map_err(reason);
    }
    let mut blocks = CertificateDer::pem_slice_iter(text);
    blocks
        .next()
        .unwrap_or(Err(pem::Error::NoItemsFound))
        .map_err(reason)?;
    blocks.try_for_each(|block| block.map(drop).map_err(reason))
}

/// Reads a file of certificates or a key. `what` names it in errors.
fn read_pem(path: &Path, what: &'static str, files: &impl Files) -> Result<String, SettingsError> {
    let unreadable = |reason: String| {
        SettingsError::unreadable(
            format!("cannot read the {what} {}: {reason}", path.display()),
            PEM,
        )
    };
    let bytes = files.read(path).map_err(|e| unreadable(e.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".into()))
}
