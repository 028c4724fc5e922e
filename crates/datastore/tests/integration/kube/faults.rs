//! A server that fails during reads causes a clear error in time, and never a snapshot with half of the data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use calipam_assign::{Family, KnownState, Query, Store};
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::write::Consent;
use calipam_datastore::{Cause, Datastore, Error, Failure};
use calipam_model::affinity::AffinityType;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};
use calipam_testkit::datastore::quiet;
use calipam_testkit::kube::fake::{Fake, Reply};

use super::support::{SHORT, settings_for_url};

pub(super) const BLOCKS: &str = "/apis/crd.projectcalico.org/v1/ipamblocks";
pub(super) const PODS: &str = "/api/v1/pods";

pub(super) fn ok(body: &str) -> Reply {
    Reply::Whole(200, body.to_owned())
}

/// Answers like the server of a healthy cluster with two Calico kinds.
pub(super) fn healthy(path: &str) -> Reply {
    match path.split('?').next().unwrap_or_default() {
        "/apis" => ok(r#"{"groups":[{"name":"crd.projectcalico.org","preferredVersion":{"version":"v1"}}]}"#),
        "/apis/crd.projectcalico.org/v1" => ok(r#"{"resources":[{"name":"ipamblocks"},{"name":"ippools"}]}"#),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            Reply::Whole(201, r#"{"status":{"allowed":true}}"#.into())
        }
        PODS => ok(&page("Pod", 0, "")),
        _ => ok(r#"{"items":[],"metadata":{"resourceVersion":"7"}}"#),
    }
}

/// The reply to a request for a page of a list that is too old.
pub(super) fn gone() -> Reply {
    Reply::Whole(
        410,
        r#"{"kind":"Status","reason":"Expired","message":"too old"}"#.into(),
    )
}

/// A page of a list, with one object.
pub(super) fn page(kind: &str, number: usize, next: &str) -> String {
    format!(
        r#"{{"kind":"{kind}List","metadata":{{"resourceVersion":"7","continue":"{next}"}},"items":[{{"metadata":{{"name":"x-{number}","namespace":"default"}},"spec":{{}},"status":{{}}}}]}}"#
    )
}

pub(super) async fn read(
    answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> (Result<Snapshot, Error>, Fake) {
    let fake = Fake::start(answer);
    let settings = settings_for_url(&fake.url);
    let begin = Instant::now();
    let result = match Datastore::open(&settings).await {
        Ok(store) => store.observe(&quiet()).await,
        Err(error) => Err(error),
    };
    assert!(begin.elapsed() < 4 * SHORT, "{:?}", begin.elapsed());
    (result, fake)
}

/// Answers requests whose path begins with `path` in another way than a healthy server.
pub(super) fn except(
    path: &'static str,
    reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> impl Fn(&str) -> Reply + Send + Sync + 'static {
    move |asked| {
        if asked.starts_with(path) {
            reply(asked)
        } else {
            healthy(asked)
        }
    }
}

async fn failure(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Failure {
    match read(answer).await.0.map(|snapshot| snapshot.pods.len()) {
        Err(Error::Request { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_read_by_its_own_clock() {
    let (result, fake) = read(healthy).await;
    let snapshot = result.unwrap();
    assert_eq!((snapshot.pods.len(), snapshot.revision.as_str()), (1, "7"));
    assert_eq!(snapshot.taken_at, "2026-05-01T12:00:00Z".parse().unwrap());
    let skipped = Coverage::Skipped(WhySkipped::NotInstalled(
        "ipamhandles.crd.projectcalico.org".into(),
    ));
    assert_eq!(snapshot.coverage[&Source::Handles], skipped);
    assert_eq!(fake.count(PODS), 1);
    let asked = fake.asked.lock().unwrap();
    let place = |path: &str| asked.iter().position(|asked| asked.starts_with(path)).unwrap();
    assert!(place(BLOCKS) < place(PODS), "{asked:?}");
    assert!(
        asked.iter().all(|path| !path.contains("resourceVersion=0")),
        "{asked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_refusal_is_told_apart_and_not_tried_again() {
    for (status, expected) in [
        (401, Failure::Unauthorized),
        (403, Failure::PermissionDenied("no".into())),
        (429, Failure::TooManyRequests),
        (
            500,
            Failure::Server {
                code: 500,
                message: "no".into(),
            },
        ),
        (
            503,
            Failure::Server {
                code: 503,
                message: "no".into(),
            },
        ),
    ] {
        for refused in [BLOCKS, PODS] {
            let no = r#"{"kind":"Status","message":"no"}"#;
            let (result, fake) = read(except(refused, move |_| Reply::Whole(status, no.into()))).await;
            let Err(Error::Request { failure, what, .. }) = result else {
                panic!("{status}")
            };
            assert_eq!((failure, refused.ends_with(&what)), (expected.clone(), true));
            assert_eq!(fake.count(refused), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_put_off_is_sent_again() {
    let asked = AtomicUsize::new(0);
    let answer = except(BLOCKS, move |path| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Later(429, 0),
        1 => Reply::Later(503, 0),
        _ => healthy(path),
    });
    let (result, fake) = read(answer).await;
    assert_eq!(result.unwrap().pods.len(), 1);
    assert_eq!(fake.count(BLOCKS), 3);

    // A delay longer than the time limit of a request is an error.
    let (result, fake) = read(except(BLOCKS, |_| Reply::Later(429, 3600))).await;
    assert!(matches!(
        result,
        Err(Error::Request {
            failure: Failure::TooManyRequests,
            ..
        })
    ));
    assert_eq!(fake.count(BLOCKS), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_an_allocator_are_retried() {
    let begun = |failures: usize| {
        let asked = AtomicUsize::new(0);
        Fake::start(
            move |path| match asked.fetch_add(1, Ordering::SeqCst) < failures {
                true => Reply::Whole(500, "etcdserver: leader changed".into()),
                false => healthy(path),
            },
        )
    };
    let ask = async |fake: &Fake| {
        let settings = settings_for_url(&fake.url);
        let consent = Consent::from_runtime("a test");
        let store = AllocatorStore::connect(&settings, Selecting::All, consent)
            .await
            .unwrap();
        store.read(&[Query::Pools]).await
    };
    assert_eq!(ask(&begun(2)).await.unwrap(), [vec![]]);
    let error = ask(&begun(3)).await.unwrap_err();
    assert!(error.to_string().contains("leader changed"), "{error}");
}

/// An allocator lists pools and its node's affinities since a state. A server that has not reached it is asked for the
/// current lists.
#[tokio::test(flavor = "multi_thread")]
async fn lists_since_a_state_may_come_from_the_cache() {
    const SINCE: &str = "resourceVersion=7&resourceVersionMatch=NotOlderThan";
    let is_behind = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&is_behind);
    let fake = Fake::start(move |path| {
        if refuses.load(Ordering::SeqCst) && path.contains(SINCE) {
            return Reply::Whole(504, "Too large resource version".into());
        }
        healthy(path)
    });
    let consent = Consent::from_runtime("a test");
    let store = AllocatorStore::connect(&settings_for_url(&fake.url), Selecting::ByLabels, consent)
        .await
        .unwrap();
    let queries = [
        Query::Pools,
        Query::Affinities {
            kind: AffinityType::Host,
            holder: "a".into(),
            family: Family::V4,
        },
        Query::Get(Key::Node("a".into())),
    ];
    let asked = async |known: Option<&KnownState>| {
        fake.asked.lock().unwrap().clear();
        let read = store.read_since(&queries, known).await.unwrap();
        let paths = fake.asked.lock().unwrap().clone();
        let lists = paths.iter().filter(|path| path.contains(SINCE)).count();
        (read.state, lists, paths.len())
    };

    let (state, lists, _) = asked(None).await;
    let state = state.expect("the state of current lists");
    assert_eq!(state.version, "7");
    assert_eq!(lists, 0);

    let (since, lists, requests) = asked(Some(&state)).await;
    assert_eq!(since, None);
    assert_eq!(lists, 2, "the node is read by name");
    assert_eq!(requests, 3);

    is_behind.store(true, Ordering::SeqCst);
    let (_, lists, requests) = asked(Some(&state)).await;
    assert!(lists >= 1 && requests - lists >= 3, "{lists} of {requests}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_never_taken_for_a_whole_one() {
    let whole = page("Pod", 1, "");
    for len in [0, 30, whole.len() / 2, whole.len() - 1, whole.len()] {
        let (cut, of_length) = (whole[..len].to_owned(), whole[..len].to_owned());
        let broken = failure(except(PODS, move |_| Reply::Cut(cut.clone()))).await;
        assert!(matches!(broken, Failure::Connection(Cause::Broken(_))), "{len}");
        if len < whole.len() {
            let complete = failure(except(PODS, move |_| ok(&of_length))).await;
            assert!(matches!(complete, Failure::Incomplete(_)), "{len}");
        }
    }
    let html = failure(except(PODS, |_| ok("<html>"))).await;
    assert!(
        matches!(html, Failure::Incomplete(_) | Failure::NotKubernetes(_)),
        "{html}"
    );
    let html = failure(|_| ok("<html>")).await;
    assert!(matches!(html, Failure::NotKubernetes(_)), "{html}");
}

/// Answers like a server that is recent enough for lists without pages.
fn recent(path: &str) -> Reply {
    if path == "/version" {
        ok(r#"{"major":"1","minor":"33+"}"#)
    } else {
        healthy(path)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_list_that_breaks_off_is_read_in_pages() {
    let (result, fake) = read(recent).await;
    assert_eq!((result.unwrap().pods.len(), fake.count("/api/v1/pods?")), (1, 0));
    let cut = || Reply::Cut(page("Pod", 1, ""));
    let (result, fake) = read(move |path| if path == PODS { cut() } else { recent(path) }).await;
    assert_eq!(
        (
            result.unwrap().pods.len(),
            fake.count(PODS),
            fake.count("/api/v1/pods?limit=5000")
        ),
        (1, 2, 1)
    );
    let broken = failure(move |path| {
        if path.starts_with(PODS) {
            cut()
        } else {
            recent(path)
        }
    })
    .await;
    assert!(
        matches!(broken, Failure::Connection(Cause::Broken(_))),
        "{broken}"
    );
}

/// A server that sends too many objects in one piece runs into its own time limit, after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_great_many_handles_are_read_in_pages() {
    const HANDLES: &str = "/apis/crd.projectcalico.org/v1/ipamhandles";
    for (remaining, pages) in [(300_000, 0), (300_001, 1)] {
        let answer = move |path: &str| match path {
            "/apis/crd.projectcalico.org/v1" => {
                ok(r#"{"resources":[{"name":"ipamblocks"},{"name":"ippools"},{"name":"ipamhandles"}]}"#)
            }
            "/apis/crd.projectcalico.org/v1/ipamhandles?limit=1" => ok(&format!(
                r#"{{"items":[],"metadata":{{"resourceVersion":"7","continue":"a","remainingItemCount":{remaining}}}}}"#
            )),
            path => recent(path),
        };
        let (result, fake) = read(answer).await;
        assert!(result.unwrap().has_read(Source::Handles));
        let first_page = format!("{HANDLES}?limit=5000");
        assert_eq!((fake.count(&first_page), fake.count(HANDLES)), (pages, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_to_answer_is_given_up_in_time() {
    let begun = page("Pod", 1, "")[..40].to_owned();
    let stalled = failure(except(PODS, move |_| Reply::Stalled(begun.clone())));
    let silent = failure(except(BLOCKS, |_| Reply::Silent));
    let (stalled, silent) = tokio::join!(stalled, silent);
    for failure in [stalled, silent] {
        // Which one depends on the answers to other requests.
        let causes = [Cause::TimedOut(SHORT.as_secs()), Cause::GivenUp(SHORT.as_secs())];
        assert!(causes.map(Failure::from).contains(&failure), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_stays_incomplete_is_an_error() {
    let part = r#"{"items":[],"metadata":{"resourceVersion":"7","remainingItemCount":3}}"#;
    let cut = failure(except(PODS, move |_| ok(part)));
    let Failure::Incomplete(why) = cut.await else {
        panic!("not incomplete")
    };
    assert!(why.contains("3 items are left"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_revision_is_compacted_begins_again() {
    let refusals = AtomicUsize::new(0);
    let answer = except(PODS, move |path| match path.split_once("continue=") {
        None => ok(&page("Pod", 1, "a/b")),
        Some((_, "a%2Fb")) if refusals.fetch_add(1, Ordering::Relaxed) < 2 => gone(),
        Some(_) => ok(&page("Pod", 2, "")),
    });
    let (result, fake) = read(answer).await;
    let names: Vec<String> = result
        .unwrap()
        .pods
        .iter()
        .map(|pod| pod.value.name().to_string())
        .collect();
    assert_eq!(names, ["x-1", "x-2"]);
    assert_eq!(fake.count(PODS), 6);

    let always = failure(except(PODS, move |path| match path.contains("continue=") {
        true => gone(),
        false => ok(&page("Pod", 1, "next")),
    }));
    assert_eq!(always.await, Failure::Compacted);
}
