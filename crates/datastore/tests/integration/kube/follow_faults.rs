//! An API server that tells something wrong, or not all, while it is followed.

use std::sync::{Arc, Mutex};

use calipam_datastore::changes::WhyWhole;
use calipam_datastore::follow::Followed;
use calipam_datastore::{Datastore, Error};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::kube::fake::{Fake, Reply};
use serde_json::{Value, json};

use super::faults::ok;
use super::support::settings_for_url;
use crate::support::quiet;

/// What the server says next of pods.
struct Says {
    newest: &'static str,
    /// What short watches tell, one after the other; the last of them again and again.
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

fn told(events: &[String]) -> Reply {
    ok(&events.concat())
}

fn answer(path: &str, says: &Mutex<Says>) -> Reply {
    let list = |items: &[Value], version: &str| {
        ok(&json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}).to_string())
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_pods = path.starts_with("/api/v1/") && path.ends_with("/pods");
    match path {
        // The long watches lie still.
        _ if query.starts_with("watch=1") && !(is_pods && query.ends_with("timeoutSeconds=3")) => {
            Reply::Stalled(String::new())
        }
        _ if is_pods && query.starts_with("watch=1") => {
            let watches = &mut says.lock().unwrap().watches;
            if watches.len() > 1 { watches.remove(0) } else { watches[0].clone() }
        }
        _ if is_pods && query.starts_with("fieldSelector") => list(&[], says.lock().unwrap().newest),
        _ if is_pods => list(&[pod("a", "5"), pod("b", "3")], "7"),
        "/version" => ok(r#"{"major":"1","minor":"36"}"#),
        "/apis" => ok(r#"{"groups":[{"name":"crd.projectcalico.org","preferredVersion":{"version":"v1"}}]}"#),
        "/apis/crd.projectcalico.org/v1" => ok(r#"{"resources":[{"name":"ipamblocks"}]}"#),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            Reply::Whole(201, r#"{"status":{"allowed":true}}"#.into())
        }
        _ => list(&[], "7"),
    }
}

struct Following {
    store: Datastore,
    snapshot: Snapshot,
    followed: Followed,
    says: Arc<Mutex<Says>>,
    _fake: Fake,
}

impl Following {
    async fn begin(newest: &'static str, watches: Vec<Reply>) -> Self {
        let says = Arc::new(Mutex::new(Says { newest, watches }));
        let said = Arc::clone(&says);
        let fake = Fake::start(move |path| answer(path, &said));
        let store = Datastore::open(&settings_for_url(&fake.url)).await.unwrap();
        let (snapshot, followed) = store.follow(&quiet()).await.unwrap().unwrap();
        Self { store, snapshot, followed, says, _fake: fake }
    }

    /// How many objects have changed by now; or why everything has to be read, or what has failed.
    async fn news(&mut self) -> Result<Result<usize, WhyWhole>, Error> {
        self.store.prove(&mut self.followed).await?;
        let news = match self.store.news(&mut self.followed).await? {
            Ok(news) => news,
            Err(why) => return Ok(Err(why)),
        };
        let changes = news.len();
        news.apply(&mut self.snapshot, &mut self.followed);
        Ok(Ok(changes))
    }

    fn names(&self) -> String {
        let names = self.snapshot.pods.iter().map(|pod| pod.value.name().to_string());
        names.collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_taken_when_all_were_told() {
    let changed = [event("ADDED", &pod("aa", "8")), event("DELETED", &pod("b", "9"))];
    let early = vec![told(&[bookmark("8")]), told(&[bookmark("10")])];
    for (newest, watches, changes, names) in [
        ("7", vec![told(&[])], 0, "a b"),
        ("9", vec![told(&[bookmark("9")])], 0, "a b"),
        ("9", vec![told(&changed)], 2, "a aa"),
        // A bookmark of an earlier version: the next watch goes on from there.
        ("10", early, 0, "a b"),
    ] {
        let mut following = Following::begin(newest, watches).await;
        assert_eq!(following.news().await.unwrap(), Ok(changes), "{newest}");
        assert_eq!(following.names(), names, "{newest}");
    }
}

/// Whether it ended as is expected.
type Is = fn(&Result<Result<usize, WhyWhole>, Error>) -> bool;

#[tokio::test(flavor = "multi_thread")]
async fn where_not_all_is_told_nothing_is_taken() {
    let status = |code: u16| event("ERROR", &json!({"kind": "Status", "code": code, "message": "no"}));
    let cannot: Is = |found| matches!(found, Ok(Err(WhyWhole::CannotWatch(_))));
    let is_other: Is = |found| matches!(found, Ok(Err(WhyWhole::AnotherHistory(_))));
    let forgotten: Is = |found| matches!(found, Ok(Err(WhyWhole::Compacted)));
    let failed: Is = Result::is_err;
    let cases: Vec<(&str, &'static str, Reply, Is)> = vec![
        ("no bookmark", "9", told(&[]), cannot),
        ("always an early bookmark", "9", told(&[bookmark("8")]), cannot),
        ("forgotten", "9", told(&[status(410)]), forgotten),
        ("forgotten at once", "9", Reply::Whole(410, String::new()), forgotten),
        ("failed", "9", told(&[status(500)]), failed),
        ("cut", "9", Reply::Cut(bookmark("8")), failed),
        ("words", "9", told(&["words\n".into()]), failed),
        ("a version that is no number", "x", told(&[bookmark("9")]), failed),
        ("a change without a version", "9", told(&[event("ADDED", &pod("c", ""))]), failed),
        ("an earlier version", "6", told(&[bookmark("9")]), is_other),
        ("refused", "9", Reply::Whole(403, r#"{"kind":"Status","message":"no"}"#.into()), cannot),
    ];
    for (what, newest, reply, is_expected) in cases {
        let mut following = Following::begin(newest, vec![reply]).await;
        let found = following.news().await;
        assert!(is_expected(&found), "{what}: {found:?}");
        assert_eq!(following.names(), "a b", "{what}");
    }
}

/// Where watches begin again, what was written last is reported first: only the same history has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_restored_is_read_whole() {
    let failure = event("ERROR", &json!({"kind": "Status", "code": 500, "message": "no"}));
    let added = event("ADDED", &pod("c", "8"));
    for (reported, is_same) in [
        (event("ADDED", &pod("c", "8")), true),
        (event("ADDED", &pod("x", "8")), false),
        (event("DELETED", &pod("c", "8")), false),
        (event("ADDED", &pod("c", "9")), false),
    ] {
        let mut following = Following::begin("8", vec![told(std::slice::from_ref(&added))]).await;
        assert_eq!(following.news().await.unwrap(), Ok(1));
        *following.says.lock().unwrap() =
            Says { newest: "9", watches: vec![told(std::slice::from_ref(&failure))] };
        assert!(following.news().await.is_err());
        let again = told(&[reported.clone(), bookmark("9")]);
        *following.says.lock().unwrap() = Says { newest: "9", watches: vec![again] };
        match following.news().await.unwrap() {
            Ok(changes) => assert!(is_same && changes == 0, "{reported}: {changes}"),
            Err(WhyWhole::AnotherHistory(_)) => assert!(!is_same, "{reported}"),
            Err(why) => panic!("{reported}: {why:?}"),
        }
        assert_eq!(following.names(), "a b c", "{reported}");
    }
}
