//! HTTP on this machine: a client, and the side of the server for proxies and fake servers.

use std::convert::Infallible;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response as Answer};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::runtime::block_on;

/// The body of a request or of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A client. Its clones share its connections, which stay open.
pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// A response: its status code and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

/// Creates a client that uses HTTP/1.1 or, without TLS, HTTP/2. For TLS, it trusts only this authority.
pub(crate) fn client(ca: Option<&Path>, http2: bool) -> Result<Client> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = ca {
        let pem = fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        roots.add(CertificateDer::from_pem_slice(&pem).with_context(|| ca.display().to_string())?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1();
    let connector = connector.wrap_connector(tcp);
    // A server may close a connection that is idle for longer.
    let idle = Duration::from_secs(30);
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    Ok(builder.http2_only(http2).pool_idle_timeout(idle).build(connector))
}

/// Sends a request and reads its response. `limit` is the time limit.
pub(crate) fn exchange(client: &Client, request: Request<String>, limit: Duration) -> Result<Response> {
    let what = format!("{} {}", request.method(), request.uri());
    let work = async || -> Result<Response> {
        let answer = client.request(request.map(body)).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(Response {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    };
    block_on(async || timeout(limit, work()).await?).context(what)
}

pub(crate) fn body(text: impl Into<Bytes>) -> Body {
    Full::from(text.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Listens at a free port on 127.0.0.1. Also returns the port.
pub(crate) fn listen() -> (TcpListener, u16) {
    let listener = block_on(async || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await).expect("a free port");
    let port = listener.local_addr().expect("a port").port();
    (listener, port)
}

/// Answers requests of HTTP/1.1 and HTTP/2. If `answer` returns `None`, the connection is closed without a response. An
/// answer is made to its end even if the client closes the connection.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Option<Answer<Body>>> + Send + 'static,
{
    // Closes the connections with the listener.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, answer.clone()));
    }
}

async fn converse<F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Option<Answer<Body>>> + Send + 'static,
{
    stream.set_nodelay(true).ok();
    let torn = Arc::new(Notify::new());
    let service = service_fn(|request| {
        let answer = tokio::spawn(answer(request));
        let torn = Arc::clone(&torn);
        async move {
            match answer.await {
                Ok(Some(answer)) => Ok::<_, Infallible>(answer),
                _ => {
                    torn.notify_one();
                    std::future::pending().await
                }
            }
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = server.serve_connection(TokioIo::new(stream), service) => {}
        () = torn.notified() => {}
    }
}
