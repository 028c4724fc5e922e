//! A proxy in front of a real server that fails at chosen requests: it drops connections, delays, and swallows answers
//! after the request went through; before an API server it also answers with a status of its own.

mod etcd;
mod kubernetes;

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use super::error::ServerError;
use super::{Etcd, KubeApiserver, port};

/// What is done to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// It goes through.
    Pass,
    /// The connection is closed before the server sees the request.
    Drop,
    /// The server carries the request out, then the connection is closed without its answer.
    Swallow,
    /// It goes through after a pause.
    Delay(Duration),
    /// An answer of the proxy with this status; the server does not see the request. For etcd the error that is nearest:
    /// 422 is a request that is too large, 429 one too many, all others a change of the leader.
    Status(u16),
}

/// A request as the proxy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Which one it is, from 0.
    pub number: usize,
    /// The method; empty before etcd.
    pub method: &'a str,
    /// The path with its query; empty before etcd.
    pub path: &'a str,
}

type Plan = Box<dyn FnMut(Seen<'_>) -> Tear + Send>;

/// The proxy. Dropping it closes all connections.
#[derive(Debug)]
pub struct Tearing {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    /// Where the kubeconfig lies, before an API server.
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
    /// A proxy in front of an etcd without TLS.
    pub fn etcd(etcd: &Etcd) -> Result<Self, ServerError> {
        let target = etcd.port();
        Self::start(None, move |stream, shared| etcd::relay(stream, target, shared))
    }

    /// A proxy in front of an API server. It speaks plain HTTP to its clients.
    pub fn kubernetes(server: &KubeApiserver) -> Result<Self, ServerError> {
        let home = tempfile::Builder::new()
            .prefix("calipam-tear-")
            .tempdir()
            .map_err(ServerError::io("cannot make a temporary folder"))?;
        let upstream = server.upstream();
        let torn =
            Self::start(Some(home), move |stream, shared| kubernetes::relay(stream, &upstream, shared))?;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters:\n- name: test\n  cluster: {{server: \"{}\"}}\n\
             users:\n- name: admin\n  user: {{token: \"{}\"}}\n\
             contexts:\n- name: test\n  context: {{cluster: test, user: admin}}\n",
            torn.url(),
            server.token()
        );
        let path = torn.kubeconfig();
        std::fs::write(&path, text).map_err(ServerError::io(format!("cannot write {}", path.display())))?;
        Ok(torn)
    }

    fn start(
        home: Option<TempDir>,
        relay: impl Fn(TcpStream, &Shared) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let port = port::reserve().map_err(ServerError::io("cannot get a free port"))?;
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

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// A kubeconfig file that names the proxy, before an API server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.as_ref().map_or_else(PathBuf::new, |home| home.path().join("kubeconfig.yaml"))
    }

    /// What is done to requests from now on, which are counted from 0 again.
    pub fn plan(&self, plan: impl FnMut(Seen<'_>) -> Tear + Send + 'static) {
        let mut current = self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Box::new(plan);
        self.shared.count.store(0, Ordering::SeqCst);
    }

    /// Tears the request of one number, and lets all others through.
    pub fn tear_at(&self, number: usize, tear: Tear) {
        self.plan(move |seen| if seen.number == number { tear } else { Tear::Pass });
    }

    /// Requests since the last plan was made.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// Closes all connections and refuses new ones from now on: the server is gone.
    pub fn close(&mut self) {
        self.shared.close();
        // Wakes the thread that waits for a connection.
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().ok();
        }
    }

    /// What [`close`](Self::close) does, to be called from a plan or an event; new connections are refused a moment
    /// later.
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
        // A connection that breaks is what this is for.
        std::thread::spawn(move || relay(stream, &shared).ok());
    }
}

impl Shared {
    /// Counts a request, and says what is to be done to it.
    fn next(&self, method: &str, path: &str) -> Tear {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        plan(Seen { number, method, path })
    }

    /// Remembers a connection, so that it can be closed.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(stream.try_clone()?);
        if self.closed.load(Ordering::SeqCst) {
            stream.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}
