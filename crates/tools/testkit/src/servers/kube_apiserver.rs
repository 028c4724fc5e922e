//! A real Kubernetes API server for one test, with its own etcd.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::Request;
use serde::{Deserialize, Serialize};

use super::etcd::Etcd;
use super::http::{self, Client, Response};
use super::pki::{self, Pki};
use super::port;
use super::process::{Process, processor_seconds};
use super::tool::Tool;
use super::{Home, Place, find, folder};
use crate::runtime::block_on;

const NAME: &str = "kube-apiserver";

/// Time limit for a start, which takes two to four seconds on an idle machine, and minutes on a busy one.
const START: Duration = Duration::from_secs(600);

/// Time limit for a response.
const ANSWER: Duration = Duration::from_secs(300);

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
    home: Home,
    /// The certificates. `ca` signed the server's certificate and is trusted for clients.
    pub pki: Pki,
    /// Its connections stay open, since a handshake takes most of the time of a small request.
    client: Client,
    port: u16,
}

impl KubeApiserver {
    /// Starts an etcd and an API server, and waits until it is ready for requests.
    pub fn start() -> Result<Self> {
        let etcd = Etcd::start()?;
        let home = folder("calipam-kube-")?;
        let pki = Pki::create(home.path())?;
        pki::write(
            &home.path().join(TOKENS),
            &format!("{TOKEN},admin,admin,\"system:masters\"\n"),
        )?;
        let ca = format!(", certificate-authority: \"{}\"", pki.ca.display());
        let client = http::client(Some(&pki.ca), false)?;
        let mut server = Self {
            process: None,
            etcd,
            home: Home::Own(home),
            pki,
            client,
            port: 0,
        };
        port::on_free_port(|port| {
            server.port = port;
            server.launch()
        })?;
        write_kubeconfig(server.home.path(), &server.url(), &ca)?;
        Ok(server)
    }

    /// A server that another process has started. It can be neither paused nor restarted.
    pub(crate) fn lent(lent: Lent) -> Result<Self> {
        let pki = Pki::in_folder(&lent.server.home);
        let client = http::client(Some(&pki.ca), false)?;
        Ok(Self {
            process: None,
            etcd: Etcd::lent(lent.etcd)?,
            home: Home::Lent(lent.server.home),
            pki,
            client,
            port: lent.server.port,
        })
    }

    /// The places of this server and its etcd for other processes.
    pub(crate) fn as_lent(&self) -> Lent {
        Lent {
            server: Place::new(&self.home, self.port),
            etcd: self.etcd.place(),
        }
    }

    /// Starts the server at its port, and waits until it is ready.
    fn launch(&mut self) -> Result<()> {
        let program = find(Tool::KubeApiserver)?;
        let arguments = arguments(self.home.path(), &self.etcd, self.port, &self.pki);
        let mut process = Process::spawn(NAME, &program, &arguments, self.home.path())?;
        process.wait_until("ready", START, || ready(self))?;
        self.process = Some(process);
        Ok(())
    }

    /// The URL for clients, such as `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("https://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The bearer token of an administrator.
    pub fn token(&self) -> &'static str {
        TOKEN
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
    pub fn restart(&mut self, meanwhile: impl FnOnce(&mut Etcd) -> Result<()>) -> Result<()> {
        self.process = None;
        meanwhile(&mut self.etcd)?;
        self.launch()
    }

    /// Sends a request as the administrator, and reads its response. `body` is JSON or empty; for PATCH, it is a merge
    /// patch. Any status is a response, not an error.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Result<Response> {
        self.request_as(TOKEN, method, path, body)
    }

    /// Sends a [`request`](Self::request) with a token.
    pub fn request_as(&self, token: &str, method: &str, path: &str, body: &str) -> Result<Response> {
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let head = self
            .head(token, method, path)
            .header("accept", "application/json");
        http::exchange(
            &self.client,
            head.header("content-type", kind).body(body.to_owned())?,
            ANSWER,
        )
    }

    fn head(&self, token: &str, method: &str, path: &str) -> ::http::request::Builder {
        let head = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url()));
        head.header("authorization", format!("Bearer {token}"))
    }

    /// Gets a path and discards the response, to measure the server's share of the time. `accept` is the media type.
    /// Returns the number of bytes.
    pub fn pull(&self, path: &str, accept: &str) -> Result<u64> {
        let request = self.head(TOKEN, "GET", path).header("accept", accept);
        let request = request.body(http::body(String::new()))?;
        block_on(async || {
            let response = self.client.request(request).await?;
            if response.status() != 200 {
                bail!("{path}: {}", response.status());
            }
            let mut body = response.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
            }
            Ok(bytes)
        })
    }

    /// The processor time of the server without its etcd, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        self.process
            .as_ref()
            .map_or(0.0, |process| processor_seconds(process.id()))
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Makes the server hang: it accepts connections but answers no requests.
    pub fn pause(&self) -> Result<()> {
        self.own_process()?.pause()
    }

    pub fn resume(&self) -> Result<()> {
        self.own_process()?.resume()
    }

    fn own_process(&self) -> Result<&Process> {
        let process = self.process.as_ref();
        process.context("only a test that has started the server itself can pause it")
    }
}

/// An API server and its etcd, which are lent to other processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lent {
    server: Place,
    etcd: Place,
}

fn arguments(home: &Path, etcd: &Etcd, port: u16, pki: &Pki) -> Vec<String> {
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
pub(super) fn write_kubeconfig(home: &Path, server: &str, ca: &str) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster: {{server: \"{server}\"{ca}}}\n\
         users:\n- name: admin\n  user: {{token: \"{TOKEN}\"}}\n\
         contexts:\n- name: test\n  context: {{cluster: test, user: admin}}\n"
    );
    pki::write(&home.join(KUBECONFIG), &text)
}

/// Checks whether the server is ready. Its certificate is signed by this test's own authority, so another test's server
/// cannot answer in its place.
fn ready(server: &KubeApiserver) -> Result<(), String> {
    match server.request("GET", "/readyz", "") {
        Ok(response) if response.status == 200 => Ok(()),
        Ok(response) => Err(format!("/readyz: {} {}", response.status, response.body.trim())),
        Err(error) => Err(format!("{error:#}")),
    }
}
