//! An API server that tells something wrong, or not all, while it is read with a cache.

use std::sync::{Arc, Mutex};

use calipam_datastore::Datastore;
use calipam_datastore::cache::{CacheUse, CachedRead, WhyWhole, Worth};
use serde_json::{Value, json};

use super::faults::{PODS, ok};
use super::support::settings_for_url;
use crate::support::quiet;
use calipam_testkit::kube::fake::{Fake, Reply};

/// What the server says next.
#[derive(Clone)]
struct Says {
    /// The version of the whole list, and the newest one.
    listed: &'static str,
    newest: &'static str,
    /// What watches tell, one after the other; the last of them again and again.
    watches: Vec<Reply>,
}

fn pod(name: &str, version: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("of {name}"), "resourceVersion": version});
    json!({"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"podIP": "10.0.0.1"}})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: &str) -> String {
    event("BOOKMARK", &json!({"kind": "Pod", "metadata": {"resourceVersion": version}}))
}

/// The last write before the cache was made: `a`, as version 5.
fn again() -> String {
    event("ADDED", &pod("a", "5"))
}

fn answer(path: &str, says: &Mutex<Says>) -> Reply {
    let mut says = says.lock().unwrap();
    let list = |items: &[Value], version: &str| {
        ok(&json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}).to_string())
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if path.starts_with("/api/v1/") && path.ends_with("/pods") {
        return match query {
            // From before the last write on, and from the bookmark.
            _ if query.starts_with("watch=1") => {
                assert!(
                    query.contains("&resourceVersion=4&") || query.contains("&resourceVersion=8&"),
                    "{query}"
                );
                if says.watches.len() > 1 { says.watches.remove(0) } else { says.watches[0].clone() }
            }
            _ if query.starts_with("fieldSelector") => list(&[], says.newest),
            _ => list(&[pod("a", "5"), pod("b", "3")], says.listed),
        };
    }
    match path {
        "/version" => ok(r#"{"major":"1","minor":"36"}"#),
        "/apis" => ok(r#"{"groups":[{"name":"crd.projectcalico.org","preferredVersion":{"version":"v1"}}]}"#),
        "/apis/crd.projectcalico.org/v1" => {
            ok(r#"{"resources":[{"name":"ipamblocks"},{"name":"clusterinformations"}]}"#)
        }
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            Reply::Whole(201, r#"{"status":{"allowed":true}}"#.into())
        }
        "/apis/crd.projectcalico.org/v1/clusterinformations/default" => {
            ok(r#"{"metadata":{"name":"default","uid":"u"},"spec":{"clusterGUID":"g"}}"#)
        }
        _ => list(&[], "7"),
    }
}

async fn read(store: &Datastore, folder: &tempfile::TempDir) -> CachedRead {
    let everything = Worth { all: 0, kind: 0 };
    store.observe_with_cache_from(folder.path(), everything, &quiet()).await.unwrap()
}

fn of_pods(read: &CachedRead) -> Result<usize, WhyWhole> {
    let CacheUse::Kinds(kinds) = &read.used else { panic!("{:?}", read.used) };
    kinds.iter().find(|used| used.kind == "pods").unwrap().read.clone()
}

/// Reads twice: what a second check reads of pods, and their names.
async fn second(newest: &'static str, watches: Vec<Reply>) -> (Result<usize, WhyWhole>, String) {
    let says = Arc::new(Mutex::new(Says { listed: "7", newest, watches }));
    let (folder, said) = (tempfile::tempdir().unwrap(), Arc::clone(&says));
    let fake = Fake::start(move |path| answer(path, &said));
    let store = Datastore::open(&settings_for_url(&fake.url)).await.unwrap();
    let first = read(&store, &folder).await;
    assert_eq!((of_pods(&first), first.unsaved), (Err(WhyWhole::NoCacheYet), None));
    let second = read(&store, &folder).await;
    let mut names: Vec<String> =
        second.snapshot.pods.iter().map(|pod| pod.value.name().to_string()).collect();
    names.dedup();
    assert!(fake.count(&format!("{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion=4&")) <= 1);
    (of_pods(&second), names.join(" "))
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_taken_when_all_were_told() {
    let told = |events: &[String]| vec![ok(&events.concat())];
    let same = (Ok(0), "a b".to_owned());
    assert_eq!(second("7", told(&[again()])).await, same);
    assert_eq!(second("9", told(&[again(), bookmark("9")])).await, same);
    let changed = [again(), event("ADDED", &pod("aa", "8")), event("DELETED", &pod("b", "9"))];
    assert_eq!(second("9", told(&changed)).await, (Ok(2), "a aa".to_owned()));
    // What came later is for the next check.
    let later = event("DELETED", &pod("a", "12"));
    assert_eq!(second("9", told(&[again(), later])).await, same);
    // A bookmark of an earlier version: the watch goes on from there.
    let early = vec![ok(&[again(), bookmark("8")].concat()), ok(&bookmark("10"))];
    assert_eq!(second("10", early).await, same);
}

/// Whether everything was read for the reason that is expected.
type Is = fn(&WhyWhole) -> bool;

#[tokio::test(flavor = "multi_thread")]
async fn where_not_all_is_told_everything_is_read() {
    let told = |events: &[String]| ok(&events.concat());
    let status = |code: u16| event("ERROR", &json!({"kind": "Status", "code": code, "message": "no"}));
    let cannot: Is = |why| matches!(why, WhyWhole::CannotWatch(_));
    let is_other: Is = |why| matches!(why, WhyWhole::AnotherHistory(_));
    let forgotten: Is = |why| *why == WhyWhole::Compacted;
    let cases: Vec<(&str, &'static str, Reply, Is)> = vec![
        ("no bookmark", "9", told(&[again()]), cannot),
        ("always an early bookmark", "9", told(&[again(), bookmark("8")]), cannot),
        ("nothing", "9", told(&[]), cannot),
        ("forgotten", "9", told(&[status(410)]), forgotten),
        ("forgotten at once", "9", Reply::Whole(410, String::new()), forgotten),
        ("failed", "9", told(&[status(500)]), cannot),
        ("failed later", "9", told(&[again(), status(500)]), cannot),
        ("cut", "9", Reply::Cut(again()), cannot),
        ("words", "9", told(&["words\n".into()]), cannot),
        ("a version that is no number", "x", told(&[again(), bookmark("9")]), cannot),
        ("a change without a version", "9", told(&[again(), event("ADDED", &pod("c", ""))]), cannot),
        ("an earlier version", "6", told(&[again(), bookmark("9")]), is_other),
        ("another pod", "9", told(&[event("ADDED", &pod("x", "5")), bookmark("9")]), is_other),
        ("deleted", "9", told(&[event("DELETED", &pod("a", "5")), bookmark("9")]), is_other),
        ("nothing of it", "9", told(&[bookmark("9")]), is_other),
        ("refused", "9", Reply::Whole(403, r#"{"kind":"Status","message":"no"}"#.into()), cannot),
    ];
    for (what, newest, reply, is_expected) in cases {
        let (read, names) = second(newest, vec![reply]).await;
        let why = read.unwrap_err();
        assert!(is_expected(&why), "{what}: {why:?}");
        assert_eq!(names, "a b", "{what}");
    }
}
