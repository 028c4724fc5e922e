//! Calico 2.x on a real etcd with the v2 API.

use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_datastore::settings::Overrides;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::calico2::Calico2;
use calipam_testkit::datastore::{self, observe, open};
use calipam_testkit::servers::{Tool, left_out};

async fn open_calico2(calico: &Calico2) -> Datastore {
    let datastore = Some("etcdv2".to_owned());
    open(Overrides {
        datastore,
        ..datastore::etcd(calico.etcd.endpoint())
    })
    .await
}

fn counts(found: &Snapshot) -> [usize; 6] {
    let Snapshot {
        blocks,
        affinities,
        handles,
        nodes,
        endpoints,
        pools,
        ..
    } = found;
    [
        blocks.len(),
        affinities.len(),
        handles.len(),
        nodes.len(),
        endpoints.len(),
        pools.len(),
    ]
}

#[tokio::test]
async fn a_lookup_reads_everything() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let calico = Calico2::start().unwrap();
    let store = open_calico2(&calico).await;
    let mut all = observe(&store).await;
    assert_eq!(counts(&all), [2, 2, 6, 2, 6, 1]);
    let found = store
        .lookup(&Lookup::Address("192.168.1.2".parse().unwrap()))
        .await
        .unwrap();
    all.taken_at = found.taken_at;
    assert_eq!(found, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_busy_etcd_everything_is_read_at_one_index() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let calico = Calico2::start().unwrap();
    let store = open_calico2(&calico).await;
    let client = calico.client;
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = std::sync::Arc::clone(&ended);
    // The writer updates Felix's state continuously.
    let writer = std::thread::spawn(move || {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            client.set("/calico/felix/v1/host/node-1/status", "{}").unwrap();
        }
    });
    for _ in 0..10 {
        assert_eq!(counts(&observe(&store).await), [2, 2, 6, 2, 6, 1]);
    }
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}
