//! Watches are independent of each other. One reports nothing, while another reports changes that make sense only
//! together with the unreported ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calipam_datastore::settings::{KubectlOptions, Overrides};
use calipam_testkit::datastore::open;
use calipam_testkit::kube::fake::{Fake, Reply};
use serde_json::{Value, json};

use super::{begin, unattended};

const CALICO: &str = "/apis/crd.projectcalico.org/v1/";

fn ok(body: &Value) -> Reply {
    Reply::Whole(200, body.to_string())
}

fn list(items: &[Value], version: &str) -> Reply {
    ok(&json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}))
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: &str) -> String {
    event("BOOKMARK", &json!({"metadata": {"resourceVersion": version}}))
}

/// The block of node-1, with or without the address of the pod `web`.
fn block(is_assigned: bool, version: &str) -> Value {
    let owner = json!({"namespace": "default", "node": "node-1", "pod": "web",
        "timestamp": "2026-04-01 10:12:00.123456789 +0000 UTC"});
    let (allocations, free, attributes) = match is_assigned {
        true => (
            json!([0]),
            json!([]),
            json!([{"handle_id": "net.a", "secondary": owner}]),
        ),
        false => (json!([null]), json!([0]), json!([])),
    };
    json!({"metadata": {"name": "10-0-0-0-32", "uid": "block", "resourceVersion": version}, "spec": {
        "cidr": "10.0.0.0/32", "affinity": "host:node-1", "allocations": allocations, "unallocated": free,
        "attributes": attributes, "strictAffinity": false, "deleted": false}})
}

fn handle() -> Value {
    json!({"metadata": {"name": "net.a", "uid": "handle", "resourceVersion": "9"},
        "spec": {"handleID": "net.a", "block": {"10.0.0.0/32": 1}, "deleted": false}})
}

fn affinity() -> Value {
    json!({"metadata": {"name": "node-1-10-0-0-0-32", "uid": "affinity", "resourceVersion": "3"},
        "spec": {"cidr": "10.0.0.0/32", "node": "node-1", "state": "confirmed", "type": "host", "deleted": "false"}})
}

fn pod() -> Value {
    json!({"metadata": {"namespace": "default", "name": "web", "uid": "pod", "resourceVersion": "8"},
        "spec": {"nodeName": "node-1"}, "status": {"phase": "Running", "podIP": "10.0.0.0", "podIPs": [{"ip": "10.0.0.0"}]}})
}

fn node() -> Value {
    json!({"metadata": {"name": "node-1", "uid": "node", "resourceVersion": "2"}})
}

/// A server whose long watch of pods reports nothing. A short watch reports the pod, if there is one.
fn server(has_pod: bool, changed: &Arc<AtomicBool>) -> Fake {
    let changed = Arc::clone(changed);
    Fake::start(move |path| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let plural = path.rsplit('/').next().unwrap_or_default();
        if query.starts_with("watch=1") {
            let new = match plural {
                "ipamblocks" => event("MODIFIED", &block(true, "10")),
                "ipamhandles" => event("ADDED", &handle()),
                "pods" if has_pod => event("ADDED", &pod()),
                _ => String::new(),
            };
            let is_short = query.ends_with("timeoutSeconds=3");
            return match plural {
                _ if is_short => ok_text(new + &bookmark("12")),
                "ipamblocks" | "ipamhandles" => Reply::InParts(new, bookmark("12"), Arc::clone(&changed)),
                _ => Reply::Stalled(String::new()),
            };
        }
        match plural {
            "version" => ok(&json!({"major": "1", "minor": "36"})),
            "apis" => ok(
                &json!({"groups": [{"name": "crd.projectcalico.org", "preferredVersion": {"version": "v1"}}]}),
            ),
            _ if CALICO.trim_end_matches('/') == path => ok(&json!({"resources": [
                {"name": "ipamblocks"}, {"name": "ipamhandles"}, {"name": "blockaffinities"}]})),
            "selfsubjectaccessreviews" => Reply::Whole(201, r#"{"status":{"allowed":true}}"#.into()),
            _ if query.starts_with("fieldSelector") => list(&[], "12"),
            "ipamblocks" => list(&[block(false, "4")], "7"),
            "blockaffinities" => list(&[affinity()], "7"),
            "nodes" => list(&[node()], "7"),
            _ => list(&[], "7"),
        }
    })
}

fn ok_text(body: String) -> Reply {
    Reply::Whole(200, body)
}

/// The findings after each step, and the number of watch requests for pods.
async fn found(has_pod: bool) -> (Vec<Vec<String>>, usize) {
    let changed = Arc::new(AtomicBool::new(false));
    let fake = server(has_pod, &changed);
    let settings = Overrides {
        datastore: Some("kubernetes".into()),
        kubectl: KubectlOptions {
            server: Some(fake.url.clone()),
            ..KubectlOptions::default()
        },
        ..Overrides::default()
    };
    let datastore = open(settings).await;
    let mut live = begin(&datastore, 1).await;
    let mut reports = Vec::new();
    for _ in 0..6 {
        live.wait(Duration::from_millis(500)).await.unwrap();
        live.step(unattended(&datastore)).await.unwrap();
        let report = live.report();
        reports.push(
            report
                .findings
                .iter()
                .map(|f| format!("{} {}", f.code, f.subject))
                .collect(),
        );
    }
    changed.store(true, Ordering::SeqCst);
    (reports, fake.count("/api/v1/pods?watch=1"))
}

/// A pod that another watch has not reported yet does not count as deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_watch_gives_no_false_finding() {
    let (reports, watches) = found(true).await;
    let none: Vec<String> = Vec::new();
    assert!(reports.iter().all(|report| *report == none), "{reports:#?}");
    assert_eq!(watches, 2, "the server was asked once whether there is more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_leak_is_a_finding() {
    let (reports, watches) = found(false).await;
    assert_eq!(reports[0], [""; 0], "{reports:#?}");
    assert_eq!(
        reports.last().unwrap(),
        &["leaked-address 10.0.0.0"],
        "{reports:#?}"
    );
    assert_eq!(watches, 2, "{reports:#?}");
}
