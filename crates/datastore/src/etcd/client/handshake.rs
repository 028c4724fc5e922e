//! A bare TLS handshake that finds out why a server closes the connection. With TLS 1.3, a server rejects the client's
//! certificate only after the client has finished its part. An HTTP/2 client may then miss the alert before the
//! connection ends. Here, nothing but the handshake uses the connection.

use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::{Attempt, Cause};
use crate::settings::TlsSettings;

/// Connects to a server to find out why its TLS handshake fails; `None` if it does not fail, or if the settings have no
/// CA certificate. Blocks while the name is resolved, then for up to `limit` in each step.
pub(crate) fn tls_error(authority: &str, tls: &TlsSettings, limit: Duration) -> Option<Cause> {
    let config = config(tls)?;
    let (host, _) = authority.rsplit_once(':')?;
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).ok()?;

    let address = authority.to_socket_addrs().ok()?.next()?;
    let socket = TcpStream::connect_timeout(&address, limit).ok()?;
    socket.set_read_timeout(Some(limit)).ok()?;
    socket.set_write_timeout(Some(limit)).ok()?;

    let connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut stream = StreamOwned::new(connection, socket);

    // Reading makes the handshake, and then waits for what the server sends after it.
    let error = stream.read(&mut [0; 1]).err()?;
    let found = error.get_ref()?.downcast_ref::<rustls::Error>()?;

    let attempt = Attempt {
        timeout: limit.as_secs(),
        connect: limit.as_secs(),
        has_certificate: tls.identity.is_some(),
    };
    Some(attempt.tls(found))
}

/// Parses the certificates in PEM text; `None` if one is damaged.
fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let parsed: Result<_, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    parsed.ok()
}

/// The TLS configuration with the settings' certificates; `None` without a CA, or if a certificate cannot be read.
fn config(tls: &TlsSettings) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(tls.ca.as_deref()?)?);

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes()).ok()?;
            builder.with_client_auth_cert(certificates(chain)?, key).ok()?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(config)
}
