//! The requests of a short-lived process share one connection, if the server speaks HTTP/2. A real API server rarely
//! ends connections, and never when a test wants it to. These tests use a fake server instead, which can also serve
//! without HTTP/2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use calipam_datastore::settings::KubernetesSettings;
use calipam_datastore::{Cause, Error, Failure, KubeClient};
use calipam_testkit::servers::Pki;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

use super::support::settings_for_url;

type Tls = StreamOwned<ServerConnection, TcpStream>;

const NAMESPACE: &str = r#"{"metadata": {"labels": {"team": "red"}}}"#;
/// Length of a client's preface.
const PREFACE: usize = 24;
/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// Frame flags: the acknowledgment of settings, the last frame of a stream, and the last frame with headers.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` in HPACK.
const OK: u8 = 0x88;

/// Returns true if the request with this number ends its connection instead of getting an answer. Requests are counted
/// over all connections.
type Refuses = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// A server that returns labels for any namespace.
struct Server {
    url: String,
    pki: Pki,
    seen: Arc<Seen>,
    _home: TempDir,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// The request bodies, as far as they were read.
    bodies: Mutex<Vec<u8>>,
}

impl Server {
    /// Starts a server for `protocol`. Its threads end with the process.
    fn start(protocol: &str, refuses: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let home = tempfile::tempdir().unwrap();
        let pki = Pki::create(home.path()).unwrap();
        let tls = Arc::new(tls(&pki, protocol));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (seen, refuses): (Arc<Seen>, Refuses) = (Arc::default(), Arc::new(refuses));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                log.connections.fetch_add(1, Ordering::SeqCst);
                let tls = ServerConnection::new(Arc::clone(&tls)).unwrap();
                let (log, refuses) = (Arc::clone(&log), Arc::clone(&refuses));
                std::thread::spawn(move || serve(StreamOwned::new(tls, stream), &log, &*refuses));
            }
        });
        Self {
            url,
            pki,
            seen,
            _home: home,
        }
    }

    fn settings(&self, ca: &Path) -> KubernetesSettings {
        let mut settings = settings_for_url(&self.url).kubernetes;
        settings.ca_file = ca.display().to_string();
        settings
    }

    async fn queries(&self) -> Arc<KubeClient> {
        KubeClient::connect_without_discovery(&self.settings(&self.pki.ca))
            .await
            .unwrap()
    }

    fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}

fn tls(pki: &Pki, protocol: &str) -> ServerConfig {
    let certificate = CertificateDer::from_pem_file(&pki.server.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&pki.server.key).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config
}

/// Answers until the client closes the connection.
fn serve(mut stream: Tls, seen: &Seen, refuses: &dyn Fn(usize) -> bool) -> std::io::Result<()> {
    stream.conn.complete_io(&mut stream.sock)?;
    match stream.conn.alpn_protocol() {
        Some(b"h2") => frames(stream, seen, refuses),
        _ => lines(stream),
    }
}

fn frames(mut stream: Tls, seen: &Seen, refuses: &dyn Fn(usize) -> bool) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE])?;
    send(&mut stream, SETTINGS, 0, 0, &[])?;
    let (mut last, mut is_ending) = (0_u32, false);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload)?;
        let [.., kind, flags, a, b, c, d] = head;
        let number = u32::from_be_bytes([a, b, c, d]);

        if kind == HEADERS && !is_ending {
            is_ending = refuses(seen.requests.fetch_add(1, Ordering::SeqCst));
            if is_ending {
                // The payload consists of the number of the last accepted stream, and the code for no error.
                send(&mut stream, GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())?;
            }
        }
        if kind == SETTINGS && flags & ACK == 0 {
            send(&mut stream, SETTINGS, ACK, 0, &[])?;
        }
        if !matches!(kind, HEADERS | DATA) || is_ending {
            continue;
        }
        last = number;
        if kind == DATA {
            seen.bodies.lock().unwrap().append(&mut payload);
        }
        if flags & END_STREAM != 0 {
            send(&mut stream, HEADERS, END_HEADERS, number, &[OK])?;
            send(&mut stream, DATA, END_STREAM, number, NAMESPACE.as_bytes())?;
        }
    }
}

fn send(stream: &mut Tls, kind: u8, flags: u8, number: u32, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &number.to_be_bytes()].concat();
    stream.write_all(&[&head, payload].concat())?;
    stream.flush()
}

/// Serves one HTTP/1 request.
fn lines(stream: Tls) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let length = NAMESPACE.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{NAMESPACE}");
    reader.get_mut().write_all(answer.as_bytes())?;
    reader.get_mut().flush()
}

/// Sends three requests in parallel.
async fn ask(queries: &Arc<KubeClient>) {
    let one = || queries.namespace_labels("ns");
    for labels in <[_; 3]>::from(tokio::try_join!(one(), one(), one()).unwrap()) {
        assert_eq!(labels.unwrap()["team"], "red");
    }
}

#[tokio::test]
async fn requests_side_by_side_share_a_connection() {
    let server = Server::start("h2", |_| false);
    let queries = server.queries().await;
    ask(&queries).await;
    ask(&queries).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_not_started_before_goaway_are_retried() {
    let server = Server::start("h2", |number| number == 1);
    ask(&server.queries().await).await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_write_is_sent_again_with_its_body() {
    // Request 0 reads the object, and request 1 writes it.
    let server = Server::start("h2", |number| number == 1);
    assert!(server.queries().await.set_datastore_ready(true).await.unwrap());
    let written: Value = serde_json::from_slice(&server.seen.bodies.lock().unwrap()).unwrap();
    assert_eq!(written["spec"]["datastoreReady"], true);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_not_asked_for_ever() {
    let server = Server::start("h2", |_| true);
    let error = server.queries().await.namespace_labels("ns").await.unwrap_err();
    assert!(error.to_string().contains(&server.url), "{error}");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_server_without_http_2_is_asked_by_http_1() {
    let server = Server::start("http/1.1", |_| false);
    ask(&server.queries().await).await;
    // The first connection only detects the protocol.
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn connection_errors_have_a_cause() {
    let server = Server::start("h2", |_| false);
    let cause = async |settings: &KubernetesSettings| {
        let client = KubeClient::connect_without_discovery(settings).await.unwrap();
        match client.namespace_labels("ns").await {
            Err(Error::Request {
                failure: Failure::Connection(cause),
                ..
            }) => cause,
            other => panic!("{other:?}"),
        }
    };
    let stranger = server.settings(&server.pki.stranger_ca);
    assert_eq!(cause(&stranger).await, Cause::CertificateNotTrusted);

    let mut settings = server.settings(&server.pki.ca);
    settings.kubectl.tls_server_name = Some("elsewhere".into());
    assert_eq!(cause(&settings).await, Cause::CertificateWrongName);

    // The server accepts connections and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    settings = server.settings(&server.pki.ca);
    settings.api_endpoint = format!("https://{}", silent.local_addr().unwrap());
    assert!(matches!(
        cause(&settings).await,
        Cause::TimedOut(_) | Cause::GivenUp(_)
    ));
    drop(silent);
    assert_eq!(cause(&settings).await, Cause::Refused);
}
