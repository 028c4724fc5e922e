//! Endpoints: their URLs, their TLS settings, and connections to them.

use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::{classify, handshake};
use crate::error::{Cause, Failure, innermost};
use crate::settings::{EtcdSettings, TlsSettings};

/// Time until a silent connection is checked. Calico uses 30 s (facts 1.16), but here a person waits. etcd allows at
/// most one such check every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(8);
/// Time for the server to answer such a check. Calico uses 10 s.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// The HTTP/2 window of a request: the bytes of its answer that the server may send before it must wait for this
/// program.
const STREAM_WINDOW: u32 = 4 << 20;
/// The HTTP/2 window of all requests together: enough for four large answers at the same time.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Maximum time of each attempt to find out why a connection broke.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Opens a connection to `url`, a normalised endpoint.
pub(crate) async fn open(url: &str, settings: &EtcdSettings) -> Result<Channel, Failure> {
    let mut tls = None;
    if url.starts_with("https://") {
        tls = Some(tls_config(&settings.tls));
    }
    connect(url, tls, settings).await
}

/// Opens a connection with the time limits and window sizes of calipam.
async fn connect(
    url: &str,
    tls: Option<ClientTlsConfig>,
    settings: &EtcdSettings,
) -> Result<Channel, Failure> {
    let attempt = settings.attempt(settings.timeouts.connect);
    let failed = |error: tonic::transport::Error| classify::connecting(&error, attempt);
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(failed)?
        .connect_timeout(settings.timeouts.connect)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEP_ALIVE_INTERVAL))
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).map_err(|e| Cause::Tls(innermost(&e)))?;
    }
    match tokio::time::timeout(settings.timeouts.connect, endpoint.connect()).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(Cause::TimedOut(attempt.timeout).into()),
    }
}

/// Converts the TLS settings; without a CA certificate, the system's CAs are trusted.
fn tls_config(tls: &TlsSettings) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key.reveal()));
    }
    config
}

/// Finds out why a connection broke: because only one side spoke TLS, or for a reason that the server states. Returns
/// `failure` itself if it says more already, or if no reason is found.
pub(crate) async fn explain(url: &str, settings: &EtcdSettings, failure: Failure) -> Failure {
    let may_be_tls = matches!(
        failure,
        Failure::NotEtcd(_) | Failure::Connection(Cause::Broken(_) | Cause::TimedOut(_) | Cause::Tls(_))
    );
    if !may_be_tls {
        return failure;
    }
    let Some((scheme, host)) = url.split_once("://") else {
        return failure;
    };
    let mut quick = settings.clone();
    quick.timeouts.connect = settings.timeouts.connect.min(PROBE_LIMIT);

    if scheme == "http" {
        return if speaks_tls(host, &quick).await {
            Cause::ServerWantsTls.into()
        } else {
            failure
        };
    }
    if speaks_plain(host, &quick).await {
        return Cause::ServerIsPlain.into();
    }
    match stated_reason(host, &quick).await {
        Some(cause) => Failure::Connection(cause),
        None => failure,
    }
}

/// True if a server answers without TLS.
async fn speaks_plain(host: &str, settings: &EtcdSettings) -> bool {
    let without_tls = None;
    match connect(&format!("http://{host}"), without_tls, settings).await {
        Ok(channel) => super::probe_plain(channel, settings.timeouts.connect).await,
        Err(_) => false,
    }
}

/// True if a server answers a TLS handshake.
async fn speaks_tls(host: &str, settings: &EtcdSettings) -> bool {
    // Without a trusted CA, a handshake with a TLS server fails at its certificate.
    let tls_without_ca = ClientTlsConfig::new();
    match connect(&format!("https://{host}"), Some(tls_without_ca), settings).await {
        Ok(_) => true,
        Err(failure) => matches!(
            failure,
            Failure::Connection(
                Cause::CertificateNotTrusted
                    | Cause::CertificateExpired
                    | Cause::CertificateWrongName
                    | Cause::CertificateBad(_)
                    | Cause::ClientCertificateRequired
            )
        ),
    }
}

/// The reason that a server gives before it closes the connection, if it can be found out.
async fn stated_reason(authority: &str, settings: &EtcdSettings) -> Option<Cause> {
    let authority = authority.to_owned();
    let tls = settings.tls.clone();
    let limit = settings.timeouts.connect;
    tokio::task::spawn_blocking(move || handshake::tls_error(&authority, &tls, limit))
        .await
        .ok()?
}
