//! A real Kubernetes API server for one test, with its own etcd.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use super::connection::Connection;
use super::error::ServerError;
use super::etcd::Etcd;
use super::http::{self, Response};
use super::locate::{self, Program};
use super::pki::{self, Pki};
use super::port;
use super::process::{Process, processor_seconds};
use super::{folder, workspace};

const NAME: &str = "kube-apiserver";

/// Time limit for a start, which takes two to four seconds on an idle machine.
const START: Duration = Duration::from_secs(180);

/// Time limit for a response.
const ANSWER: Duration = Duration::from_secs(60);

/// Time limit for a pause of the server while it sends the list of all objects of a kind.
const PULL: Duration = Duration::from_secs(300);

/// The bearer token of an administrator.
const TOKEN: &str = "calipam-test-admin";

/// The file with the token's user and groups.
const TOKENS: &str = "tokens.csv";

/// The kubeconfig file for clients.
pub(super) const KUBECONFIG: &str = "kubeconfig.yaml";

/// A running API server with its own empty etcd, listening on 127.0.0.1. Dropping it kills both.
///
/// RBAC is on. The server does not check or add service accounts, so that pods can be created unchanged. The token and
/// the client certificate of [`pki`](Self::pki) are those of an administrator. There are no controllers, no scheduler
/// and no kubelet, so objects stay as they were written.
#[derive(Debug)]
pub struct KubeApiserver {
    // Fields are dropped in this order: the server before its datastore and its folder.
    process: Option<Process>,
    etcd: Etcd,
    home: TempDir,
    at: Upstream,
}

impl KubeApiserver {
    /// Starts an etcd and an API server, and waits until it is ready for requests.
    pub fn start() -> Result<Self, ServerError> {
        let etcd = Etcd::start()?;
        let home = folder("calipam-kube-")?;
        let pki = Pki::create(home.path())?;
        pki::write(home.path(), TOKENS, &format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
        let ca = format!(", certificate-authority: \"{}\"", pki.ca.display());
        let mut server = Self { process: None, etcd, home, at: Upstream { port: 0, pki } };
        port::on_free_port(|port| {
            server.at.port = port;
            server.launch()
        })?;
        write_kubeconfig(server.home.path(), &server.url(), &ca)?;
        Ok(server)
    }

    /// Starts the server at its port, and waits until it is ready.
    fn launch(&mut self) -> Result<(), ServerError> {
        let program = locate::find(Program::KubeApiserver, &workspace())?;
        let arguments = arguments(self.home.path(), &self.etcd, &self.at);
        let mut process = Process::spawn(NAME, &program, &arguments, self.home.path())?;
        process.wait_until("ready", START, || ready(&self.at))?;
        self.process = Some(process);
        Ok(())
    }

    /// The URL for clients, such as `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        self.at.url()
    }

    /// The bearer token of an administrator.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// The certificates. `ca` signed the server's certificate and is trusted for clients.
    pub fn pki(&self) -> &Pki {
        &self.at.pki
    }

    /// A kubeconfig file with the server, its authority and the administrator's token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join(KUBECONFIG)
    }

    /// The server's etcd, for seeding many objects. They are stored under `/registry/` and may be JSON.
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Kills the server, runs `meanwhile` on its datastore, and starts the server again on the same port. The server
    /// loses the state in its memory, such as the history of its objects.
    pub fn restart(
        &mut self,
        meanwhile: impl FnOnce(&mut Etcd) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        self.process = None;
        meanwhile(&mut self.etcd)?;
        self.launch()
    }

    /// Sends a request as the administrator; `body` is JSON or empty. Any status is a response, not an error.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Response, ServerError> {
        Connection::open(self)?.request(method, path, body)
    }

    /// Sends a merge patch with a token.
    pub fn patch(&self, token: &str, path: &str, patch: &str) -> Result<Response, ServerError> {
        Connection::to(&self.at, token)?.request("PATCH", path, patch)
    }

    /// Gets a path over a separate connection and discards the response, to measure the server's share of the time.
    /// `accept` is the media type. Returns the number of bytes.
    pub fn pull(&self, path: &str, accept: &str) -> Result<u64, ServerError> {
        let failed = || ServerError::io(format!("GET {}{path}", self.url()));
        let stream = self.at.connect_for(PULL).map_err(failed())?;
        let headers = [format!("Authorization: Bearer {TOKEN}"), format!("Accept: {accept}")];
        http::pull(stream, path, &headers).map_err(failed())
    }

    /// The processor time of the server without its etcd, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        self.process.as_ref().map_or(0.0, |process| processor_seconds(process.id()))
    }

    /// Returns the data for connecting to this server.
    pub(super) fn upstream(&self) -> Upstream {
        self.at.clone()
    }

    /// Makes the server hang: it accepts connections but answers no requests.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.process.as_ref().map_or(Ok(()), Process::pause)
    }

    pub fn resume(&self) -> Result<(), ServerError> {
        self.process.as_ref().map_or(Ok(()), Process::resume)
    }
}

/// The data for connecting to an API server, without the server itself.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    port: u16,
    pki: Pki,
}

impl Upstream {
    pub(super) fn url(&self) -> String {
        format!("https://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub(super) fn connect(&self) -> io::Result<Stream> {
        self.connect_for(ANSWER)
    }

    /// Connects. `limit` is the maximum time that the server may pause.
    fn connect_for(&self, limit: Duration) -> io::Result<Stream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let config = trust(&self.pki.ca).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Stream(StreamOwned::new(connection, stream)))
    }
}

fn arguments(home: &Path, etcd: &Etcd, Upstream { port, pki }: &Upstream) -> Vec<String> {
    let file = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let fixed = [
        "--bind-address=127.0.0.1",
        // Without a default route, the server finds no address to advertise.
        "--advertise-address=127.0.0.1",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--enable-priority-and-fairness=false",
    ];
    let mut arguments: Vec<String> = fixed.into_iter().map(str::to_owned).collect();
    arguments.extend([
        format!("--etcd-servers={}", etcd.endpoint()),
        format!("--secure-port={port}"),
        file("tls-cert-file", &pki.server.certificate),
        file("tls-private-key-file", &pki.server.key),
        file("client-ca-file", &pki.ca),
        // Service account tokens are not tested, so any key pair will do.
        file("service-account-key-file", &pki.server.certificate),
        file("service-account-signing-key-file", &pki.server.key),
        file("token-auth-file", &home.join(TOKENS)),
    ]);
    arguments
}

/// Writes a kubeconfig with the administrator's token. `ca` is additional YAML for the cluster entry.
pub(super) fn write_kubeconfig(home: &Path, server: &str, ca: &str) -> Result<(), ServerError> {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster: {{server: \"{server}\"{ca}}}\n\
         users:\n- name: admin\n  user: {{token: \"{TOKEN}\"}}\n\
         contexts:\n- name: test\n  context: {{cluster: test, user: admin}}\n"
    );
    pki::write(home, KUBECONFIG, &text).map(drop)
}

/// Checks whether the server is ready. Its certificate is signed by this test's own authority, so another test's server
/// cannot answer in its place.
fn ready(at: &Upstream) -> Result<(), String> {
    let answer = Connection::to(at, TOKEN).and_then(|mut server| server.request("GET", "/readyz", ""));
    match answer {
        Ok(response) if response.status == 200 => Ok(()),
        Ok(response) => Err(format!("/readyz: {} {}", response.status, response.body.trim())),
        Err(error) => Err(error.to_string()),
    }
}

/// A TLS configuration that trusts one authority.
fn trust(ca: &Path) -> Result<ClientConfig, ServerError> {
    let pem = fs::read(ca).map_err(ServerError::io(format!("cannot read {}", ca.display())))?;
    let authority = CertificateDer::from_pem_slice(&pem)
        .map_err(|error| rustls::Error::General(format!("{}: {error}", ca.display())))?;
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A TLS stream that may end without `close_notify`, which is safe on this machine.
#[derive(Debug)]
pub(crate) struct Stream(StreamOwned<ClientConnection, TcpStream>);

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
