//! Options for an etcd.

use anyhow::Result;

use super::etcd::{Etcd, EtcdVersion};

/// Options of an [`Etcd`]: `EtcdOptions::new().tls(EtcdTls::Server).login("root", "secret").start()`.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    pub(super) version: EtcdVersion,
    pub(super) tls: EtcdTls,
    pub(super) login: Option<Login>,
    /// Users who may only read the keys under one prefix.
    pub(super) readers: Vec<(Login, String)>,
    pub(super) arguments: Vec<String>,
}

/// The sides that must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtcdTls {
    /// Neither side. Connections are not encrypted.
    #[default]
    Off,
    Server,
    /// The server and every client. The test's authority must have signed the client's certificate.
    ClientCertificates,
}

/// A user and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub name: String,
    pub password: String,
}

impl Login {
    fn new(name: &str, password: &str) -> Self {
        Self { name: name.to_owned(), password: password.to_owned() }
    }
}

impl EtcdOptions {
    /// Creates the options of an etcd 3.6 without TLS and without users.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the version.
    pub fn version(mut self, version: EtcdVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the sides that must show a certificate. [`Etcd::pki`] returns the certificates, which are made for this
    /// server.
    pub fn tls(mut self, tls: EtcdTls) -> Self {
        self.tls = tls;
        self
    }

    /// Turns authentication on, with a user who has all rights.
    ///
    /// etcd requires an administrator called `root`. If the user has another name, `root` also exists, with the same
    /// password.
    pub fn login(mut self, name: &str, password: &str) -> Self {
        self.login = Some(Login::new(name, password));
        self
    }

    /// Adds a user who may only read the keys under `prefix`. Requires [`login`](Self::login).
    pub fn reader(mut self, name: &str, password: &str, prefix: &str) -> Self {
        self.readers.push((Login::new(name, password), prefix.to_owned()));
        self
    }

    /// Adds an argument to etcd's command line. It follows the launcher's own arguments, and if an argument is
    /// repeated, the last one takes effect.
    ///
    /// etcd limits a transaction to 128 operations, as in real clusters. `--max-txn-ops=10000` makes seeding faster.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<Etcd> {
        Etcd::start_with(self)
    }
}
