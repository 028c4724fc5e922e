//! `calipam serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::relay::Relay;
use calipam_testkit::servers::Etcd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::program::{EXAMPLE, Words, calipam, on_etcd, prepare};

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server or another program that runs until a test ends it with a signal.
pub(super) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The address of a server. It ends the first line; of another program, this is the rest of that line.
    pub address: String,
}

/// A response: its status, its head in lower case, and its body.
pub(super) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Server {
    pub(super) fn start(arguments: &(impl Words + ?Sized)) -> Self {
        Self::of(prepare("serve --listen 127.0.0.1:0").args(arguments.words()))
    }

    /// Starts a program, and waits until it serves.
    pub(super) fn of(program: &mut Command) -> Self {
        Self::after(program, "serving http://")
    }

    /// Starts a program, and waits for its first line, which must begin with `begin`.
    pub(super) fn after(program: &mut Command, begin: &str) -> Self {
        let mut child = program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix(begin)
            .expect(&line)
            .trim_end_matches('/')
            .to_owned();
        Self {
            child,
            stderr,
            address,
        }
    }

    /// Sends bytes, and reads until the server closes the connection.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A server that refuses a request head may not read all of it.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn request(&self, method: &str, path: &str) -> Answer {
        self.request_by(method, path, &self.address)
    }

    fn request_by(&self, method: &str, path: &str, host: &str) -> Answer {
        let text = self
            .raw(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        let (head, body) = text.split_once("\r\n\r\n").expect(&text);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.request("GET", path)
    }

    /// Repeats a request until the response satisfies `wanted`.
    pub(super) fn wait(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let begin = Instant::now();
        loop {
            let answer = self.get(path);
            if wanted(&answer) {
                return answer;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{path}: {} {}",
                answer.head,
                answer.body
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for a line on stderr.
    pub(super) fn wait_for_line(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert_ne!(
                self.stderr.read_line(&mut line).unwrap(),
                0,
                "it has ended and not said {wanted}"
            );
        }
    }

    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the server with SIGTERM. Returns the exit code and stderr.
    pub(super) fn terminate(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        let begin = Instant::now();
        let code = self.child.wait().unwrap().code();
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "SIGTERM does not end it"
        );
        (code, self.said())
    }

    /// Kills the server. Returns stderr.
    pub(super) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.said()
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_cluster_is_served_and_its_last_good_report_stays_when_etcd_dies() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let options = "--interval 1s --settle 0 --allow-host ipam.example.com --etcd-endpoints";
    let server = Server::start(&format!("{options} {}", etcd.endpoint()));
    // A client that never completes its request does not affect others.
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();

    assert_eq!(
        server.wait("/healthz", |answer| answer.status == 200).body,
        "ok\n"
    );
    let report = server.get("/report.json");
    assert!(report.head.contains("\r\nage: "), "{}", report.head);
    assert!(
        report.head.contains("content-type: application/json"),
        "{}",
        report.head
    );
    let json: Value = serde_json::from_str(&report.body).unwrap();
    let checked = on_etcd(&etcd, "check -o json --settle 0").json();
    assert_eq!(
        (&json["kind"], &json["findings"]),
        (&"CheckReport".into(), &checked["findings"])
    );
    assert!(server.get("/").body.starts_with("<!DOCTYPE html>"));
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("\ncalipam_up 1\n") && metrics.contains("\ncalipam_ippool_size{"),
        "{metrics}"
    );

    let head = server.request("HEAD", "/report.json");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let length = head
        .head
        .split_once("content-length: ")
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap();
    // Another check may have finished meanwhile, and the time in its report may have fewer digits.
    assert!(
        length.parse::<usize>().unwrap().abs_diff(report.body.len()) < 100,
        "{}",
        head.head
    );
    let post = server.request("POST", "/report.json");
    assert!(
        post.status == 405 && post.head.contains("allow: get, head"),
        "{}",
        post.head
    );
    for path in [
        "/report",
        "/../report.json",
        "//",
        "/%2e%2e/etc/passwd",
        "/report.json/",
    ] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }

    // A page of another site, whose host name resolves to this address, gets no answer.
    let rebound = server.request_by("GET", "/report.json", "evil.example");
    assert!(
        rebound.status == 403 && rebound.body.contains("--allow-host"),
        "{}",
        rebound.body
    );
    assert_eq!(
        server.request_by("GET", "/report.json", "localhost:9795").status,
        200
    );
    assert_eq!(
        server
            .request_by("GET", "/report.json", "ipam.example.com")
            .status,
        200
    );

    hostile_requests_harm_nobody(&server);
    two_clients_get_whole_answers(&server, report.body.len());

    drop(etcd);
    let metrics = server
        .wait("/metrics", |answer| answer.body.contains("\ncalipam_up 0\n"))
        .body;
    assert!(metrics.contains("\ncalipam_ippool_size{"), "{metrics}");
    assert!(metrics.contains("\ncalipam_last_run_exit_code 3\n"), "{metrics}");
    let value = |name: &str| -> f64 {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .expect(name);
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert!(value("calipam_last_success_timestamp_seconds") < value("calipam_last_run_timestamp_seconds"));
    assert_eq!(server.get("/report.json").status, 200);
    let says = "<p class=\"notice\" role=\"alert\">The last check, which ended at ";
    assert!(server.get("/").body.contains(says));
    let stale = server.wait("/healthz", |answer| answer.status == 503);
    assert!(
        stale.body.starts_with("the last check that succeeded ended "),
        "{}",
        stale.body
    );
    assert_eq!(server.get("/livez").status, 200);

    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest)
        .expect("the server closes a connection that sends no request");
    let (code, said) = server.terminate();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(" findings, in ") && said.contains("error: "),
        "{said}"
    );
}

fn hostile_requests_harm_nobody(server: &Server) {
    let status = |bytes: &[u8]| server.raw(bytes).split(' ').nth(1).map(str::to_owned);
    let large = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n",
        "a".repeat(1 << 20)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n",
        "X: a\r\n".repeat(500)
    );
    for (bytes, name) in [
        (large.as_bytes(), "a large head"),
        (many.as_bytes(), "many headers"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "TLS"),
        (b"GET / HTTP/9\r\n\r\n", "another version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
    ] {
        let status = status(bytes);
        assert!(
            status
                .as_deref()
                .is_none_or(|status| status.starts_with(['4', '5'])),
            "{name}: {status:?}"
        );
        assert_eq!(server.get("/livez").status, 200, "after {name}");
    }
    let gone = TcpStream::connect(&server.address).unwrap();
    gone.shutdown(Shutdown::Both).unwrap();
    assert_eq!(server.get("/livez").status, 200);
}

fn two_clients_get_whole_answers(server: &Server, length: usize) {
    thread::scope(|scope| {
        let client = || (0..20).all(|_| server.get("/report.json").body.len().abs_diff(length) < 100);
        let clients = [scope.spawn(client), scope.spawn(client)];
        assert!(clients.into_iter().all(|client| client.join().unwrap()));
    });
}

/// The datastore accepts the connection but never answers.
#[test]
fn before_the_first_check_nothing_is_ready_and_a_signal_ends_the_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let server = Server::start(&["--etcd-endpoints", &endpoint]);
    for path in ["/", "/report.json", "/healthz"] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (503, "no check has succeeded yet\n"),
            "{path}"
        );
    }
    // A browser gets a page, which it loads again by itself.
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
        server.address
    );
    let page = server.raw(head.as_bytes());
    assert!(
        page.starts_with("HTTP/1.1 503 ") && page.to_lowercase().contains("\r\nrefresh: 2\r\n"),
        "{page}"
    );
    assert!(page.contains("<title>calipam: No report yet</title>"), "{page}");
    assert_eq!(server.get("/livez").status, 200);
    assert!(server.get("/metrics").body.contains("\ncalipam_up 0\n"));
    let (code, said) = server.terminate();
    assert_eq!(code, Some(0), "{said}");

    let server = Server::start("--etcd-endpoints http://127.0.0.1:1");
    for path in ["/", "/report.json", "/healthz"] {
        let answer = server.wait(path, |answer| answer.body.contains("failed: "));
        let cause = "no check has succeeded yet; the last one failed: cannot use etcd: http://127.0.0.1:1: ";
        assert!(
            answer.status == 503 && answer.body.starts_with(cause),
            "{path}: {}",
            answer.body
        );
    }
}

/// There are more silent clients than the server accepts, and clients that send requests but read nothing. Probes are
/// answered before a kubelet's timeout, and the clients are disconnected.
#[test]
fn clients_that_are_silent_or_read_nothing_shut_no_one_out() {
    let server = Server::start(&format!("--settle 0 -d {EXAMPLE}"));
    let silent: Vec<TcpStream> = (0..1_000)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    let begin = Instant::now();
    assert_eq!(server.get("/livez").status, 200);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop(silent);
    server.wait("/healthz", |answer| answer.status == 200);

    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    let stuck: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream
                .set_write_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            // Sends enough requests for their responses to fill every buffer.
            let _ = stream.write_all(request.repeat(200).as_bytes());
            stream
        })
        .collect();

    let begin = Instant::now();
    for path in ["/livez", "/healthz", "/metrics"] {
        assert_eq!(server.get(path).status, 200);
    }
    // The probes are answered long before the clients are disconnected, which happens after ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    let busy = server.get("/report.json");
    assert_eq!(
        (busy.status, busy.body.as_str()),
        (503, "too many clients are connected\n")
    );
    server.wait("/report.json", |answer| answer.status == 200);
    drop(stuck);
    assert_eq!(server.terminate().0, Some(0));
}

/// Open pages, each of which listens for events, leave places for whoever asks for something else.
#[test]
fn streams_of_events_leave_places_for_other_requests() {
    let server = Server::start(&format!("--settle 0 -d {EXAMPLE}"));
    server.wait("/healthz", |answer| answer.status == 200);
    let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..64 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        match &status {
            b"HTTP/1.1 200" => streams.push(stream),
            b"HTTP/1.1 503" => refused += 1,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!((streams.len(), refused), (32, 32));
    for path in ["/metrics", "/report.json", "/"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

/// The connection to etcd hangs. Nothing arrives, and neither end notices that.
#[test]
fn a_hanging_watch_is_restarted() {
    let etcd = Etcd::start().unwrap();
    let mut cluster = Cluster::plain(ClusterSpec::new(31).at(jiff::Timestamp::now()), 3, 4);
    let handle = key::handle(&cluster.add_pod_on(0).handle);
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let proxy = Relay::to(etcd.port);
    let endpoint = format!("--etcd-endpoints http://127.0.0.1:{}", proxy.port);
    let server = Server::start(&format!("--interval 1h --settle 0 {endpoint}"));
    server.wait("/healthz", |answer| answer.status == 200);

    proxy.hang();
    let begin = Instant::now();
    etcd.delete(&handle).unwrap();
    server.wait("/report.json", |answer| answer.body.contains("missing-handle"));
    // The client pings the connection every eight seconds, with a timeout of four.
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    let (status, said) = server.terminate();
    assert!(status == Some(0) && !said.contains("error: "), "{said}");
}

#[test]
fn a_wrong_call_ends_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let example = format!("-d {EXAMPLE}");
    let free = format!("--listen 127.0.0.1:0 {example}");
    for (options, code, reason) in [
        (format!("--listen {address} {example}"), 3, "cannot listen on"),
        (
            format!("--listen 9795 {example}"),
            2,
            "expected an address and a port",
        ),
        (format!("--interval 0 {example}"), 2, "the shortest interval"),
        (format!("--interval 99999d {example}"), 2, "the longest interval"),
        (
            format!("{free} --ignore /no/such/file"),
            3,
            "cannot read /no/such/file",
        ),
        (
            format!("{free} --rule half-deleted --skip-rule half-deleted"),
            2,
            "both name",
        ),
        // A file has no changes to record.
        (
            format!("{free} --record /no/such/archive"),
            2,
            "a recording needs a live datastore",
        ),
        (
            "--listen 127.0.0.1:0 -d -".into(),
            2,
            "stdin can be read only once",
        ),
        ("--listen 127.0.0.1:0 --config README.md".into(), 2, "error: "),
    ] {
        calipam(&format!("serve {options}")).failed(code, reason);
    }
}
