//! Calico 2.x on a real etcd with the v2 API.

use std::net::IpAddr;

use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_datastore::settings::Overrides;
use calipam_model::attributes::Attribute;
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use calipam_testkit::calico2::Calico2;
use calipam_testkit::servers::{Tool, left_out};

use crate::support::{observe, open};

async fn open_calico2(calico: &Calico2) -> Datastore {
    let datastore = Some("etcdv2".to_owned());
    open(Overrides { datastore, etcd_endpoints: Some(calico.endpoint()), ..Overrides::default() }).await
}

fn counts(found: &Snapshot) -> [usize; 6] {
    let Snapshot { blocks, affinities, handles, nodes, endpoints, pools, .. } = found;
    [blocks.len(), affinities.len(), handles.len(), nodes.len(), endpoints.len(), pools.len()]
}

/// The record of an address, with the sequence number that comes from its handle.
fn record(found: &Snapshot, address: IpAddr) -> Option<(Attribute, u64)> {
    found.blocks.iter().find_map(|block| {
        let held = block.value.content.sound()?.allocation_of(address)?;
        Some((held.attribute.to_attribute(), held.sequence))
    })
}

#[tokio::test]
async fn an_address_and_a_handle_take_a_few_keys() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let calico = Calico2::start().unwrap();
    let store = open_calico2(&calico).await;
    let all = observe(&store).await.unwrap();
    assert_eq!(counts(&all), [2, 2, 6, 2, 6, 1]);

    let address: IpAddr = "192.168.1.2".parse().unwrap();
    let handle = "default.b-1".to_owned();
    for lookup in [Lookup::Address(address), Lookup::Handle(handle)] {
        let found = store.lookup(&lookup).await.unwrap();
        assert_eq!(counts(&found), [1, 1, 1, 1, 1, 1], "{lookup:?}");
        // The lookup returns the same objects as a whole read.
        assert_eq!(record(&found, address), record(&all, address));
        assert!(all.handles.contains(&found.handles[0]));
        assert!(all.affinities.contains(&found.affinities[0]) && all.pools == found.pools);
        let (mut node, mut of_all) = (found.nodes[0].value.clone(), all.nodes[0].value.clone());
        node.labels.clear();
        of_all.labels.clear();
        assert_eq!(node, of_all, "with its tunnel address");
        assert_eq!(found.cluster, all.cluster);
        assert_eq!(found.coverage[&Source::Blocks], Coverage::Partial);
        assert!(found.has_read(Source::Pools));
    }

    for nothing in [Lookup::Address("10.9.9.9".parse().unwrap()), Lookup::Handle("default.none".into())] {
        assert_eq!(counts(&store.lookup(&nothing).await.unwrap()), [0, 0, 0, 0, 0, 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_busy_etcd_everything_is_read_at_one_index() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let calico = Calico2::start().unwrap();
    let store = open_calico2(&calico).await;
    let client = calico.client();
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = std::sync::Arc::clone(&ended);
    // The writer updates Felix's state continuously.
    let writer = std::thread::spawn(move || {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            client.set("/calico/felix/v1/host/node-1/status", "{}").unwrap();
        }
    });
    for _ in 0..10 {
        let found = store.lookup(&Lookup::Address("192.168.1.2".parse().unwrap())).await.unwrap();
        assert!(!found.blocks.is_empty() && !found.endpoints.is_empty());
        assert_eq!(counts(&observe(&store).await.unwrap()), [2, 2, 6, 2, 6, 1]);
    }
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}
