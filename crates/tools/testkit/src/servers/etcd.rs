//! A real etcd for one test.

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};

use super::left_out::left_out;
use super::pki::Pki;
use super::port;
use super::process::Process;
use super::tool::Tool;
use super::{Home, Place, find, folder};

const NAME: &str = "etcd";

/// Time limit for a start, which takes a third of a second on an idle machine.
const START: Duration = Duration::from_secs(60);

/// Time limit for one health request.
const ANSWER: Duration = Duration::from_secs(5);

/// The name of a Unix socket for probes, which is the file `probe:1` in etcd's working directory. etcd allows only a
/// host and a port as the name, not a path. The socket is never encrypted, and only this server can answer on it.
const PROBE: &str = "probe:1";

/// A running etcd with its own data directory, listening on 127.0.0.1. Dropping it kills the server and removes its
/// data. If the test's process dies, a watchdog does the same.
#[derive(Debug)]
pub struct Etcd {
    // Fields are dropped in this order: the process before its folder.
    process: Option<Process>,
    home: Home,
    program: PathBuf,
    /// The TCP port on 127.0.0.1.
    pub port: u16,
    pub(super) options: EtcdOptions,
    /// The certificates, if the server was started with TLS.
    pub pki: Option<Pki>,
}

impl Etcd {
    /// Starts an empty etcd 3.6 without TLS and without users, and waits until it answers requests.
    pub fn start() -> Result<Self> {
        EtcdOptions::new().start()
    }

    /// Like [`start`](Self::start), for a chosen version.
    pub fn start_version(version: EtcdVersion) -> Result<Self> {
        EtcdOptions::new().version(version).start()
    }

    /// An etcd 3.6 without TLS and without users that another process has started.
    pub(super) fn lent(place: Place) -> Result<Self> {
        let options = EtcdOptions::new();
        Ok(Self {
            process: None,
            home: Home::Lent(place.home),
            program: find(options.version.tool())?,
            port: place.port,
            options,
            pki: None,
        })
    }

    /// The place of this server for other processes.
    pub(super) fn place(&self) -> Place {
        Place::new(&self.home, self.port)
    }

    /// The URL for clients, such as `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> String {
        let scheme = if self.pki.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The folder with etcd's data. It is removed when the server is dropped.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The process ID, if the server is running.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Makes the server hang: it accepts connections but answers no requests. Does nothing if the server was killed.
    pub fn pause(&self) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), Process::pause)
    }

    pub fn resume(&self) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), Process::resume)
    }

    /// Kills the server but keeps its data. Connections are refused until it is [restarted](Self::restart).
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the server if it is running, then starts it on the same port with the same data.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.launch()
    }

    fn launch_at(&mut self, port: u16) -> Result<()> {
        self.port = port;
        // The data of a failed start contains an address with the port that was taken.
        match fs::remove_dir_all(self.data_dir()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("cannot remove the data of a failed start")
            }
            _ => self.launch(),
        }
    }

    fn launch(&mut self) -> Result<()> {
        let mut process = Process::spawn(NAME, &self.program, &self.arguments(), self.home.path())?;
        let probe = self.home.path().join(PROBE);
        process.wait_until("healthy", START, || healthy(&probe))?;
        self.process = Some(process);
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let endpoint = self.endpoint();
        let mut arguments = vec![
            "--name=calipam".to_owned(),
            "--data-dir=data".to_owned(),
            format!("--listen-client-urls={endpoint},unix://{PROBE}"),
            format!("--advertise-client-urls={endpoint}"),
            // A single member never uses its peer address, and a socket does not occupy a port.
            "--listen-peer-urls=unix://peer:1".to_owned(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--initial-cluster=calipam=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
            "--max-request-bytes=33554432".to_owned(),
        ];
        if let Some(pki) = &self.pki {
            arguments.push(format!("--cert-file={}", pki.server.certificate.display()));
            arguments.push(format!("--key-file={}", pki.server.key.display()));
            if self.options.tls == EtcdTls::ClientCertificates {
                arguments.push("--client-cert-auth".to_owned());
                arguments.push(format!("--trusted-ca-file={}", pki.ca.display()));
            }
        }
        arguments.extend(self.options.arguments.iter().cloned());
        arguments
    }
}

/// Options of an [`Etcd`]: `EtcdOptions::new().tls(EtcdTls::Server).login("root", "secret").start()`.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    version: EtcdVersion,
    tls: EtcdTls,
    pub(super) login: Option<Login>,
    /// Users who may only read the keys under one prefix.
    pub(super) readers: Vec<(Login, String)>,
    arguments: Vec<String>,
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
        Self {
            name: name.to_owned(),
            password: password.to_owned(),
        }
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

    /// Sets the sides that must show a certificate. [`Etcd::pki`] has the certificates, which are made for this
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
        let program = find(self.version.tool())?;
        let home = folder("calipam-etcd-")?;
        let pki = match self.tls {
            EtcdTls::Off => None,
            EtcdTls::Server | EtcdTls::ClientCertificates => Some(Pki::create(home.path())?),
        };
        let mut etcd = Etcd {
            process: None,
            home: Home::Own(home),
            program,
            port: 0,
            options: self,
            pki,
        };
        port::on_free_port(|port| etcd.launch_at(port))?;
        etcd.set_up_login()?;
        Ok(etcd)
    }
}

/// The version of etcd to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EtcdVersion {
    /// 3.6 or newer: built from `tests/servers`, or found on the machine.
    #[default]
    V3_6,
    /// The older etcd that the distribution packages: 3.4, or 3.5 on newer distributions.
    V3_4,
}

impl EtcdVersion {
    /// Both versions; only the current one if the older one is [left out](left_out).
    pub fn all() -> Vec<Self> {
        if left_out(&[Tool::OldEtcd]) {
            vec![Self::V3_6]
        } else {
            vec![Self::V3_6, Self::V3_4]
        }
    }

    fn tool(self) -> Tool {
        match self {
            Self::V3_6 => Tool::Etcd,
            Self::V3_4 => Tool::OldEtcd,
        }
    }
}

/// Requests etcd's health, which includes a read through its consensus.
fn healthy(socket: &Path) -> Result<(), String> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        io::read_to_string(stream)
    };
    match ask() {
        Ok(answer) if answer.contains(r#""health":"true""#) => Ok(()),
        Ok(answer) => Err(format!("its health: {}", answer.trim())),
        Err(error) => Err(format!(
            "cannot ask for its health at {}: {error}",
            socket.display()
        )),
    }
}
