//! Repairs beside allocators that work at full speed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use calipam_datastore::write::Expect;
use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::edit::Step;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::{Event, Options, execute};
use calipam_testkit::allocator::Churn;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;

use crate::cluster::{consent, guid, journal_path, observe, open};
use crate::execute::release;

/// Releases of up to three addresses of `leaked` handles in each block, if their endpoints are still absent.
fn steps(snapshot: &Snapshot, leaked: &BTreeMap<String, Key>) -> Vec<Step> {
    let step = |block: &Block| {
        let held = block.handles().filter_map(|(o, id)| Some((o, leaked.get(&id.to_string())?)));
        let held: Vec<(u32, &Key)> = held.take(3).collect();
        let ordinals: Vec<u32> = held.iter().map(|(ordinal, _)| *ordinal).collect();
        let evidence = held.iter().map(|(_, endpoint)| ((*endpoint).clone(), Expect::Absent)).collect();
        (!ordinals.is_empty()).then(|| release(block, &ordinals, evidence))
    };
    snapshot.blocks.iter().filter_map(|b| step(b.value.content.sound()?)).collect()
}

/// What blocks record by handle must be what the handles count, and every endpoint has its addresses.
fn assert_sound(snapshot: &Snapshot) {
    let mut recorded: BTreeMap<(String, IpNet), i64> = BTreeMap::new();
    let mut pods: BTreeMap<std::net::IpAddr, String> = BTreeMap::new();
    for stored in &snapshot.blocks {
        let block = stored.value.content.sound().expect("no block is corrupt");
        for allocation in block.allocations() {
            if let Some(pod) = allocation.attribute.owner().get("pod") {
                assert_eq!(pods.insert(allocation.address, pod.to_string()), None, "two owners");
            }
        }
        for (_, id) in block.handles() {
            *recorded.entry((id.to_string(), block.cidr())).or_default() += 1;
        }
    }
    let counted = snapshot.handles.iter().flat_map(|handle| {
        let id = handle.value.id().to_string();
        handle.value.blocks().map(move |(cidr, count)| ((id.clone(), cidr), count)).collect::<Vec<_>>()
    });
    let counted: BTreeMap<(String, IpNet), i64> = counted.collect();
    recorded.retain(|(id, _), _| id != "windows-reserved-ipam-handle");
    assert_eq!(recorded, counted);
    for endpoint in &snapshot.endpoints {
        for address in endpoint.value.addresses() {
            assert!(pods.contains_key(&address), "{address} of a live endpoint was freed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leaked_addresses_go_and_live_ones_stay() {
    let cluster = Cluster::plain(ClusterSpec::new(3), 4, 45);
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let store = open(&etcd.endpoint()).await;
    let guid = guid(&store).await;
    let before = observe(&store).await;
    assert_sound(&before);
    // Every pod that was there leaks: its endpoint goes, its addresses stay.
    let mut client = etcd.client().await.unwrap();
    let mut leaked = BTreeMap::new();
    for stored in &before.endpoints {
        let addresses: BTreeSet<_> = stored.value.addresses().collect();
        let key = Key::Endpoint {
            namespace: stored.value.namespace().to_string(),
            name: stored.value.name().to_string(),
        };
        client.delete(key.to_string(), None).await.unwrap();
        for block in before.blocks.iter().filter_map(|b| b.value.content.sound()) {
            let of = block.allocations().filter(|a| addresses.contains(&a.address));
            leaked.extend(of.filter_map(|a| Some((a.attribute.handle()?.to_string(), key.clone()))));
        }
    }
    assert!(leaked.len() >= 180);
    let churn = Churn {
        workers: 6,
        operations: 600,
        limit: Duration::from_secs(15),
        pause: Duration::from_millis(1),
        seed: 5,
        ..Churn::default()
    };
    let endpoint = etcd.endpoint();
    let working = std::thread::spawn(move || churn.run(&endpoint, &cluster).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (lost, mut written, mut runs) = (Arc::new(AtomicUsize::new(0)), 0, 0);
    loop {
        let over = working.is_finished();
        let plan = steps(&observe(&store).await, &leaked);
        if over && plan.is_empty() {
            break;
        }
        let count = Arc::clone(&lost);
        let options = Options {
            events: Arc::new(move |event| {
                if let Event::Lost { .. } = event {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }),
            ..Options::new("a test", journal_path(folder.path(), &runs.to_string()))
        };
        // A little at a time, so that there is something to do for as long as the others work.
        let plan: Vec<Step> = plan.into_iter().take(if over { usize::MAX } else { 1 }).collect();
        let execution = execute(&store, &guid, plan, consent(&guid), &options).await.unwrap();
        assert!(execution.broken_off.is_none(), "{execution:?}");
        assert!(execution.conflicts.is_empty(), "{execution:?}");
        written += execution.written;
        runs += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = working.join().unwrap();
    let after = observe(&store).await;
    assert_sound(&after);
    let left: Vec<String> =
        after.handles.iter().map(|h| h.value.id().to_string()).filter(|id| leaked.contains_key(id)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(written >= 50 && log.started > 100, "{written} steps in {runs} runs beside {log:?}");
    println!("{written} steps in {runs} runs, {lost:?} lost swaps, beside {log:?}");
}
