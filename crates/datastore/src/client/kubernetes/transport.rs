//! All requests of a short-lived process through one connection.
//!
//! kube's own client speaks HTTP/1: requests side by side open a connection each, and every TLS handshake costs both sides
//! about as much as all else that they do for an ADD. Here they share one connection of HTTP/2. A process that lists whole
//! clusters is better off with kube's: its lists arrive over several connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use calipam_files::objects::Accept;
use http::uri::Scheme;
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt, RustlsTlsError};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use crate::error::sources;

/// The protocols that the server is offered, the wanted one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A client with one connection, if the server speaks HTTP/2.
pub(super) fn client(config: Config) -> kube::Result<Client> {
    let has_tls = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    // Without TLS there is nothing to agree on HTTP/2 by. How a proxy is passed, kube knows.
    if !has_tls || config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let transport = Transport {
        connector: connector(&config)?,
        server: config.cluster_url.clone(),
        patience: config.connect_timeout,
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

fn connector(config: &Config) -> kube::Result<Connector> {
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A frame must not wait until the server has confirmed the one before it.
    tcp.set_nodelay(true);
    Ok(HttpsConnector::new(tcp, tls, true, server_name(config)?))
}

/// Whose certificate the server has to show.
fn server_name(config: &Config) -> kube::Result<Arc<dyn ResolveServerName + Send + Sync>> {
    let Some(name) = &config.tls_server_name else {
        return Ok(Arc::new(DefaultServerNameResolver::default()));
    };
    let name = ServerName::try_from(name.clone())
        .map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
    Ok(Arc::new(FixedServerNameResolver::new(name)))
}

/// Sends requests, and connects with the first.
#[derive(Clone)]
struct Transport {
    connector: Connector,
    server: Uri,
    /// How long connecting may take.
    patience: Option<Duration>,
    /// Held while connecting, so that requests side by side wait for one connection.
    open: Arc<Mutex<Option<Open>>>,
}

/// What the server speaks.
#[derive(Clone)]
enum Open {
    /// One connection for all requests.
    Http2(SendRequest<Body>),
    /// A connection for each request that is under way.
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
    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let again = copy(&request);
        let answered = self.send_once(request).await;
        match (answered, again) {
            (Err(error), Some(request)) if was_left(&*error) => self.send_once(request).await,
            (answered, _) => answered,
        }
    }

    async fn send_once(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        Ok(match self.opened().await? {
            Open::Http2(mut requests) => requests.send_request(request).await?,
            Open::Http1(client) => client.request(request).await?,
        })
    }

    /// The connection that is open, or a new one.
    async fn opened(&self) -> Result<Open, BoxError> {
        let mut open = self.open.lock().await;
        if let Some(usable) = open.as_ref().filter(|open| open.is_usable()) {
            return Ok(usable.clone());
        }
        let connected = match self.patience {
            Some(patience) => timeout(patience, self.connect())
                .await
                .map_err(|late| io::Error::new(io::ErrorKind::TimedOut, late))??,
            None => self.connect().await?,
        };
        *open = Some(connected.clone());
        Ok(connected)
    }

    async fn connect(&self) -> Result<Open, BoxError> {
        let stream = self.connector.clone().oneshot(self.server.clone()).await?;
        if !stream.connected().is_negotiated_h2() {
            let client = legacy::Client::builder(TokioExecutor::new()).build(self.connector.clone());
            return Ok(Open::Http1(Box::new(client)));
        }
        let (requests, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        // Its errors are those of the requests that are under way.
        tokio::spawn(connection);
        Ok(Open::Http2(requests))
    }
}

impl Open {
    /// False if the server has closed the connection, or takes no further requests on it.
    fn is_usable(&self) -> bool {
        match self {
            Self::Http2(requests) => !requests.is_closed(),
            Self::Http1(_) => true,
        }
    }
}

/// A request that sends JSON, and gets JSON back.
pub(super) fn json_request(
    request: http::request::Builder,
    kind: &str,
    json: Vec<u8>,
) -> http::Result<Request<Body>> {
    let request = request.header(header::ACCEPT, Accept::Json.header());
    request.header(header::CONTENT_TYPE, kind).body(Body::from(json))
}

/// The same request once more; `None` if its body can be read only once.
pub(super) fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// True if the server is known not to have begun with a request: the connection took it no more, or the server said so.
/// API servers end connections now and then to spread their clients (`--goaway-chance`).
fn was_left(error: &(dyn std::error::Error + 'static)) -> bool {
    sources(error).any(|source| {
        let refused = source.downcast_ref::<h2::Error>().is_some_and(|error| {
            error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
        });
        refused || source.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    })
}
