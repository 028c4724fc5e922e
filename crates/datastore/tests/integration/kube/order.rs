//! The order of list requests: objects that use addresses are read later than objects that record addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use calipam_testkit::kube::fake::Reply;

use super::faults::{BLOCKS, PODS, gone, healthy, ok, page, read};

const EMPTY: &str = r#"{"items":[],"metadata":{"resourceVersion":"7"}}"#;

/// The server may send both lists in parallel, because the revision of the first list is fixed once that list begins to
/// arrive.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_asked_for_while_blocks_still_arrive() {
    let asked = Arc::new(AtomicBool::new(false));
    let (result, _) = read(move |path| {
        if path.starts_with(BLOCKS) {
            return Reply::InParts(EMPTY[..9].to_owned(), EMPTY[9..].to_owned(), Arc::clone(&asked));
        }
        if path.starts_with(PODS) {
            asked.store(true, Ordering::SeqCst);
        }
        healthy(path)
    })
    .await;
    assert_eq!(result.unwrap().pods.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_not_asked_for_before_blocks_begin_to_arrive() {
    let begun = Arc::new(AtomicBool::new(false));
    let early = Arc::new(AtomicBool::new(false));
    let (has_begun, is_early) = (Arc::clone(&begun), Arc::clone(&early));
    let (result, fake) = read(move |path| {
        if path.starts_with(BLOCKS) {
            std::thread::sleep(Duration::from_millis(400));
            has_begun.store(true, Ordering::SeqCst);
        } else if ["/api/v1/pods", "/api/v1/nodes", "/api/v1/services"]
            .iter()
            .any(|p| path.starts_with(p))
            && !has_begun.load(Ordering::SeqCst)
        {
            is_early.store(true, Ordering::SeqCst);
        }
        healthy(path)
    })
    .await;
    assert_eq!((result.unwrap().pods.len(), fake.count(PODS)), (1, 1));
    assert!(begun.load(Ordering::SeqCst) && !early.load(Ordering::SeqCst));
}

/// The server may take long to prepare a list of many handles. Pods need not wait for it, because no finding compares
/// handles with pods.
#[tokio::test(flavor = "multi_thread")]
async fn pods_do_not_wait_for_handles() {
    const HANDLES: &str = "/apis/crd.projectcalico.org/v1/ipamhandles";
    let asked = Arc::new(AtomicBool::new(false));
    let (result, fake) = read(move |path| {
        if path == "/apis/crd.projectcalico.org/v1" {
            return ok(r#"{"resources":[{"name":"ipamblocks"},{"name":"ipamhandles"}]}"#);
        }
        if path.starts_with(HANDLES) {
            let patience = Instant::now() + Duration::from_secs(20);
            while !asked.load(Ordering::SeqCst) {
                if Instant::now() > patience {
                    return Reply::Whole(500, "{}".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if path.starts_with(PODS) {
            asked.store(true, Ordering::SeqCst);
        }
        healthy(path)
    })
    .await;
    assert_eq!((result.unwrap().pods.len(), fake.count(HANDLES)), (1, 1));
}

/// Blocks that are read again may be newer than the pods. In that case, the pods are also read again.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_read_again_if_blocks_were() {
    let (refusals, pods) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::clone(&pods);
    let (result, fake) = read(move |path| {
        if path.starts_with(PODS) {
            return ok(&page("Pod", asked.fetch_add(1, Ordering::SeqCst), ""));
        }
        match path.starts_with(BLOCKS) {
            true if path.contains("continue=") && refusals.fetch_add(1, Ordering::SeqCst) == 0 => {
                // Fails only after the pods have been requested.
                while asked.load(Ordering::SeqCst) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                gone()
            }
            true if path.contains("continue=") => ok(r#"{"items":[],"metadata":{"resourceVersion":"8"}}"#),
            true => ok(r#"{"items":[],"metadata":{"resourceVersion":"7","continue":"next"}}"#),
            false => healthy(path),
        }
    })
    .await;
    let names: Vec<String> = result
        .unwrap()
        .pods
        .iter()
        .map(|pod| pod.value.name().to_string())
        .collect();
    assert_eq!((names, fake.count(PODS)), (vec!["x-1".to_owned()], 2));
}
