//! Tests of the tearing proxy in front of real servers.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;

const LATE: Duration = Duration::from_millis(300);

/// Puts a key through the proxy, after a request that passes. Returns true if the put gets a response.
async fn put(torn: &Tearing, key: &str, tear: Tear) -> bool {
    torn.tear_at(1, tear);
    let mut client = etcd_client::Client::connect([torn.url()], None).await.unwrap();
    client.get(key, None).await.unwrap();
    client.put(key, "x", None).await.is_ok()
}

#[test]
fn requests_to_etcd_are_torn_one_by_one() {
    let etcd = Etcd::start().unwrap();
    let torn = Tearing::etcd(&etcd).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let is_there = |key: &str| {
        let key = key.to_owned();
        etcd.with_client(async move |mut client| Ok(client.get(key.as_str(), None).await?.count() == 1))
            .unwrap()
    };
    for (key, tear, answered, written) in [
        ("pass", Tear::Pass, true, true),
        ("late", Tear::Delay(LATE), true, true),
        ("drop", Tear::Drop, false, false),
        ("swallow", Tear::Swallow, false, true),
        ("large", Tear::Status(422), false, false),
        ("busy", Tear::Status(500), false, false),
    ] {
        let begun = Instant::now();
        assert_eq!(runtime.block_on(put(&torn, key, tear)), answered, "{key}");
        assert_eq!((is_there(key), torn.count()), (written, 2), "{key}");
        assert!(tear != Tear::Delay(LATE) || begun.elapsed() >= LATE);
    }
    torn.closer()();
    assert!(TcpStream::connect(torn.url().trim_start_matches("http://")).is_err());
}

#[test]
fn requests_to_an_api_server_are_torn_one_by_one() {
    let server = KubeApiserver::start().unwrap();
    let torn = Tearing::kubernetes(&server).unwrap();
    let kubeconfig = std::fs::read_to_string(torn.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains(&torn.url()) && kubeconfig.contains(server.token()),
        "{kubeconfig}"
    );
    let create = |name: &str| {
        let head = hyper::Request::post(format!("{}/api/v1/nodes", torn.url()))
            .header("authorization", format!("Bearer {}", server.token()))
            .header("content-type", "application/json");
        let body = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}"}}}}"#);
        let client = http::client(None, false).unwrap();
        let answer = http::exchange(&client, head.body(body).unwrap(), Duration::from_secs(5));
        answer.map(|response| response.status).ok()
    };
    for (name, tear, status, written) in [
        ("pass", Tear::Pass, Some(201), true),
        ("late", Tear::Delay(LATE), Some(201), true),
        ("drop", Tear::Drop, None, false),
        ("swallow", Tear::Swallow, None, true),
        ("refused", Tear::Status(422), Some(422), false),
    ] {
        torn.plan(move |seen| {
            if (seen.method, seen.path) == ("POST", "/api/v1/nodes") {
                tear
            } else {
                Tear::Pass
            }
        });
        assert_eq!(create(name), status, "{name}");
        let found = server
            .request("GET", &format!("/api/v1/nodes/{name}"), "")
            .unwrap()
            .status
            == 200;
        assert_eq!((found, torn.count()), (written, 1), "{name}");
    }
}
