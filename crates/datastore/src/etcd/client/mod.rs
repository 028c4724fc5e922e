//! An etcd v3 client: connections with failover, authentication, reads and writes.
//!
//! A client sends all requests to one endpoint. All parts of a whole read are at one revision. A member that has
//! answered at a revision once can do so again without asking the other members.

mod bulk;
mod classify;
mod connect;
pub(crate) mod endpoint;
mod handshake;
mod range;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_files::raw::RawEntry;
use calipam_model::config::ClusterInformation;
use calipam_model::key::Key;
use calipam_model::parallel::lock;
use etcd_client::{GetResponse, KvClient, Txn, TxnOpResponse, TxnResponse};
use tokio::sync::OnceCell;
use tonic::body::Body;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

pub(crate) use self::bulk::Reply;
pub(crate) use self::classify::FUTURE;
pub(crate) use self::connect::Proof;
pub(crate) use self::range::Range;
pub(crate) use self::watch::{Change, ExpectedChanges};
use crate::budget::Budget;
use crate::error::{Error, Failure, Result, Server};
use crate::secret::redact_url;
use crate::settings::EtcdSettings;
use crate::tasks::Pending;

/// A connection to an etcd v3 server.
pub struct EtcdClient {
    endpoint: String,
    /// The settings, without endpoints if a test has provided the transport.
    settings: EtcdSettings,
    budget: Budget,
    transport: Transport,
    /// etcd-client's client for keys and transactions.
    kv: KvClient,
    /// A second connection for large reads, empty until [`Self::widen`]; `None` if it failed.
    second_transport: OnceCell<Option<Transport>>,
    /// The number of large reads so far, which take turns on the two connections.
    large_reads: AtomicUsize,
    requests: Arc<AtomicU64>,
    token: Token,
}

/// The transport of gRPC requests to a server: a connection, or a replacement in tests.
pub type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, TransportError>;

/// The reason why a request or its answer was not transported.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(#[source] pub BoxError);

/// A connection that sends the user's token with each request.
type AuthorizedChannel = InterceptedService<Transport, Token>;

/// The user's token, if there is one. etcd-client does not reveal its own token, but the ranges of a whole read, which
/// bypass etcd-client, also need one.
#[derive(Clone, Default)]
struct Token(Arc<Mutex<Option<AsciiMetadataValue>>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = lock(&self.0).clone() {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The answers to several ranges, all at one revision.
#[derive(Debug)]
pub(crate) struct Answers {
    pub revision: i64,
    pub cluster_id: u64,
    /// The Raft term, which rises with each election, and starts over if a member is created from a backup.
    pub raft_term: u64,
    /// The answers, in the order of the requested ranges.
    pub ranges: Vec<GetResponse>,
}

impl Answers {
    pub(crate) fn entries(&self) -> impl Iterator<Item = RawEntry<'_>> {
        self.ranges.iter().flat_map(entries)
    }

    /// The GUID of the cluster; empty if it has none, or if the cluster information was not read or is invalid.
    pub(crate) fn guid(&self) -> String {
        let key = information_key();
        let Some(entry) = self.entries().find(|entry| entry.key == key.as_bytes()) else {
            return String::new();
        };
        match ClusterInformation::parse(entry.value) {
            Ok(information) => information.guid,
            Err(_) => String::new(),
        }
    }
}

fn information_key() -> String {
    Key::cluster_information().to_string()
}

/// The entries of one answer, in the order of their keys.
pub(crate) fn entries(answer: &GetResponse) -> impl Iterator<Item = RawEntry<'_>> {
    answer.kvs().iter().map(|kv| RawEntry {
        key: kv.key(),
        value: kv.value(),
        mod_revision: kv.mod_revision(),
        create_revision: kv.create_revision(),
        version: kv.version(),
        lease: kv.lease(),
    })
}

impl EtcdClient {
    /// The current endpoint, without user and password.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The time that this run may wait for etcd.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// True if another endpoint may answer instead.
    pub(crate) fn has_other_endpoints(&self) -> bool {
        self.settings.endpoints.len() > 1
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Reads several ranges at one revision, in one request. `what` names them in errors.
    pub(crate) fn get<'a>(&'a self, ranges: &'a [Range], what: &'a str) -> Pending<'a, Result<Answers>> {
        Box::pin(async move {
            tracing::debug!("{}: read {what}", redact_url(&self.endpoint));
            let operations: Vec<_> = ranges.iter().map(Range::operation).collect();
            let response = self
                .transact(Txn::new().and_then(operations))
                .await
                .map_err(|failure| self.error(what, failure))?;

            let mut answers = Vec::with_capacity(ranges.len());
            for response in response.op_responses() {
                if let TxnOpResponse::Get(answer) = response {
                    answers.push(answer);
                }
            }
            if answers.len() != ranges.len() {
                return Err(self.error(what, malformed()));
            }
            let header = response.header();
            Ok(Answers {
                revision: header.map_or(0, |header| header.revision()),
                cluster_id: header.map_or(0, |header| header.cluster_id()),
                raft_term: header.map_or(0, |header| header.raft_term()),
                ranges: answers,
            })
        })
    }

    /// Reads the cluster information, for the GUID and the current revision.
    pub(crate) async fn cluster_information(&self) -> Result<Answers> {
        self.get(&[Range::key(information_key())], "cluster information")
            .await
    }

    /// Reads one large range without copying its entries.
    pub(crate) async fn read_bulk(&self, range: &Range, what: &str) -> Result<Reply> {
        tracing::debug!("{}: read {what}", redact_url(&self.endpoint));
        let request = || {
            let channel = InterceptedService::new(self.next_transport(), self.token.clone());
            async move { bulk::read(channel, range).await.map_err(Into::into) }
        };
        match self.call(request).await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(self.error(what, malformed())),
            Err(failure) => Err(self.error(what, failure)),
        }
    }

    /// The version of the server, such as `3.6.8`.
    pub(crate) async fn version(&self) -> Result<String> {
        let request_status = || async {
            let client = client_of(self.channel()).await?;
            client.maintenance_client().status().await
        };
        match self.call(request_status).await {
            Ok(status) => Ok(status.version().to_owned()),
            Err(failure) => Err(self.error("its version", failure)),
        }
    }

    fn channel(&self) -> AuthorizedChannel {
        InterceptedService::new(self.transport.clone(), self.token.clone())
    }

    /// Sends a transaction, and repeats it only if the user's token has expired. After an error, the transaction may
    /// have taken place, since the connection may break after the commit. `what` names the transaction in errors.
    pub(crate) async fn write(&self, transaction: Txn, what: &str) -> Result<TxnResponse> {
        tracing::debug!("{}: write {what}", redact_url(&self.endpoint));
        self.transact(transaction)
            .await
            .map_err(|failure| self.write_error(what, failure))
    }

    /// Like [`Self::write`], but errors do not include the endpoint.
    pub(crate) fn transact<'a>(&'a self, transaction: Txn) -> Pending<'a, Result<TxnResponse, Failure>> {
        Box::pin(async move {
            // A transaction contains whole blocks, and is copied only if it may have to be sent again with a new token.
            if self.settings.user.is_none() {
                let mut kv = self.kv.clone();
                return self.call_once(kv.txn(transaction)).await;
            }
            self.call(|| {
                let mut kv = self.kv.clone();
                let transaction = transaction.clone();
                async move { kv.txn(transaction).await }
            })
            .await
        })
    }

    /// Alternates between both connections, if there are two.
    fn next_transport(&self) -> Transport {
        let large_reads = self.large_reads.fetch_add(1, Ordering::Relaxed);
        let is_second_turn = large_reads % 2 == 1;
        match self.second_transport.get() {
            Some(Some(second)) if is_second_turn => second.clone(),
            _ => self.transport.clone(),
        }
    }

    /// The error of a read that failed at this endpoint.
    pub(crate) fn error(&self, what: &str, failure: Failure) -> Error {
        let endpoint = redact_url(&self.endpoint);
        Error::Request {
            server: Server::Etcd,
            endpoint,
            what: what.to_owned(),
            failure,
        }
    }

    /// The error of a write that failed at this endpoint.
    pub(crate) fn write_error(&self, what: &str, failure: Failure) -> Error {
        let endpoint = redact_url(&self.endpoint);
        Error::Write {
            server: Server::Etcd,
            endpoint,
            what: what.to_owned(),
            failure,
        }
    }

    /// Requests a token if user and password are set.
    async fn authenticate(&self) -> Result<(), Failure> {
        let Some((user, password)) = &self.settings.user else {
            return Ok(());
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        // This request is sent without a token, since an earlier token, if there was one, has expired.
        let channel = InterceptedService::new(self.transport.clone(), Token::default());
        let answer = async {
            let mut client = client_of(channel).await?.auth_client();
            client
                .authenticate(user.clone(), password.reveal().to_owned())
                .await
        };

        let token = match self.within_budget(answer).await? {
            Ok(response) => Some(response.token().parse().map_err(|_| malformed())?),
            // A server without authentication needs no token. etcd's own client also ignores this error.
            Err(etcd_client::Error::GRpcStatus(status)) if status.message().contains("not enabled") => None,
            Err(error) => return Err(self.classify(&error)),
        };
        *lock(&self.token.0) = token;
        Ok(())
    }

    /// Asks for a key under /calico/ to find out if the server answers.
    async fn probe(&self) -> Result<(), Failure> {
        self.call(|| {
            let mut kv = self.kv.clone();
            async move { kv.get(PROBE, None).await }
        })
        .await
        .map(drop)
    }

    /// Sends a request, and repeats it with a new token if the current one has expired.
    async fn call<T, F>(&self, request: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        match self.call_once(request()).await {
            Err(Failure::AuthNeeded) if self.settings.user.is_some() => {
                self.authenticate().await?;
                self.call_once(request()).await
            }
            result => result,
        }
    }

    /// Sends one request within the budget. Any answer renews the budget, unless it is a failure that may pass.
    async fn call_once<T>(
        &self,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Failure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let result = self
            .within_budget(Box::pin(request))
            .await?
            .map_err(|error| self.classify(&error));
        if !result.as_ref().is_err_and(Failure::is_transient) {
            self.budget.answered(&redact_url(&self.endpoint));
        }
        result
    }

    /// Waits for an answer as long as the budget allows.
    async fn within_budget<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        let limit = self.settings.timeouts.request;
        Ok(self
            .budget
            .wait(&redact_url(&self.endpoint), limit, answer)
            .await?)
    }

    fn classify(&self, error: &etcd_client::Error) -> Failure {
        classify::request(error, self.settings.attempt(self.settings.timeouts.request))
    }
}

/// The key that is requested to find out if a server answers.
pub(crate) const PROBE: &str = "/calico/ipam/v2/config";

fn transport(channel: Channel) -> Transport {
    BoxCloneSyncService::new(channel.map_err(|error| TransportError(error.into())))
}

/// Creates a client that accepts answers of any size.
async fn kv_client(channel: AuthorizedChannel) -> Result<KvClient, Failure> {
    let client = client_of(channel)
        .await
        .map_err(|error| Failure::Other(error.to_string()))?;
    Ok(client.kv_client().max_decoding_message_size(usize::MAX))
}

/// Creates an etcd-client on a connection.
async fn client_of(channel: AuthorizedChannel) -> Result<etcd_client::Client, etcd_client::Error> {
    let channel = BoxCloneSyncService::new(
        channel
            .map_response(|answer| answer.map(Body::new))
            .map_err(Into::into),
    );
    etcd_client::Client::from_channel(etcd_client::Channel::Custom(channel), None).await
}

/// True if a server answers a request without TLS, even with an error.
async fn probe_plain(channel: Channel, limit: Duration) -> bool {
    let Ok(mut kv) = kv_client(InterceptedService::new(transport(channel), Token::default())).await else {
        return false;
    };
    match tokio::time::timeout(limit, kv.get(PROBE, None)).await {
        Ok(Ok(_)) => true,
        Ok(Err(etcd_client::Error::GRpcStatus(status))) => std::error::Error::source(&status).is_none(),
        _ => false,
    }
}

fn malformed() -> Failure {
    Failure::NotEtcd("its answer cannot be decoded".into())
}
