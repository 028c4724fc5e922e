//! Certificates for servers and clients on 127.0.0.1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The common name of client certificates.
const ADMINISTRATOR: &str = "root";

/// A certificate and its key as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    /// The private key, PKCS #8.
    pub key: PathBuf,
}

/// A test's certificate authority, the identities that it signed, and a client of another authority.
#[derive(Debug, Clone)]
pub struct Pki {
    /// The authority's certificate, which clients and servers trust.
    pub ca: PathBuf,
    /// The identity of servers, for 127.0.0.1 and localhost.
    pub server: Identity,
    /// The identity of a client that servers accept. It is an administrator: its common name is `root` for etcd, and
    /// its organization is `system:masters` for Kubernetes.
    pub client: Identity,
    /// The identity of a client of another authority. Servers that require certificates refuse it.
    pub stranger: Identity,
    /// The certificate of the other authority. A client that trusts only this one refuses the server.
    pub stranger_ca: PathBuf,
}

impl Pki {
    /// Creates all files in `folder`, which must exist.
    pub fn create(folder: &Path) -> Result<Self> {
        let pki = Self::in_folder(folder);
        let home = Authority::create("calipam test authority")?;
        write(&pki.ca, &home.certificate)?;
        home.sign(&pki.server, "calipam test server")?;
        home.sign(&pki.client, ADMINISTRATOR)?;

        let away = Authority::create("another authority")?;
        away.sign(&pki.stranger, ADMINISTRATOR)?;
        write(&pki.stranger_ca, &away.certificate)?;
        Ok(pki)
    }

    /// The files that were created in `folder`.
    pub(super) fn in_folder(folder: &Path) -> Self {
        let identity = |name: &str| Identity {
            certificate: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
        };
        Self {
            ca: folder.join("ca.crt"),
            server: identity("server"),
            client: identity("client"),
            stranger: identity("stranger"),
            stranger_ca: folder.join("stranger-ca.crt"),
        }
    }
}

/// Writes a text file.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn create(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Signs a certificate for this machine, and writes it and its key. It is valid for servers and for clients, since
    /// etcd's HTTP gateway uses the server's certificate to call etcd.
    fn sign(&self, files: &Identity, common_name: &str) -> Result<()> {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        if common_name == ADMINISTRATOR {
            params
                .distinguished_name
                .push(DnType::OrganizationName, "system:masters");
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        write(&files.certificate, &certificate.pem())?;
        write(&files.key, &key.serialize_pem())
    }
}
