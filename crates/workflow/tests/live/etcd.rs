//! A cluster that is followed: everything is read again each hour.

use calipam_check::{Code, Scope};
use calipam_datastore::settings::Overrides;
use calipam_model::key::Key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use calipam_workflow::{Live, LiveCounts, Side, Step, diff, read_pair};
use jiff::SignedDuration;

use super::{Unattended, criteria, open};

/// The live state has one finding more. Everything that findings depend on is written again before the second read,
/// which drops what could be an operation in progress.
#[tokio::test(flavor = "multi_thread")]
async fn a_finding_of_both_states_is_not_gone() {
    let cluster = Cluster::damaged(ClusterSpec::new(32));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.jsonl");
    std::fs::write(&file, cluster.export()).unwrap();
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let entries = etcd.entries().unwrap();
    let endpoint = entries.keys().find(|key| key.contains("/workloadendpoints/")).unwrap().clone();
    etcd.with_client(async |mut client| client.delete(endpoint.clone(), None).await).unwrap();

    let overrides = Overrides { datastore: Some(file.display().to_string()), ..Overrides::default() };
    let old = Side { datastore: open(&overrides).await, revision: None };
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let new = Side { datastore: open(&overrides).await, revision: None };
    let pair = read_pair(&old, &new, false, &Unattended).await.unwrap();
    etcd.with_client(async |mut client| {
        for (key, (value, _)) in entries.iter().filter(|(key, _)| **key != endpoint) {
            client.put(key.as_str(), value.clone(), None).await?;
        }
        Ok(())
    })
    .unwrap();
    let pause = SignedDuration::from_millis(10);
    let difference = diff(&pair, [&old, &new], &Scope::default(), pause, &Unattended).await.unwrap();
    assert!(difference.findings.gone.is_empty(), "{:?}", difference.findings.gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_anew_takes_the_place_of_what_was_followed() {
    let etcd = Etcd::start().unwrap();
    Cluster::plain(ClusterSpec::new(32), 2, 3).write_to_etcd(&etcd.endpoint()).unwrap();
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let datastore = open(&overrides).await;
    let criteria = criteria(0);
    let mut live = Live::begin(&datastore, &criteria, &Unattended).await.unwrap().unwrap();
    assert_eq!(live.report().findings, []);

    // The snapshot in memory loses an endpoint, as by a bug in following, and a change reveals it.
    let block = {
        let snapshot = live.snapshot();
        let mut snapshot = snapshot.write().unwrap();
        let lost = snapshot.endpoints.remove(0).value;
        let address = lost.addresses().next().unwrap();
        snapshot.blocks.iter().find(|block| block.value.key.contains(&address)).unwrap().value.key
    };
    let key = Key::Block(block).to_string();
    let value = etcd.entries().unwrap()[&key].0.clone();
    etcd.with_client(async |mut client| client.put(key, value, None).await).unwrap();
    let Step::Changes(1) = live.step(&datastore, &Unattended).await.unwrap() else { panic!("no change") };
    assert!(live.report().findings.iter().any(|finding| finding.code == Code::LeakedAddress));

    let Step::Whole(None) = live.read(&datastore, &Unattended).await.unwrap() else { panic!("not read") };
    assert_eq!(live.report().findings, []);
    assert_eq!(live.counts, LiveCounts { changes: 1, checks: 3, reads: 2 });
}
