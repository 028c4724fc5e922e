//! An etcd v3 server: connecting with failover, authentication, and ranges of keys as bytes.
//!
//! Requests go to one endpoint: every read of a run is at one revision, and a member that has answered at
//! a revision once can answer at it again without asking the others.

mod classify;
mod codec;
pub(crate) mod endpoint;
mod handshake;
pub(crate) mod message;
pub(crate) mod transaction;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OnceCell;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

use self::codec::RawCodec;
use self::message::{Range, Reply, decode_transaction, encode_transaction};
use crate::error::{Cause, Error, Failure, Result, Server, Tried};
use crate::secret::redact_url;
use crate::settings::EtcdSettings;

/// How long the first endpoint has for itself before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(300);

/// A connection to an etcd v3 server.
#[derive(Debug)]
pub struct EtcdClient {
    endpoint: String,
    settings: EtcdSettings,
    channel: Channel,
    /// A second connection, opened for reading much; `None` where that failed.
    second: OnceCell<Option<Channel>>,
    turn: AtomicUsize,
    requests: Arc<AtomicU64>,
    token: Mutex<Option<AsciiMetadataValue>>,
}

impl EtcdClient {
    /// Connects to the first endpoint that answers. They are tried in order; the next one is tried as
    /// soon as one has failed, or has not answered for 0.3 s.
    ///
    /// # Errors
    /// Where none can be used, with what happened at each.
    pub async fn connect(settings: &EtcdSettings) -> Result<Self> {
        let mut waiting = settings.endpoints.iter();
        let mut running = tokio::task::JoinSet::new();
        let mut tried = Vec::new();
        loop {
            if let Some(endpoint) = waiting.next() {
                let (endpoint, settings) = (endpoint.clone(), settings.clone());
                running.spawn(async move {
                    let result = Self::connect_to(&endpoint, &settings).await;
                    (endpoint, result)
                });
            }
            // With all endpoints under way there is nothing to do but to wait for one.
            let patience = if waiting.len() == 0 { Duration::MAX } else { STAGGER };
            match tokio::time::timeout(patience, running.join_next()).await {
                Err(_) => {}
                Ok(Some(Ok((_, Ok(client))))) => return Ok(client),
                Ok(Some(Ok((endpoint, Err(failure))))) => {
                    tried.push(Tried { endpoint: redact_url(&endpoint), failure });
                }
                Ok(Some(Err(join))) => {
                    tried.push(Tried { endpoint: String::new(), failure: Failure::Other(join.to_string()) })
                }
                Ok(None) if waiting.len() == 0 => return Err(Error::Connect(tried)),
                Ok(None) => {}
            }
        }
    }

    async fn connect_to(endpoint: &str, settings: &EtcdSettings) -> std::result::Result<Self, Failure> {
        match Self::connect_once(endpoint, settings).await {
            Ok(client) => Ok(client),
            Err(failure) => Err(endpoint::explain(endpoint, settings, failure).await),
        }
    }

    async fn connect_once(endpoint: &str, settings: &EtcdSettings) -> std::result::Result<Self, Failure> {
        let client = Self {
            endpoint: endpoint.to_owned(),
            settings: settings.clone(),
            channel: endpoint::open(endpoint, settings).await?,
            second: OnceCell::new(),
            turn: AtomicUsize::new(0),
            requests: Arc::new(AtomicU64::new(0)),
            token: Mutex::new(None),
        };
        let ready = async {
            client.authenticate().await?;
            // With TLS 1.3 a refused client certificate shows at the first request only.
            client.probe().await
        };
        let limit = settings.connect_timeout;
        tokio::time::timeout(limit, ready).await.unwrap_or(Err(Cause::TimedOut(limit.as_secs()).into()))?;
        Ok(client)
    }

    /// A new connection to whichever endpoint answers now, after this one broke. Requests are counted
    /// together.
    pub(crate) async fn again(&self) -> Result<Arc<Self>> {
        let mut client = Self::connect(&self.settings).await?;
        self.requests.fetch_add(client.request_count(), Ordering::Relaxed);
        client.requests = Arc::clone(&self.requests);
        Ok(Arc::new(client))
    }

    /// Opens a second connection to the same endpoint, for reading much: one alone keeps one core busy.
    pub(crate) async fn widen(&self) {
        let open = async || endpoint::open(&self.endpoint, &self.settings).await.ok();
        self.second.get_or_init(open).await;
    }

    /// The endpoint that is used, without user and password.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Number of requests that were sent so far.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Reads one range. `what` names it in errors.
    pub(crate) async fn range(&self, range: &Range, what: &str) -> Result<Reply> {
        let message = self.call("/etcdserverpb.KV/Range", range.encode().into()).await;
        message
            .and_then(|m| Reply::decode(m).ok_or_else(malformed))
            .map_err(|failure| self.error(what, failure))
    }

    /// Reads several ranges at one revision, in one request.
    pub(crate) async fn ranges(&self, ranges: &[Range], what: &str) -> Result<Vec<Reply>> {
        let message = self.call("/etcdserverpb.KV/Txn", encode_transaction(ranges).into()).await;
        message
            .and_then(|m| decode_transaction(&m).filter(|r| r.len() == ranges.len()).ok_or_else(malformed))
            .map_err(|failure| self.error(what, failure))
    }

    pub(crate) fn error(&self, what: &str, failure: Failure) -> Error {
        let endpoint = redact_url(&self.endpoint);
        Error::Request { server: Server::Etcd, endpoint, what: what.to_owned(), failure }
    }

    pub(crate) fn write_error(&self, what: &str, failure: Failure) -> Error {
        let endpoint = redact_url(&self.endpoint);
        Error::Write { server: Server::Etcd, endpoint, what: what.to_owned(), failure }
    }

    /// Gets a token where user and password are set.
    async fn authenticate(&self) -> std::result::Result<(), Failure> {
        let Some((user, password)) = &self.settings.user else { return Ok(()) };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let channel = etcd_client::Channel::Tonic(self.channel.clone());
        let result = async {
            let mut client = etcd_client::Client::from_channel(channel, None).await?.auth_client();
            client.authenticate(user.clone(), password.reveal().to_owned()).await
        };
        let token = match result.await {
            Ok(response) => Some(response.token().parse().map_err(|_| malformed())?),
            // A server without authentication needs no token; etcd's own client goes on as well.
            Err(etcd_client::Error::GRpcStatus(status)) if status.message().contains("not enabled") => None,
            Err(etcd_client::Error::GRpcStatus(status)) => return Err(self.classify(&status)),
            Err(other) => return Err(Failure::Other(other.to_string())),
        };
        *self.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = token;
        Ok(())
    }

    /// Asks for a key under /calico/, to see whether the server answers.
    async fn probe(&self) -> std::result::Result<(), Failure> {
        let range = Range::key("/calico/ipam/v2/config");
        let message = self.call("/etcdserverpb.KV/Range", range.encode().into()).await?;
        Reply::decode(message).map(drop).ok_or_else(malformed)
    }

    /// Sends one request; where the token has expired, gets a new one and sends it again.
    async fn call(&self, path: &'static str, message: Bytes) -> std::result::Result<Bytes, Failure> {
        match self.send(path, message.clone()).await {
            Err(Failure::AuthNeeded) if self.settings.user.is_some() => {
                self.authenticate().await?;
                self.send(path, message).await
            }
            result => result,
        }
    }

    async fn send(&self, path: &'static str, message: Bytes) -> std::result::Result<Bytes, Failure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let channel = match (self.turn.fetch_add(1, Ordering::Relaxed) % 2, self.second.get()) {
            (1, Some(Some(second))) => second.clone(),
            _ => self.channel.clone(),
        };
        let token = self.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let sent = unary(channel, path, message, token);
        match tokio::time::timeout(self.settings.request_timeout, sent).await {
            Ok(result) => result.map_err(|status| self.classify(&status)),
            Err(_) => Err(Cause::TimedOut(self.settings.request_timeout.as_secs()).into()),
        }
    }

    fn classify(&self, status: &Status) -> Failure {
        classify::status(status, self.settings.attempt(self.settings.request_timeout))
    }
}

/// One request and its answer, as bytes. Answers may have any size.
async fn unary(
    channel: Channel,
    path: &'static str,
    message: Bytes,
    token: Option<AsciiMetadataValue>,
) -> std::result::Result<Bytes, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    let answer = grpc.unary(request, PathAndQuery::from_static(path), RawCodec).await?;
    Ok(answer.into_inner())
}

/// True where a server answers a request in plain text, be it by an error.
async fn probe_plain(channel: &Channel, limit: Duration) -> bool {
    let message = Range::key("/calico/ipam/v2/config").encode().into();
    let sent = unary(channel.clone(), "/etcdserverpb.KV/Range", message, None);
    match tokio::time::timeout(limit, sent).await {
        Ok(Ok(_)) => true,
        Ok(Err(status)) => std::error::Error::source(&status).is_none(),
        Err(_) => false,
    }
}

fn malformed() -> Failure {
    Failure::NotEtcd("its answer cannot be read".into())
}
