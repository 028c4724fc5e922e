//! A proxy in front of a real server that breaks chosen requests. It drops connections, delays requests, swallows
//! responses, and refuses requests with its own status.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use calipam_model::parallel::lock;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::AbortHandle;

use super::http::{self, Body, Client, body};
use super::kube_apiserver::{KUBECONFIG, write_kubeconfig};
use super::{Etcd, KubeApiserver, folder};
use crate::runtime::RUNTIME;

/// The way in which the proxy treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// The proxy forwards the request.
    Pass,
    /// The connection is closed before the server sees the request.
    Drop,
    /// The server executes the request, then the connection is closed without the response.
    Swallow,
    /// The proxy forwards the request after a pause.
    Delay(Duration),
    /// The proxy replies with this status, and the server does not see the request. For etcd, the status becomes the
    /// nearest error: 422 means that the request is too large, 429 that there are too many requests, and all others
    /// that the leader has changed.
    Status(u16),
}

/// A request as the proxy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The request's number, from 0.
    pub number: usize,
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// The request's content; empty for a stream.
    pub content: &'a [u8],
}

/// The beginning of the paths whose requests have no end.
const STREAMS: &str = "/etcdserverpb.Watch/";

type Plan = Box<dyn FnMut(Seen<'_>) -> Tear + Send>;

/// The proxy. Dropping it closes all connections.
pub struct Tearing {
    port: u16,
    shared: Arc<Shared>,
    listening: AbortHandle,
    /// The folder of the kubeconfig.
    home: TempDir,
}

struct Shared {
    plan: Mutex<Plan>,
    count: AtomicUsize,
    client: Client,
    /// The URL of the server.
    server: String,
    refusal: fn(u16) -> Response<Body>,
}

impl Tearing {
    /// Starts a proxy in front of an etcd without TLS.
    pub fn etcd(etcd: &Etcd) -> Result<Self> {
        Self::start(http::client(None, true)?, etcd.endpoint(), refusal_of_etcd)
    }

    /// Starts a proxy in front of an API server. It speaks plain HTTP to its clients.
    pub fn kubernetes(server: &KubeApiserver) -> Result<Self> {
        Self::start(server.client(), server.url(), refusal_of_api_server)
    }

    fn start(client: Client, server: String, refusal: fn(u16) -> Response<Body>) -> Result<Self> {
        let (plan, count) = (Mutex::<Plan>::new(Box::new(|_| Tear::Pass)), AtomicUsize::new(0));
        let shared = Arc::new(Shared {
            plan,
            count,
            client,
            server,
            refusal,
        });
        let (listener, port) = http::listen();
        let answering = Arc::clone(&shared);
        let listening = RUNTIME.spawn(http::serve(listener, move |request| {
            Arc::clone(&answering).answer(request)
        }));
        let torn = Self {
            port,
            shared,
            listening: listening.abort_handle(),
            home: folder("calipam-tear-")?,
        };
        write_kubeconfig(torn.home.path(), &torn.url(), "")?;
        Ok(torn)
    }

    pub fn url(&self) -> String {
        format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// A kubeconfig file for the proxy in front of an API server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join(KUBECONFIG)
    }

    /// Sets how requests are treated from now on, and resets their count to 0.
    pub fn plan(&self, plan: impl FnMut(Seen<'_>) -> Tear + Send + 'static) {
        let mut current = lock(&self.shared.plan);
        *current = Box::new(plan);
        self.shared.count.store(0, Ordering::SeqCst);
    }

    /// Breaks the request with this number and passes all others.
    pub fn tear_at(&self, number: usize, tear: Tear) {
        self.plan(move |seen| if seen.number == number { tear } else { Tear::Pass });
    }

    /// The number of requests since the last plan was set.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// Returns a function that closes all connections and refuses new ones from then on, as if the server had ended.
    pub fn closer(&self) -> impl Fn() + Send + Sync + 'static {
        let listening = self.listening.clone();
        move || {
            listening.abort();
            while !listening.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Tearing {
    fn drop(&mut self) {
        self.closer()();
    }
}

impl Shared {
    /// Answers a request as the plan says; `None` closes the connection.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Option<Response<Body>> {
        let (mut head, content) = request.into_parts();
        let method = head.method.to_string();
        let path = head.uri.path_and_query()?.to_string();
        head.uri = format!("{}{path}", self.server).parse().ok()?;
        // The client can end before a delayed request is forwarded.
        let (seen, content) = if path.starts_with(STREAMS) {
            (Bytes::new(), content.boxed_unsync())
        } else {
            let content = content.collect().await.ok()?.to_bytes();
            (content.clone(), body(content))
        };
        let request = Request::from_parts(head, content);

        let planning = Arc::clone(&self);
        let tear = tokio::task::spawn_blocking(move || planning.next(&method, &path, &seen))
            .await
            .ok()?;
        match tear {
            Tear::Pass => {}
            Tear::Delay(pause) => tokio::time::sleep(pause).await,
            Tear::Drop => return None,
            Tear::Status(code) => return Some((self.refusal)(code)),
            Tear::Swallow => {
                self.client.request(request).await.ok();
                return None;
            }
        }
        Some(
            self.client
                .request(request)
                .await
                .ok()?
                .map(BodyExt::boxed_unsync),
        )
    }

    /// Counts a request, and decides how it is treated.
    fn next(&self, method: &str, path: &str, content: &[u8]) -> Tear {
        let mut plan = lock(&self.plan);
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        plan(Seen {
            number,
            method,
            path,
            content,
        })
    }
}

fn refusal_of_etcd(code: u16) -> Response<Body> {
    let (status, message) = match code {
        422 => ("3", "etcdserver: request is too large"),
        429 => ("8", "etcdserver: too many requests"),
        _ => ("14", "etcdserver: leader changed"),
    };
    let answer = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", status);
    answer
        .header("grpc-message", message)
        .body(body(String::new()))
        .expect("a valid response")
}

fn refusal_of_api_server(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "torn",
        "reason": reason, "code": code});
    let answer = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    answer.body(body(status.to_string())).expect("a valid response")
}
