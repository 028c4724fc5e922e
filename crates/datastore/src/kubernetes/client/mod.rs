//! A connection to an API server, and requests with streamed responses.

mod answer;
#[cfg(test)]
mod any_text_tests;
mod busy;
mod classify;
mod connect;
mod context;
pub(crate) mod discovery;
pub(crate) mod events;
mod exec_plugin;
mod flags;
pub(crate) mod kinds;
pub(crate) mod object;
pub(crate) mod page;
mod pem;
pub(crate) mod permission;
mod proxy;
pub(crate) mod schema;
mod token_file;
mod transport;
pub(crate) mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use calipam_files::objects::{Accept, Encoding};
use http::response::Parts;
use http::{Method, Request, StatusCode, header};
use kube::Config;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

pub(crate) use self::answer::Answer;
use self::answer::{MAX_ERROR_BODY, MAX_WHOLE};
use self::classify::status_failure;
pub(crate) use self::classify::transport_failure;
pub use self::connect::{KubeconfigNames, context_of_server, credential_plugin};
use self::discovery::Api;
use self::exec_plugin::Plugin;
use self::token_file::TokenFile;
use crate::budget::Budget;
use crate::error::{Attempt, Error, Failure, Result, Server};
use crate::pace::Pace;
use crate::settings::{KubernetesSettings, Timeouts};
use crate::tasks::Pending;

/// A connection to an API server.
#[derive(Clone)]
pub struct KubeClient {
    client: kube::Client,
    server: String,
    /// The proxy in front of the server, without user and password.
    proxy: Option<String>,
    timeouts: Timeouts,
    budget: Budget,
    token_file: Option<TokenFile>,
    plugin: Arc<Plugin>,
    has_certificate: bool,
    /// See [`KubernetesSettings::names_cluster`].
    names_cluster: bool,
    requests: Arc<AtomicU64>,
    api: Api,
    /// Set once all permissions for a whole read are confirmed.
    pub(crate) permitted: OnceCell<()>,
}

impl fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeClient")
            .field("server", &self.server)
            .field("api", &self.api)
            .finish_non_exhaustive()
    }
}

/// The kind of process that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// Reads a lot, and does other work meanwhile. Obtains credentials on a separate thread, since a plugin can block.
    Long,
    /// Sends a few requests, over one HTTP/2 connection if possible, and ends. Obtains credentials on the current
    /// thread, unless a plugin provides them.
    Short,
}

impl KubeClient {
    /// Connects, and finds out which of Calico's API groups the cluster has.
    pub fn connect<'a>(settings: &'a KubernetesSettings) -> Pending<'a, Result<Arc<Self>>> {
        Box::pin(async move {
            let mut client = Self::without_discovery(settings, Process::Long).await?;
            client.api = Api::discover(&client, &settings.api_group).await?;
            Ok(Arc::new(client))
        })
    }

    /// Connects to an API server without discovery, for a process with few requests. Assumes the API group in the
    /// settings, or the classic one.
    pub async fn connect_without_discovery(settings: &KubernetesSettings) -> Result<Arc<Self>> {
        let mut client = Self::without_discovery(settings, Process::Short).await?;
        client.api = Api::assumed(&settings.api_group);
        Ok(Arc::new(client))
    }

    /// The same connection with another `api`, and without confirmed permissions.
    pub(crate) fn with_api(&self, api: Api) -> Arc<Self> {
        Arc::new(Self {
            api,
            permitted: OnceCell::new(),
            ..self.clone()
        })
    }

    /// Creates a client without asking the server for its kinds. A short process makes no connections ahead.
    fn without_discovery<'a>(
        settings: &'a KubernetesSettings,
        process: Process,
    ) -> Pending<'a, Result<Self>> {
        Box::pin(async move {
            let mut config = connect::config(settings).await?;
            let token_file = TokenFile::take(&mut config)?;
            let server = connect::location(&config.cluster_url);
            let proxy = config.proxy_url.as_ref().map(connect::location);
            let has_certificate = connect::has_certificate(&config);
            let plugin = Plugin::mark(&mut config);
            let budget = match process {
                Process::Long => Budget::new(settings.timeouts.request),
                Process::Short => Budget::connecting(settings.timeouts.request),
            };
            let client = match kube_client(process, config, &plugin, &budget).await {
                Ok(client) => client.map_err(|error| connect::unusable(&server, &error))?,
                Err(failure) => return Err(request_error(&server, "credentials", failure)),
            };
            Ok(Self {
                budget,
                plugin: Arc::new(plugin),
                proxy,
                token_file,
                has_certificate,
                names_cluster: settings.names_cluster(),
                ..Self::without_credentials(client, server, settings.timeouts)
            })
        })
    }

    /// Creates a client that knows no credentials, proxy or kinds yet.
    fn without_credentials(client: kube::Client, server: String, timeouts: Timeouts) -> Self {
        Self {
            client,
            server,
            proxy: None,
            timeouts,
            budget: Budget::new(timeouts.request),
            token_file: None,
            plugin: Arc::default(),
            has_certificate: false,
            names_cluster: true,
            requests: Arc::default(),
            api: Api::assumed(""),
            permitted: OnceCell::new(),
        }
    }

    /// Creates a client for any service that answers like an API server with all Calico kinds in the classic group.
    pub fn over(client: kube::Client, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self::without_credentials(
            client,
            "http://kubernetes".to_owned(),
            timeouts,
        ))
    }

    /// The URL of the server, without user and password.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The time that this run may wait for the API server.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// True if the operator named the cluster.
    pub(crate) fn names_cluster(&self) -> bool {
        self.names_cluster
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The kinds in the cluster.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Requests a path; returns the response as soon as it begins.
    pub(crate) async fn get(&self, path: &str, accept: Accept) -> Result<Answer, Failure> {
        let request = Request::get(path).header(header::ACCEPT, accept.header());
        self.send(request.body(Body::empty()), busy::MAX_DELAY).await
    }

    /// Requests a path and reads the whole response as JSON.
    pub(crate) async fn value(&self, path: &str) -> Result<Value, Failure> {
        self.get(path, Accept::Json).await?.json().await
    }

    /// Sends JSON to a path; for `PATCH`, JSON to merge into the object.
    pub(crate) async fn write(&self, method: Method, path: &str, json: &Value) -> Result<Answer, Failure> {
        self.send(transport::json_request(method, path, json), busy::MAX_DELAY)
            .await
    }

    /// Posts JSON to a path once. If the server defers the request (429), the caller decides whether to retry.
    pub(crate) async fn post_once(&self, path: &str, json: &Value) -> Result<Answer, Failure> {
        self.send(transport::json_request(Method::POST, path, json), Duration::ZERO)
            .await
    }

    /// Requests a path and reads the whole response; `None` if there is no object (404).
    pub(crate) fn get_whole<'a>(
        &'a self,
        path: &'a str,
        accept: Accept,
        what: &'a str,
    ) -> Pending<'a, Result<Option<(Bytes, Encoding)>>> {
        Box::pin(async move {
            let answer = match self.get(path, accept).await {
                Ok(answer) => answer,
                Err(Failure::NotFound) => return Ok(None),
                Err(failure) => return Err(self.error(what, failure)),
            };
            let encoding = answer.encoding;
            match answer.whole(MAX_WHOLE).await {
                Ok(body) => Ok(Some((body, encoding))),
                Err(failure) => Err(self.error(what, failure)),
            }
        })
    }

    /// Requests a path and decodes the JSON of the response; `None` if there is no object (404).
    pub(crate) async fn get_json<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: Accept,
        what: &str,
    ) -> Result<Option<T>> {
        let Some((body, _)) = self.get_whole(path, accept, what).await? else {
            return Ok(None);
        };
        self.decode(&body, what).map(Some)
    }

    /// Decodes JSON from the server.
    pub(crate) fn decode<'b, T: Deserialize<'b>>(&self, body: &'b [u8], what: &str) -> Result<T> {
        serde_json::from_slice(body)
            .map_err(|error| self.error(what, Failure::NotKubernetes(error.to_string())))
    }

    /// Sends a request, and retries it if the server defers it by at most `delay` in all.
    fn send<'a>(
        &'a self,
        request: http::Result<Request<Body>>,
        delay: Duration,
    ) -> Pending<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let mut request = request.map_err(|error| Failure::Other(error.to_string()))?;
            let mut remaining = delay.min(self.timeouts.request);
            loop {
                let method = request.method().clone();
                let copied_request = transport::copy(&request);
                let (head, answer) = self.send_once(request).await?;
                if head.status == StatusCode::OK || head.status == StatusCode::CREATED {
                    return Ok(answer);
                }

                let body = answer.whole(MAX_ERROR_BODY).await.unwrap_or_default();
                let failure = status_failure(head.status, &body);
                let Some(pause) = busy::demanded_pause(&method, head.status, &head.headers) else {
                    return Err(failure);
                };
                // A body that can be read only once cannot be sent again.
                let Some(copied_request) = copied_request else {
                    return Err(failure);
                };
                if pause > remaining {
                    return Err(failure);
                }

                tracing::warn!("{}: {failure}; trying again", self.server);
                if !self.budget.pause(pause).await {
                    return Err(failure);
                }
                remaining -= pause;
                request = copied_request;
            }
        })
    }

    /// Sends a request, and returns the head of its answer. If it takes too long, kills the login plugin.
    async fn send_once(&self, mut request: Request<Body>) -> Result<(Parts, Answer), Failure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("{}: {} {}", self.server, request.method(), request.uri());
        if let Some(file) = &self.token_file {
            request.headers_mut().insert(header::AUTHORIZATION, file.header());
        }
        let attempt = Attempt {
            timeout: self.timeouts.request.as_secs(),
            connect: self.timeouts.connect.as_secs(),
            has_certificate: self.has_certificate,
        };
        let limit = self.timeouts.request;
        let started = Instant::now();
        let sending = self.client.send(request);
        let response = match self.budget.wait(&self.server, limit, sending).await {
            Ok(response) => response.map_err(|error| transport_failure(&error, attempt))?,
            Err(cause) => {
                let plugin_failure = self.plugin.kill_late(started.elapsed());
                return Err(plugin_failure.unwrap_or_else(|| cause.into()));
            }
        };
        self.budget.answered(&self.server);

        let (head, body) = response.into_parts();
        let pace = Pace::new(&self.budget, &self.server, limit);
        let answer = Answer::new(body, &head.headers, pace, attempt);
        Ok((head, answer))
    }

    pub(crate) fn error(&self, what: &str, failure: Failure) -> Error {
        request_error(&self.server_description(&failure), what, failure)
    }

    /// The description of the server in errors. If the connection failed, it includes the proxy, which may be the
    /// cause.
    fn server_description(&self, failure: &Failure) -> String {
        match (&self.proxy, failure) {
            (Some(proxy), Failure::Connection(_)) => format!("{} through the proxy {proxy}", self.server),
            _ => self.server.clone(),
        }
    }

    /// The error of a write that failed at this server.
    pub(crate) fn write_error(&self, what: &str, failure: Failure) -> Error {
        let endpoint = self.server_description(&failure);
        Error::Write {
            server: Server::Kubernetes,
            endpoint,
            what: what.to_owned(),
            failure,
        }
    }
}

/// Creates kube's client for a process.
///
/// # Errors
/// If the plugin that provides credentials takes too long. The inner result is that of kube.
async fn kube_client(
    process: Process,
    config: Config,
    plugin: &Plugin,
    budget: &Budget,
) -> Result<kube::Result<kube::Client>, Failure> {
    let budget = budget.clone();
    let one_connection = move |config| transport::client(config, &budget);
    match process {
        Process::Long => plugin.within_limit(config, kube::Client::try_from).await,
        // Without a plugin, nothing can block the current thread.
        Process::Short if config.auth_info.exec.is_none() => Ok(one_connection(config)),
        Process::Short => plugin.within_limit(config, one_connection).await,
    }
}

/// The error of a read that failed at a server.
pub(crate) fn request_error(server: &str, what: &str, failure: Failure) -> Error {
    Error::Request {
        server: Server::Kubernetes,
        endpoint: server.to_owned(),
        what: what.to_owned(),
        failure,
    }
}
