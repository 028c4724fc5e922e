//! Endpoints: their URLs, their TLS settings, and connections to them.

use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::{classify, handshake};
use crate::error::{Cause, Failure, innermost};
use crate::settings::{EtcdSettings, TlsSettings};

/// Time until a silent connection is checked, and time for the server to answer that check. Calico uses 30 s and 10 s
/// (facts 1.16), but here a person waits. etcd allows at most one such check every 5 s.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(4));
/// The HTTP/2 window of a request: the bytes of its answer that the server may send before it must wait for this program.
const STREAM_WINDOW: u32 = 4 << 20;
/// The HTTP/2 window of all requests together: enough for four large answers at the same time.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Opens a connection to `url`, a normalised endpoint.
pub(crate) async fn open(url: &str, settings: &EtcdSettings) -> Result<Channel, Failure> {
    let tls = url.starts_with("https://").then(|| tls_config(&settings.tls));
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
        .tcp_keepalive(Some(KEEP_ALIVE.0))
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
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

/// Finds out if a connection broke because only one side spoke TLS, or for a reason that the server states.
pub(crate) async fn explain(url: &str, settings: &EtcdSettings, failure: Failure) -> Failure {
    if !matches!(
        failure,
        Failure::NotEtcd(_) | Failure::Connection(Cause::Broken(_) | Cause::TimedOut(_) | Cause::Tls(_))
    ) {
        return failure;
    }
    let mut quick = settings.clone();
    quick.timeouts.connect = settings.timeouts.connect.min(Duration::from_secs(2));
    match url.split_once("://") {
        Some(("http", host)) => {
            // Without a trusted CA, a handshake with a TLS server fails at its certificate.
            let tls = ClientTlsConfig::new();
            match connect(&format!("https://{host}"), Some(tls), &quick).await {
                Err(Failure::Connection(
                    Cause::CertificateNotTrusted
                    | Cause::CertificateExpired
                    | Cause::CertificateWrongName
                    | Cause::CertificateBad(_)
                    | Cause::ClientCertificateRequired,
                ))
                | Ok(_) => Cause::ServerWantsTls.into(),
                Err(_) => failure,
            }
        }
        Some((_, host)) => match connect(&format!("http://{host}"), None, &quick).await {
            Ok(channel) if super::probe_plain(channel.clone(), quick.timeouts.connect).await => {
                Cause::ServerIsPlain.into()
            }
            _ => stated_reason(host, &quick)
                .await
                .map_or(failure, Failure::Connection),
        },
        None => failure,
    }
}

/// The reason that a server gives before it closes the connection, if it can be found out.
async fn stated_reason(authority: &str, settings: &EtcdSettings) -> Option<Cause> {
    let authority = authority.to_owned();
    let tls = settings.tls.clone();
    let limit = settings.timeouts.connect;
    tokio::task::spawn_blocking(move || handshake::reason(&authority, &tls, limit))
        .await
        .ok()?
}
