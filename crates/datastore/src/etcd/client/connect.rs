//! Connects to one of several endpoints, and reconnects after a connection breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;
use tonic::service::interceptor::InterceptedService;

use super::{EtcdClient, Token, Transport, endpoint, kv_client, transport};
use crate::budget::Budget;
use crate::error::{Error, Failure, Result, Tried};
use crate::secret::redact_url;
use crate::settings::{EtcdSettings, Timeouts, TlsSettings};
use crate::tasks::Pending;

/// Time without an answer after which the next endpoint is tried in parallel.
const STAGGER: Duration = Duration::from_millis(300);

/// The proof that a connection's endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// By a request of its own.
    Probe,
    /// By the first request that the program needs.
    FirstRequest,
}

impl EtcdClient {
    /// Connects to the first endpoint that answers. Tries the endpoints in order, each as soon as the one before it has
    /// failed or has not answered for 0.3 s.
    pub fn connect<'a>(settings: &'a EtcdSettings) -> Pending<'a, Result<Self>> {
        Self::connect_first(settings, Proof::Probe)
    }

    /// Connects like [`Self::connect`], with the given proof that the endpoint answers.
    pub(crate) fn connect_first<'a>(settings: &'a EtcdSettings, proof: Proof) -> Pending<'a, Result<Self>> {
        Box::pin(async move {
            let budget = Budget::connecting(settings.timeouts.request);
            let client = Self::connect_within(settings, proof, budget).await?;
            client.budget.connected();
            Ok(client)
        })
    }

    /// Tries the endpoints, each a little later than the one before it, and takes the first one that answers.
    fn connect_within<'a>(
        settings: &'a EtcdSettings,
        proof: Proof,
        budget: Budget,
    ) -> Pending<'a, Result<Self>> {
        Box::pin(async move {
            let mut waiting = settings.endpoints.iter();
            let mut running = tokio::task::JoinSet::new();
            let mut tried = Vec::new();
            loop {
                if let Some(endpoint) = waiting.next() {
                    let endpoint = endpoint.clone();
                    let settings = settings.clone();
                    let budget = budget.clone();
                    // Boxed, since a task's future is moved several times.
                    running.spawn(Box::pin(async move {
                        let result = Self::connect_to(&endpoint, &settings, proof, budget).await;
                        result.map_err(|failure| Tried {
                            endpoint: redact_url(&endpoint),
                            failure,
                        })
                    }));
                }

                // With attempts at all endpoints in progress, only waiting remains.
                let has_untried = waiting.len() > 0;
                let limit = if has_untried { STAGGER } else { Duration::MAX };
                let Ok(joined) = tokio::time::timeout(limit, running.join_next()).await else {
                    continue;
                };
                match joined {
                    Some(Ok(Ok(client))) => return Ok(client),
                    Some(Ok(Err(failed))) => tried.push(failed),
                    Some(Err(panicked)) => tried.push(Tried {
                        endpoint: String::new(),
                        failure: Failure::Other(panicked.to_string()),
                    }),
                    None if has_untried => {}
                    None => return Err(Error::Connect(tried)),
                }
            }
        })
    }

    /// Connects to one endpoint. After a failure, looks for its cause in the TLS handshake.
    async fn connect_to(
        endpoint: &str,
        settings: &EtcdSettings,
        proof: Proof,
        budget: Budget,
    ) -> Result<Self, Failure> {
        let failure = match Self::connect_once(endpoint, settings, proof, &budget).await {
            Ok(client) => return Ok(client),
            Err(failure) => failure,
        };
        let explanation = Box::pin(endpoint::explain(endpoint, settings, failure.clone()));
        let explained = budget
            .wait(&redact_url(endpoint), settings.timeouts.connect, explanation)
            .await;
        Err(explained.unwrap_or(failure))
    }

    /// Opens a connection to one endpoint, and logs in.
    async fn connect_once(
        endpoint: &str,
        settings: &EtcdSettings,
        proof: Proof,
        budget: &Budget,
    ) -> Result<Self, Failure> {
        let server = redact_url(endpoint);
        let limit = settings.timeouts.connect;
        let channel = budget
            .wait(&server, limit, Box::pin(endpoint::open(endpoint, settings)))
            .await??;
        let client = Self::with_transport(endpoint, settings, transport(channel), budget.clone()).await?;
        let first_requests = Box::pin(async {
            client.authenticate().await?;
            // With TLS 1.3, a rejected client certificate shows only at the first request.
            if proof == Proof::Probe {
                client.probe().await?;
            }
            Ok::<(), Failure>(())
        });
        budget.wait(&server, limit, first_requests).await??;
        Ok(client)
    }

    /// Creates a client on a transport. It still has to log in if the server requires that.
    async fn with_transport(
        endpoint: &str,
        settings: &EtcdSettings,
        transport: Transport,
        budget: Budget,
    ) -> Result<Self, Failure> {
        // Requests have no token until the client logs in.
        let token = Token::default();
        let with_token = InterceptedService::new(transport.clone(), token.clone());
        let kv = kv_client(with_token).await?;
        Ok(Self {
            endpoint: endpoint.to_owned(),
            settings: settings.clone(),
            budget,
            kv,
            transport,
            second_transport: OnceCell::new(),
            large_reads: AtomicUsize::new(0),
            requests: Arc::new(AtomicU64::new(0)),
            token,
        })
    }

    /// Creates a client for any service that answers like etcd through `transport`. `timeouts` limit the wait for
    /// answers.
    pub async fn over(transport: Transport, timeouts: Timeouts) -> Result<Self> {
        let settings = EtcdSettings {
            endpoints: Vec::new(),
            user: None,
            tls: TlsSettings::default(),
            timeouts,
        };
        Self::over_within(&settings, transport, Budget::new(timeouts.request)).await
    }

    /// Creates a client on a given transport, for tests with their own connection.
    async fn over_within(settings: &EtcdSettings, transport: Transport, budget: Budget) -> Result<Self> {
        match Self::with_transport("http://etcd", settings, transport, budget).await {
            Ok(client) => Ok(client),
            Err(failure) => Err(Error::Connect(vec![Tried {
                endpoint: String::new(),
                failure,
            }])),
        }
    }

    /// Opens a new connection to an endpoint that answers, after this one has broken. The request count continues.
    pub(crate) async fn reconnect(&self) -> Result<Arc<Self>> {
        if self.budget.is_used_up() {
            let failure = self.budget.used_up().into();
            return Err(Error::Connect(vec![Tried {
                endpoint: redact_url(&self.endpoint),
                failure,
            }]));
        }
        let budget = self.budget.clone();
        let mut client = if self.settings.endpoints.is_empty() {
            Self::over_within(&self.settings, self.transport.clone(), budget).await?
        } else {
            Self::connect_within(&self.settings, Proof::Probe, budget).await?
        };
        self.requests.fetch_add(client.request_count(), Ordering::Relaxed);
        client.requests = Arc::clone(&self.requests);
        Ok(Arc::new(client))
    }

    /// Opens a second connection to the same endpoint for large reads, since a single connection keeps only one core
    /// busy.
    pub(crate) async fn widen(&self) {
        if self.settings.endpoints.is_empty() {
            return;
        }
        let open = async || {
            let opening = endpoint::open(&self.endpoint, &self.settings);
            match self.within_budget(opening).await {
                Ok(Ok(channel)) => Some(transport(channel)),
                // One connection is enough.
                Ok(Err(_)) | Err(_) => None,
            }
        };
        self.second_transport.get_or_init(open).await;
    }
}
