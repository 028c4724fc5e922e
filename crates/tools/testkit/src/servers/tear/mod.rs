//! A proxy in front of a real server that breaks chosen requests. It drops connections, delays requests, swallows
//! responses, and refuses requests with its own status.

mod etcd;
mod kubernetes;

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use calipam_model::parallel::lock;
use tempfile::TempDir;

use super::error::ServerError;
use super::kube_apiserver::{KUBECONFIG, write_kubeconfig};
use super::{Etcd, KubeApiserver, folder, port};

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
    /// The method; empty if the server is etcd.
    pub method: &'a str,
    /// The path with its query; empty if the server is etcd.
    pub path: &'a str,
}

type Plan = Box<dyn FnMut(Seen<'_>) -> Tear + Send>;

/// The proxy. Dropping it closes all connections.
#[derive(Debug)]
pub struct Tearing {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    /// The folder of the kubeconfig, for an API server.
    home: Option<TempDir>,
}

struct Shared {
    plan: Mutex<Plan>,
    count: AtomicUsize,
    closed: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("count", &self.count)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Tearing {
    /// Starts a proxy in front of an etcd without TLS.
    pub fn etcd(etcd: &Etcd) -> Result<Self, ServerError> {
        let target = etcd.port();
        Self::start(None, move |stream, shared| etcd::relay(stream, target, shared))
    }

    /// Starts a proxy in front of an API server. It speaks plain HTTP to its clients.
    pub fn kubernetes(server: &KubeApiserver) -> Result<Self, ServerError> {
        let home = folder("calipam-tear-")?;
        let (path, upstream) = (home.path().to_owned(), server.upstream());
        let torn =
            Self::start(Some(home), move |stream, shared| kubernetes::relay(stream, &upstream, shared))?;
        write_kubeconfig(&path, &torn.url(), "")?;
        Ok(torn)
    }

    fn start(
        home: Option<TempDir>,
        relay: impl Fn(TcpStream, &Shared) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let port = port::reserve()?;
        let shared = Arc::new(Shared {
            plan: Mutex::new(Box::new(|_| Tear::Pass)),
            count: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map_err(ServerError::io(format!("cannot listen at {port}")))?;
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &accepting, Arc::new(relay)));
        Ok(Self { port, shared, acceptor: Some(acceptor), home })
    }

    pub fn url(&self) -> String {
        format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// A kubeconfig file for the proxy in front of an API server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.as_ref().map_or_else(PathBuf::new, |home| home.path().join(KUBECONFIG))
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

    /// Closes all connections and refuses new ones from now on, as if the server had ended.
    pub fn close(&mut self) {
        self.shared.close();
        // Wakes the thread that is waiting for a connection.
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().ok();
        }
    }

    /// Returns a function that acts like [`close`](Self::close), for use in a plan or an event. New connections are
    /// refused a moment later.
    pub fn closer(&self) -> impl Fn() + Send + Sync + 'static {
        let (shared, port) = (Arc::clone(&self.shared), self.port);
        move || {
            shared.close();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        }
    }
}

impl Drop for Tearing {
    fn drop(&mut self) {
        self.close();
    }
}

fn accept<R>(listener: &TcpListener, shared: &Arc<Shared>, relay: Arc<R>)
where
    R: Fn(TcpStream, &Shared) -> io::Result<()> + Send + Sync + 'static,
{
    for stream in listener.incoming().map_while(Result::ok) {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let (shared, relay) = (Arc::clone(shared), Arc::clone(&relay));
        // Errors are ignored, since connections are meant to break.
        std::thread::spawn(move || relay(stream, &shared).ok());
    }
}

impl Shared {
    /// Counts a request, and decides how it is treated.
    fn next(&self, method: &str, path: &str) -> Tear {
        let mut plan = lock(&self.plan);
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        plan(Seen { number, method, path })
    }

    /// Remembers a connection, so that it can be closed.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        lock(&self.open).push(stream.try_clone()?);
        if self.closed.load(Ordering::SeqCst) {
            stream.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for stream in lock(&self.open).drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}
