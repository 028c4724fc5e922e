//! A client for etcd's v2 API: a tree of keys over HTTP, as used by Calico 2.x (docs/etcdv2.md).

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use crate::budget::Budget;
use crate::error::{Cause, Error, Failure, Result, Server, Tried};
use crate::kubernetes::client::transport_failure;
use crate::pace::Pace;
use crate::secret::redact_url;
use crate::settings::EtcdSettings;

/// All characters that are escaped in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The key that is requested to find out if a server answers.
const PROBE: &str = "/calico";

/// Maximum bytes of an answer. The tree of a cluster with Calico 2.x has a few hundred megabytes at most.
const LONGEST: usize = 1 << 30;

/// Maximum number of bytes of a response that an error shows.
const MOST_SHOWN: usize = 300;

/// The part of the tree that a read returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// A key, or a directory without the contents of its subdirectories.
    Key,
    /// A key or directory with everything below it.
    Subtree,
}

/// Error codes of the v2 API.
mod code {
    pub(super) const NOT_FOUND: u32 = 100;
    pub(super) const COMPARE_FAILED: u32 = 101;
    pub(super) const EXISTS: u32 = 105;
    pub(super) const FORBIDDEN: u32 = 110;
}

/// Connections to the members of an etcd cluster. One connection is used until it fails.
pub struct EtcdV2Client {
    members: Vec<Member>,
    current: AtomicUsize,
    settings: EtcdSettings,
    budget: Budget,
    longest: usize,
    requests: AtomicU64,
}

struct Member {
    endpoint: String,
    client: kube::Client,
}

impl fmt::Debug for EtcdV2Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdV2Client")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}

/// A key of the tree with everything below it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Node {
    pub key: String,
    /// `None` for a directory.
    pub value: Option<String>,
    pub nodes: Vec<Node>,
    /// The index of the key's last change, or of a directory's creation.
    pub modified_index: i64,
}

impl Node {
    /// Adds this key and all keys below it to `out`.
    pub(super) fn flatten<'n>(&'n self, out: &mut Vec<&'n Self>) {
        out.push(self);
        for node in &self.nodes {
            node.flatten(out);
        }
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Found {
    /// `None` if there is no such key.
    pub node: Option<Node>,
    /// The index of the whole store at the time of the read.
    pub index: i64,
}

struct Answer {
    status: StatusCode,
    index: i64,
    body: Bytes,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    node: Option<Node>,
    error_code: u32,
    message: String,
    cause: String,
}

impl EtcdV2Client {
    /// Connects to the first endpoint that serves the v2 API.
    pub async fn connect(settings: &EtcdSettings) -> Result<Self> {
        Self::connect_within(settings, LONGEST).await
    }

    /// Creates a client for the endpoints, and checks that one of them answers. `longest` limits the length of an
    /// answer.
    async fn connect_within(settings: &EtcdSettings, longest: usize) -> Result<Self> {
        let mut members = Vec::new();
        for endpoint in &settings.endpoints {
            let client = http_client(endpoint, settings)
                .map_err(|failure| Error::Connect(vec![tried(endpoint, failure)]))?;
            members.push(Member {
                endpoint: endpoint.clone(),
                client,
            });
        }
        let client = Self {
            members,
            current: AtomicUsize::new(0),
            settings: settings.clone(),
            budget: Budget::connecting(settings.timeouts.request),
            longest,
            requests: AtomicU64::new(0),
        };
        client.probe().await?;
        client.budget.connected();
        Ok(client)
    }

    /// Makes the first endpoint that answers the current one.
    async fn probe(&self) -> Result<()> {
        let mut failed = Vec::new();
        for (position, member) in self.members.iter().enumerate() {
            self.current.store(position, Ordering::Relaxed);
            match self.probe_member().await {
                Ok(_) => return Ok(()),
                Err(failure) => failed.push(tried(&member.endpoint, failure)),
            }
        }
        Err(Error::Connect(failed))
    }

    /// Probes the current member. Retries if the server closes the connection before the request is sent, because that
    /// hides the reason, such as a missing client certificate.
    async fn probe_member(&self) -> Result<Found, Failure> {
        for _ in 0..2 {
            match self.probe_once().await {
                Err(Failure::Connection(Cause::Broken(_))) => {}
                result => return result,
            }
        }
        self.probe_once().await
    }

    /// Reads a single key of the current member.
    async fn probe_once(&self) -> Result<Found, Failure> {
        let limit = self.settings.timeouts.connect;
        self.read_once(PROBE, Depth::Key, limit).await
    }

    /// The current endpoint, without user and password.
    pub fn endpoint(&self) -> String {
        redact_url(&self.member().endpoint)
    }

    /// The time that this run may wait for etcd.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Reads a key with everything below it, with a quorum of the members. If a member does not answer, asks the
    /// others.
    pub(crate) async fn read(&self, path: &str) -> Result<Found> {
        let mut untried = self.members.len();
        // A member that does not answer leaves time for the others.
        let limit = self.settings.timeouts.request / self.members.len().max(1) as u32;
        loop {
            untried -= 1;
            match self.read_once(path, Depth::Subtree, limit).await {
                Err(failure) if failure.is_transient() && untried > 0 => self.use_next_member(),
                Err(failure) => return Err(self.error(path, failure)),
                Ok(found) => return Ok(found),
            }
        }
    }

    /// Reads a key or a directory. It is no error if there is none.
    async fn read_once(&self, path: &str, depth: Depth, limit: Duration) -> Result<Found, Failure> {
        let is_recursive = depth == Depth::Subtree;
        let url = format!("{}?quorum=true&recursive={is_recursive}", url(path));
        let Answer { status, index, body } = self.send(Request::get(url).body(Body::empty()), limit).await?;
        let reply = reply(&body);
        match (status, reply) {
            (StatusCode::OK, Some(Reply { node: Some(node), .. })) => Ok(Found {
                node: Some(node),
                index,
            }),
            (StatusCode::NOT_FOUND, Some(reply)) if reply.error_code == code::NOT_FOUND => {
                Ok(Found { node: None, index })
            }
            (StatusCode::OK, _) => Err(Failure::Incomplete("its JSON cannot be decoded".into())),
            (_, reply) => Err(self.refusal(status, reply, &body)),
        }
    }

    /// Writes a value, or deletes the key if `value` is `None`, provided that the key's last change has the index
    /// `replaced`, or that the key does not exist if `replaced` is `None`. Returns the index of the write; `None` if the
    /// condition did not hold. Sends the request only once. After an error, the write may have taken place.
    pub(crate) async fn write(
        &self,
        path: &str,
        value: Option<&str>,
        replaced: Option<i64>,
    ) -> Result<Option<i64>> {
        let condition = match replaced {
            Some(index) => format!("prevIndex={index}"),
            None => "prevExist=false".to_owned(),
        };
        let url = format!("{}?{condition}", url(path));
        let request = match value {
            Some(value) => {
                let form = format!("value={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
                Request::put(url)
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(Body::from(form.into_bytes()))
            }
            None => Request::delete(url).body(Body::empty()),
        };

        let result = match self.send(request, self.settings.timeouts.request).await {
            Ok(Answer { status, body, .. }) => self.write_outcome(status, &body),
            Err(failure) => Err(failure),
        };
        match result {
            Ok(index) => Ok(index),
            Err(failure) => {
                if failure.is_transient() {
                    self.use_next_member();
                }
                Err(self.write_error(path, failure))
            }
        }
    }

    /// Returns the index of a write; `None` if its condition was not met.
    fn write_outcome(&self, status: StatusCode, body: &Bytes) -> Result<Option<i64>, Failure> {
        match reply(body) {
            Some(Reply { node: Some(node), .. }) if status.is_success() => Ok(Some(node.modified_index)),
            Some(Reply {
                error_code: code::NOT_FOUND | code::COMPARE_FAILED | code::EXISTS,
                ..
            }) => Ok(None),
            _ if status.is_success() => Err(Failure::Incomplete("its JSON cannot be decoded".into())),
            reply => Err(self.refusal(status, reply, body)),
        }
    }

    /// Sends one request, and reads the whole answer.
    async fn send(&self, request: http::Result<Request<Body>>, limit: Duration) -> Result<Answer, Failure> {
        let request = request.map_err(|error| Failure::Other(error.to_string()))?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("{}: {} {}", self.endpoint(), request.method(), request.uri());
        let attempt = self.settings.attempt(limit);
        let mut pace = Pace::new(&self.budget, &self.endpoint(), limit);
        let sent = pace.wait(self.member().client.send(request)).await?;
        let (head, mut rest) = sent
            .map_err(|error| transport_failure(&error, attempt))?
            .into_parts();
        self.budget.answered(&self.endpoint());

        let mut body = Vec::new();
        while let Some(frame) = pace.wait(rest.frame()).await? {
            if let Ok(piece) = frame
                .map_err(|error| transport_failure(&error, attempt))?
                .into_data()
            {
                pace.count(piece.len());
                body.extend_from_slice(&piece);
            }
            if body.len() > self.longest {
                let longest = self.longest;
                return Err(Failure::Incomplete(format!(
                    "its answer is longer than {longest} bytes"
                )));
            }
        }
        let index = head
            .headers
            .get("x-etcd-index")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Answer {
            status: head.status,
            index: index.unwrap_or_default(),
            body: body.into(),
        })
    }

    /// Converts an error response to a failure. `reply` is the decoded body; `None` if the body is not an error of etcd.
    fn refusal(&self, status: StatusCode, reply: Option<Reply>, body: &Bytes) -> Failure {
        let shown_length = body.len().min(MOST_SHOWN);
        let beginning = String::from_utf8_lossy(&body[..shown_length]).trim().to_owned();
        // Servers written in Go answer so if they expect TLS.
        if beginning.contains("HTTP request to an HTTPS server") {
            return Cause::ServerWantsTls.into();
        }

        let error_code = reply.as_ref().map(|reply| reply.error_code);
        let is_forbidden = matches!(status.as_u16(), 401 | 403) || error_code == Some(code::FORBIDDEN);
        if is_forbidden {
            if self.settings.user.is_none() {
                return Failure::AuthNeeded;
            }
            return Failure::PermissionDenied(
                "the user does not exist, the password is wrong, or a permission is missing".into(),
            );
        }

        let message = reply.map(|reply| format!("{} {}", reply.message, reply.cause).trim().to_owned());
        if status.is_server_error() {
            return Failure::NoQuorum(message.unwrap_or(beginning));
        }
        match message {
            Some(message) => Failure::Refused {
                code: status.as_u16(),
                message,
            },
            // A server without the v2 API answers in another format.
            None => Failure::NoV2Api,
        }
    }

    fn member(&self) -> &Member {
        &self.members[self.current.load(Ordering::Relaxed) % self.members.len()]
    }

    /// Switches to the next member.
    fn use_next_member(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// The error of a read that failed at the current endpoint.
    pub(crate) fn error(&self, what: &str, failure: Failure) -> Error {
        Error::Request {
            server: Server::Etcd,
            endpoint: self.endpoint(),
            what: what.to_owned(),
            failure,
        }
    }

    /// The error of a write that failed at the current endpoint.
    pub(crate) fn write_error(&self, what: &str, failure: Failure) -> Error {
        Error::Write {
            server: Server::Etcd,
            endpoint: self.endpoint(),
            what: what.to_owned(),
            failure,
        }
    }
}

fn tried(endpoint: &str, failure: Failure) -> Tried {
    Tried {
        endpoint: redact_url(endpoint),
        failure,
    }
}

fn url(path: &str) -> String {
    format!("/v2/keys{}", utf8_percent_encode(path, PATH))
}

/// Decodes a reply; `None` if it is not JSON in the form of this API.
fn reply(body: &Bytes) -> Option<Reply> {
    serde_json::from_slice(body).ok()
}

/// Creates kube's client, which handles connections, TLS and basic authentication for any HTTP server.
fn http_client(endpoint: &str, settings: &EtcdSettings) -> Result<kube::Client, Failure> {
    let failure = |error: &dyn fmt::Display| Failure::Other(error.to_string());
    let mut config = kube::Config::new(endpoint.parse().map_err(|error| failure(&error))?);
    config.default_retry = false;
    config.connect_timeout = Some(settings.timeouts.connect);
    // The budget limits the wait for an answer.
    config.read_timeout = None;
    config.write_timeout = None;

    if let Some(ca) = &settings.tls.ca {
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            certificates.push(certificate.map_err(|error| failure(&error))?.to_vec());
        }
        config.root_cert = Some(certificates);
    }
    if let Some((certificate, key)) = &settings.tls.identity {
        config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(key.reveal()).into());
    }
    if let Some((user, password)) = &settings.user {
        config.auth_info.username = Some(user.clone());
        config.auth_info.password = Some(password.reveal().to_owned().into());
    }
    kube::Client::try_from(config).map_err(|error| failure(&error))
}
