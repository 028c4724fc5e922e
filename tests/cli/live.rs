//! `calipam serve` follows the cluster: it checks changes at once, notifies pages, and answers queries from memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::browser::{Browser, Page};
use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::program::{EXAMPLE, calipam, on_example, scratch};
use super::serve::Server;

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd with a healthy cluster, and one of its handles, which tests remove and restore.
pub(super) struct Changing {
    pub etcd: Etcd,
    pub handle: String,
    pub value: Vec<u8>,
}

impl Changing {
    pub(super) fn start() -> Self {
        let mut cluster = Cluster::plain(ClusterSpec::new(31).at(jiff::Timestamp::now()), 3, 4);
        let handle = key::handle(&cluster.add_pod_on(0).handle);
        let etcd = Etcd::of(&cluster).unwrap();
        let value = etcd.entries().unwrap()[&handle].0.clone();
        Self { etcd, handle, value }
    }

    /// Starts a server with an interval of one hour.
    fn serve(&self) -> Server {
        serve(&[
            "--interval",
            "1h",
            "--settle",
            "0",
            "--etcd-endpoints",
            &self.etcd.endpoint(),
        ])
    }

    fn delete(&self) {
        self.etcd.delete(&self.handle).unwrap();
    }

    fn put(&self) {
        self.etcd.put(&self.handle, self.value.clone()).unwrap();
    }
}

/// Starts a server, and waits until it has checked the cluster.
pub(super) fn serve(arguments: &[&str]) -> Server {
    let server = Server::start(arguments);
    server.wait("/healthz", |answer| answer.status == 200);
    server
}

fn findings(report: &str) -> usize {
    serde_json::from_str::<Value>(report).unwrap()["findings"]
        .as_array()
        .unwrap()
        .len()
}

/// Returns a function that yields the events of a server, one by one.
fn events(server: &Server) -> impl FnMut() -> Option<String> + use<> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    move || lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned))
}

#[test]
fn a_change_is_checked_at_once_and_pages_hear_of_it() {
    let cluster = Changing::start();
    let server = cluster.serve();
    let mut next = events(&server);
    let first = next().unwrap();
    assert_eq!(findings(&server.get("/report.json").body), 0);

    cluster.delete();
    let second = next().unwrap();
    assert_ne!(first, second);
    assert_eq!(findings(&server.get("/report.json").body), 1);
    cluster.put();
    assert_ne!(second, next().unwrap());
    assert_eq!(findings(&server.get("/report.json").body), 0);

    // Listening clients do not delay the end of the server.
    let begin = Instant::now();
    assert_eq!(server.terminate().0, Some(0));
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(next(), None);
}

#[test]
fn outages_and_recoveries_are_events() {
    let cluster = Changing::start();
    let endpoint = cluster.etcd.endpoint();
    let server = serve(&["--interval", "2s", "--settle", "0", "--etcd-endpoints", &endpoint]);
    let mut next = events(&server);
    assert!(!next().unwrap().ends_with(" failed"));
    drop(cluster);
    while !next().expect("the failure is an event").ends_with(" failed") {}
    assert_eq!(
        server.get("/api/v1/ip/10.0.0.1").status,
        200,
        "the last good check answers"
    );
}

#[test]
fn questions_are_answered_as_show_does() {
    let server = serve(&["--settle", "0", "-d", EXAMPLE]);
    let handles = on_example(&["show", "--ip", "10.244.10.6", "-o", "json"]).json();
    let handle = handles["blocks"][0]["record"]["handle"]
        .as_str()
        .unwrap()
        .to_owned();
    for (kind, name) in [
        ("ip", "10.244.10.3"),
        ("ip", "fd00::1"),
        ("pod", "monitoring/node-exporter-6799fc88d8-2ssxf"),
        ("node", "node-10"),
        ("handle", &handle),
    ] {
        let show = |format| on_example(&["show", "-o", format, &format!("--{kind}"), name]);
        let answer = server.get(&format!("/api/v1/{kind}/{name}"));
        assert!(answer.status == 200, "{}", answer.head);
        assert!(
            answer.head.contains("content-type: application/json"),
            "{}",
            answer.head
        );
        assert!(answer.head.contains("\r\nage: "), "{}", answer.head);
        let answered: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answered, show("json").json(), "{name}");
        let text = server.get(&format!("/ask?q={}", name.replace('/', "%2F")));
        assert_eq!(text.body, show("wide").stdout, "{name}");
    }
    for (path, status) in [
        ("/api/v1/pod/default/nobody", 404),
        ("/api/v1/node/nobody", 404),
        ("/api/v1/handle/nobody", 404),
        ("/api/v1/ip/10.0.0", 404),
        ("/api/v1/", 404),
        ("/ask", 400),
        ("/ask?q=%ff", 400),
        ("/ask?q=+", 400),
        ("/ask?q=%00%1b", 404),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    assert!(server.get("/api/v1/").body.contains("/api/v1/ip/ADDRESS"));
}

/// Returns the title of the page, or null while the page is being replaced.
fn title(page: &mut Page<'_>) -> Value {
    page.evaluate("document.title").unwrap_or_default()
}

fn wait_for_title(page: &mut Page<'_>, wanted: &str) {
    wait_for(page, "document.title", wanted);
}

fn wait_for(page: &mut Page<'_>, expression: &str, wanted: &str) {
    let begin = Instant::now();
    while page.evaluate(expression).unwrap_or_default() != wanted {
        assert!(begin.elapsed() < PATIENCE, "{expression} is not {wanted}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// In a browser, the page reloads itself, but not while the user types. Its form sends queries.
#[test]
fn an_open_page_shows_what_has_changed() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let cluster = Changing::start();
    let server = cluster.serve();
    let mut page = browser.page().unwrap();
    page.open_url(&format!("http://{}/", server.address)).unwrap();
    assert_eq!(title(&mut page), "calipam: no findings");

    cluster.delete();
    wait_for_title(&mut page, "calipam: 1 finding");
    wait_for(&mut page, "document.readyState", "complete");
    page.click("document.querySelector('.ask input')").unwrap();
    wait_for(&mut page, "document.activeElement.name", "q");
    cluster.put();
    server.wait("/report.json", |answer| findings(&answer.body) == 0);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(title(&mut page), "calipam: 1 finding", "somebody is typing");
    page.evaluate("document.activeElement.blur()").unwrap();
    wait_for_title(&mut page, "calipam: no findings");
    assert_eq!(page.complaints().unwrap(), [] as [String; 0]);
    // The answer is a page like the report, with a link back to it.
    page.evaluate("document.querySelector('.ask input').value = 'node-1'")
        .unwrap();
    page.click("document.querySelector('.ask button')").unwrap();
    wait_for_title(&mut page, "calipam: node-1");
    let endpoint = cluster.etcd.endpoint();
    let show = [
        "show",
        "--node",
        "node-1",
        "-o",
        "wide",
        "--no-headers",
        "--etcd-endpoints",
        &endpoint,
    ];
    let shown = calipam(&show).stdout;
    let rows = page
        .evaluate("document.querySelector('tbody').innerText")
        .unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(rows.as_str().unwrap()), words(&shown));
    let code = page
        .evaluate("document.querySelector('main code').innerText")
        .unwrap();
    assert_eq!(code, format!("calipam show node-1 --etcd-endpoints {endpoint}"));
    page.resize(400, 900).unwrap();
    assert_eq!(
        page.evaluate("document.documentElement.scrollWidth").unwrap(),
        400
    );
    page.open_url(&format!("http://{}/ask?q=nobody", server.address))
        .unwrap();
    let main = "document.querySelector('main')?.innerText";
    wait_for(&mut page, main, "no node, pool or handle has the name \"nobody\"");
    page.click("document.querySelector('nav a')").unwrap();
    wait_for_title(&mut page, "calipam: no findings");
}

/// An outage is shown as an alert, like a failed check. Only a failed check is part of the page's version, so an outage
/// does not make the page reload.
#[test]
fn a_page_with_an_outage_is_not_loaded_again() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let (_folder, export) = scratch("cluster.jsonl");
    let cluster = String::from_utf8(Cluster::plain(ClusterSpec::new(31), 2, 4).export()).unwrap();
    let disabled = cluster.replace("\"spec\":{\"cidr\"", "\"spec\":{\"disabled\":true,\"cidr\"");
    fs::write(&export, disabled).unwrap();
    let server = serve(&["--settle", "0", "-d", export.to_str().unwrap()]);
    let mut page = browser.page().unwrap();
    let url = format!("http://{}/", server.address);
    page.open_url(&url).unwrap();
    let alert = page
        .evaluate("document.querySelector('main [role=alert]').innerText")
        .unwrap();
    assert!(alert.as_str().unwrap().contains("no pool is enabled"), "{alert}");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(page.requests().unwrap(), [url.clone(), url + "events"]);
}
