//! Sends all requests of a short-lived process on one connection.
//!
//! kube's own client speaks HTTP/1: each parallel request opens a connection, whose TLS handshake costs both sides
//! about as much as the rest of a CNI ADD. Here, all requests share one HTTP/2 connection. kube's client is better for
//! a process that lists whole clusters, since its lists arrive over several connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use calipam_files::objects::Accept;
use http::uri::Scheme;
use http::{Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt, RustlsTlsError};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use crate::budget::Budget;
use crate::error::sources;

/// The protocols offered to the server, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A client with one connection, if the server speaks HTTP/2. The budget learns when it is connected.
pub(super) fn client(config: Config, budget: &Budget) -> kube::Result<Client> {
    let has_tls = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    // HTTP/2 is negotiated only by TLS. Proxies are left to kube.
    if !has_tls || config.proxy_url.is_some() {
        budget.connected();
        return Client::try_from(config);
    }
    let transport = Transport {
        connector: connector(&config)?,
        server: config.cluster_url.clone(),
        limit: config.connect_timeout,
        budget: budget.clone(),
        open: Arc::default(),
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(transport);
    Ok(Client::new(service, config.default_namespace))
}

type Connector = HttpsConnector<HttpConnector>;

/// Creates the connector for TLS over TCP, with the protocols and the server name of the configuration.
fn connector(config: &Config) -> kube::Result<Connector> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A frame must not wait until the server has confirmed the one before it.
    tcp.set_nodelay(true);
    Ok(HttpsConnector::new(tcp, tls, true, server_name(config)?))
}

/// The expected name in the server's certificate.
fn server_name(config: &Config) -> kube::Result<Arc<dyn ResolveServerName + Send + Sync>> {
    let Some(name) = &config.tls_server_name else {
        return Ok(Arc::new(DefaultServerNameResolver::default()));
    };
    let name = ServerName::try_from(name.clone())
        .map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
    Ok(Arc::new(FixedServerNameResolver::new(name)))
}

/// Sends requests, and connects before the first one.
#[derive(Clone)]
struct Transport {
    connector: Connector,
    server: Uri,
    /// Time limit to connect.
    limit: Option<Duration>,
    budget: Budget,
    /// Locked while connecting, so that parallel requests wait for one connection.
    open: Arc<Mutex<Option<Open>>>,
}

/// An open connection, by the server's protocol.
#[derive(Clone)]
enum Open {
    /// One connection for all requests.
    Http2(SendRequest<Body>),
    /// A connection for each parallel request.
    Http1(Box<legacy::Client<Connector, Body>>),
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move { transport.send(request).await })
    }
}

impl Transport {
    /// Sends a request. If the server has not begun to process it, sends it once more.
    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let copied = copy(&request);
        let result = self.send_once(request).await;
        if let Err(error) = &result
            && was_not_started(&**error)
            && let Some(copied) = copied
        {
            return self.send_once(copied).await;
        }
        result
    }

    async fn send_once(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        Ok(match self.open_connection().await? {
            Open::Http2(mut requests) => requests.send_request(request).await?,
            Open::Http1(client) => client.request(request).await?,
        })
    }

    /// The open connection, or a new one.
    async fn open_connection(&self) -> Result<Open, BoxError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open
            && connection.is_usable()
        {
            return Ok(connection.clone());
        }
        let connection = match self.limit {
            Some(limit) => timeout(limit, self.connect())
                .await
                .map_err(|late| io::Error::new(io::ErrorKind::TimedOut, late))??,
            None => self.connect().await?,
        };
        self.budget.connected();
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// Opens a connection: HTTP/2 if the server speaks it, otherwise HTTP/1.1.
    async fn connect(&self) -> Result<Open, BoxError> {
        let stream = self.connector.clone().oneshot(self.server.clone()).await?;
        if !stream.connected().is_negotiated_h2() {
            let client = legacy::Client::builder(TokioExecutor::new()).build(self.connector.clone());
            return Ok(Open::Http1(Box::new(client)));
        }
        let (requests, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        // Errors of the connection are returned by the requests in progress.
        tokio::spawn(connection);
        Ok(Open::Http2(requests))
    }
}

impl Open {
    /// False if the server has closed the connection, or accepts no further requests on it.
    fn is_usable(&self) -> bool {
        match self {
            Self::Http2(requests) => !requests.is_closed(),
            Self::Http1(_) => true,
        }
    }
}

/// Creates a request with JSON, for a JSON response.
pub(super) fn json_request(method: Method, path: &str, json: &Value) -> http::Result<Request<Body>> {
    let content_type = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, Accept::Json.header())
        .header(header::CONTENT_TYPE, content_type)
        .body(Body::from(json.to_string().into_bytes()))
}

/// Copies a request; `None` if its body can be read only once.
pub(super) fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// True if the server certainly has not started a request, because the connection no longer accepted the request, or
/// because the server said so. API servers sometimes close connections to spread their clients (`--goaway-chance`).
fn was_not_started(error: &(dyn std::error::Error + 'static)) -> bool {
    for source in sources(error) {
        if let Some(error) = source.downcast_ref::<h2::Error>() {
            let is_refused = error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM);
            if error.is_remote() && is_refused {
                return true;
            }
        }
        if let Some(error) = source.downcast_ref::<hyper::Error>()
            && error.is_canceled()
        {
            return true;
        }
    }
    false
}
