//! An API server that reports wrong or incomplete changes while it is followed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_datastore::feed::{Broken, Followed, WholeReadReason};
use calipam_files::recording::{Position, Positions};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::datastore::quiet;
use calipam_testkit::kube::fake::{Fake, Reply};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::faults::{healthy, ok};
use super::support::settings_for_url;

/// The server's next responses to requests for pods.
struct Script {
    newest: &'static str,
    /// The responses to short watches, in order. The last one is repeated.
    watches: Vec<Reply>,
    /// The response to long watches.
    long: Reply,
}

/// A script whose long watches hang.
fn script(newest: &'static str, watches: Vec<Reply>) -> Script {
    Script {
        newest,
        watches,
        long: Reply::Stalled(String::new()),
    }
}

fn pod(name: &str, version: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("of {name}"), "resourceVersion": version});
    json!({"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"podIP": "10.0.0.1"}})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: &str) -> String {
    event(
        "BOOKMARK",
        &json!({"kind": "Pod", "metadata": {"resourceVersion": version}}),
    )
}

fn watch_reply(events: &[String]) -> Reply {
    ok(&events.concat())
}

fn answer(path: &str, script: &Mutex<Script>) -> Reply {
    let list = |items: &[Value], version: &str| {
        ok(&json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}).to_string())
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_pods = path.starts_with("/api/v1/") && path.ends_with("/pods");
    match path {
        _ if query.starts_with("watch=1") && !is_pods => Reply::Stalled(String::new()),
        _ if query.starts_with("watch=1") && !query.ends_with("timeoutSeconds=3") => {
            script.lock().unwrap().long.clone()
        }
        _ if query.starts_with("watch=1") => {
            let watches = &mut script.lock().unwrap().watches;
            if watches.len() > 1 {
                watches.remove(0)
            } else {
                watches[0].clone()
            }
        }
        _ if is_pods && query.starts_with("fieldSelector") => list(&[], script.lock().unwrap().newest),
        _ if is_pods => list(&[pod("a", "5"), pod("b", "3")], "7"),
        "/version" => ok(r#"{"major":"1","minor":"36"}"#),
        "/apis/crd.projectcalico.org/v1" => ok(r#"{"resources":[{"name":"ipamblocks"}]}"#),
        _ => healthy(path),
    }
}

struct Following {
    store: Datastore,
    snapshot: Snapshot,
    followed: Followed,
    script: Arc<Mutex<Script>>,
    _fake: Fake,
}

impl Following {
    async fn begin(newest: &'static str, watches: Vec<Reply>) -> Self {
        Self::with(script(newest, watches)).await
    }

    async fn with(script: Script) -> Self {
        let script = Arc::new(Mutex::new(script));
        let said = Arc::clone(&script);
        let fake = Fake::start(move |path| answer(path, &said));
        let store = Datastore::open(&settings_for_url(&fake.url)).await.unwrap();
        let (snapshot, followed) = store.follow(&quiet()).await.unwrap();
        Self {
            store,
            snapshot,
            followed,
            script,
            _fake: fake,
        }
    }

    /// Applies the changes up to now, and returns the number of changed objects.
    async fn news(&mut self) -> Result<usize, Broken> {
        self.followed.confirm_current().await?;
        let changes = self.followed.news().await?;
        self.followed.apply(&mut self.snapshot);
        Ok(changes)
    }

    fn names(&self) -> String {
        let names = self.snapshot.pods.iter().map(|pod| pod.value.name().to_string());
        names.collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_applied_once_all_are_reported() {
    let changed = [event("ADDED", &pod("aa", "8")), event("DELETED", &pod("b", "9"))];
    let early = vec![watch_reply(&[bookmark("8")]), watch_reply(&[bookmark("10")])];
    for (newest, watches, changes, names) in [
        ("7", vec![watch_reply(&[])], 0, "a b"),
        ("9", vec![watch_reply(&[bookmark("9")])], 0, "a b"),
        ("9", vec![watch_reply(&changed)], 2, "a aa"),
        // After a bookmark with an earlier version, the next watch continues from that version.
        ("10", early, 0, "a b"),
    ] {
        let mut following = Following::begin(newest, watches).await;
        assert_eq!(following.news().await.unwrap(), changes, "{newest}");
        assert_eq!(following.names(), names, "{newest}");
    }
}

/// Returns true for the expected result.
type Is = fn(&Result<usize, Broken>) -> bool;

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_reports_are_not_applied() {
    let status = |code: u16| event("ERROR", &json!({"kind": "Status", "code": code, "message": "no"}));
    let cannot: Is = |found| matches!(found, Err(Broken::Lost(WholeReadReason::CannotWatch(_))));
    let is_other: Is = |found| matches!(found, Err(Broken::Lost(WholeReadReason::AnotherHistory(_))));
    let forgotten: Is = |found| matches!(found, Err(Broken::Lost(WholeReadReason::Compacted)));
    let failed: Is = |found| matches!(found, Err(Broken::Failed(_)));
    let cases: Vec<(&str, &'static str, Reply, Is)> = vec![
        ("no bookmark", "9", watch_reply(&[]), cannot),
        (
            "always an early bookmark",
            "9",
            watch_reply(&[bookmark("8")]),
            cannot,
        ),
        ("forgotten", "9", watch_reply(&[status(410)]), forgotten),
        (
            "forgotten at once",
            "9",
            Reply::Whole(410, String::new()),
            forgotten,
        ),
        ("failed", "9", watch_reply(&[status(500)]), failed),
        ("cut", "9", Reply::Cut(bookmark("8")), failed),
        ("words", "9", watch_reply(&["words\n".into()]), failed),
        (
            "a version that is no number",
            "x",
            watch_reply(&[bookmark("9")]),
            failed,
        ),
        (
            "a change without a version",
            "9",
            watch_reply(&[event("ADDED", &pod("c", ""))]),
            failed,
        ),
        ("an earlier version", "6", watch_reply(&[bookmark("9")]), is_other),
        (
            "refused",
            "9",
            Reply::Whole(403, r#"{"kind":"Status","message":"no"}"#.into()),
            cannot,
        ),
    ];
    for (what, newest, reply, is_expected) in cases {
        let mut following = Following::begin(newest, vec![reply]).await;
        let found = following.news().await;
        assert!(is_expected(&found), "{what}: {found:?}");
        assert_eq!(following.names(), "a b", "{what}");
    }
}

/// A restored server does not report changes that it lost, and may soon reach the same version again.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_watch_is_never_continued() {
    let failure = event("ERROR", &json!({"kind": "Status", "code": 500, "message": "no"}));
    let is_interrupted: Is = |found| matches!(found, Err(Broken::Lost(WholeReadReason::Interrupted)));
    let failed: Is = |found| matches!(found, Err(Broken::Failed(_)));
    for (what, long, is_expected) in [
        ("it is cut", Reply::Cut(String::new()), is_interrupted),
        ("it ends too early", watch_reply(&[bookmark("9")]), is_interrupted),
        ("it fails", watch_reply(&[failure]), failed),
    ] {
        let mut following = Following::begin("9", vec![watch_reply(&[bookmark("9")])]).await;
        assert_eq!(following.news().await.unwrap(), 0, "{what}");
        let mut following = Following::with(Script {
            long,
            ..script("9", vec![watch_reply(&[bookmark("9")])])
        })
        .await;
        let waited = timeout(Duration::from_secs(10), following.followed.wait());
        waited.await.expect(what).unwrap();
        let found = following.news().await;
        assert!(is_expected(&found), "{what}: {found:?}");
        // The next call also reports the interruption.
        assert!(is_interrupted(&following.news().await), "{what}");
    }
}

/// The server must report the last recorded change first, because only the same history contains that change.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_continues_only_with_the_same_history() {
    let added = event("ADDED", &pod("c", "8"));
    let following = Following::with(Script {
        long: Reply::Stalled(added.clone()),
        ..script("9", vec![])
    })
    .await;
    let kinds = [
        "ipamblocks",
        "pods",
        "nodes",
        "services",
        "ippools",
        "ipreservations",
        "clusterinformations",
    ];
    let mut positions: Positions = kinds.map(|kind| (kind.to_owned(), Position::at(7))).into();
    let recorded = async |positions: &Positions| {
        following
            .store
            .changes_after(positions.clone())
            .await
            .unwrap()
            .reported()
            .await
    };
    let first = recorded(&positions).await.unwrap().changes;
    assert_eq!(first.len(), 1);
    positions.get_mut("pods").unwrap().note(&first[0]);

    let mut other = pod("c", "8");
    other["status"]["podIP"] = json!("10.0.0.2");
    let next = event("ADDED", &pod("d", "9"));
    for (what, reported, is_same) in [
        ("the same", added.clone(), true),
        ("another pod", event("ADDED", &pod("x", "8")), false),
        ("another value", event("ADDED", &other), false),
        ("deleted", event("DELETED", &pod("c", "8")), false),
        ("later", event("ADDED", &pod("c", "9")), false),
        ("nothing", bookmark("9"), false),
    ] {
        let long = Reply::Stalled(next.clone());
        *following.script.lock().unwrap() = Script {
            long,
            ..script("9", vec![watch_reply(&[bookmark("7"), reported])])
        };
        match recorded(&positions).await {
            Ok(reported) => {
                assert!(is_same, "{what}");
                assert_eq!(
                    reported
                        .changes
                        .iter()
                        .map(|change| change.revision)
                        .collect::<Vec<_>>(),
                    [9]
                );
            }
            Err(Broken::Lost(WholeReadReason::AnotherHistory(_))) => assert!(!is_same, "{what}"),
            Err(why) => panic!("{what}: {why:?}"),
        }
    }
}
