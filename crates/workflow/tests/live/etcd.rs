//! A cluster that is followed: once an hour everything is read, and what that finds wins.

use calipam_check::Code;
use calipam_datastore::settings::Overrides;
use calipam_model::key::Key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use calipam_workflow::{Live, Step};

use super::{Unattended, criteria, open};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_check_finds_wins_and_the_difference_counts() {
    let etcd = Etcd::start().unwrap();
    Cluster::plain(ClusterSpec::new(32), 2, 3).write_to_etcd(&etcd.endpoint()).unwrap();
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let datastore = open(&overrides).await;
    let criteria = criteria(0);
    let mut live = Live::begin(&datastore, &criteria, &Unattended).await.unwrap().unwrap();
    assert_eq!(live.report().findings, []);

    // What is in memory loses an endpoint, as by a fault of following, and a change shows it.
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

    let Step::Compared { lost, wrong } = live.compare(&datastore, &Unattended).await.unwrap() else {
        panic!("not compared")
    };
    assert_eq!(lost, []);
    assert!(wrong.iter().any(|finding| finding.code == Code::LeakedAddress), "{wrong:?}");
    assert_eq!(live.counts.differences, wrong.len() as u64);
    assert_eq!(live.report().findings, []);

    // Nothing differs the next time.
    let Step::Compared { lost, wrong } = live.compare(&datastore, &Unattended).await.unwrap() else {
        panic!("not compared")
    };
    assert_eq!((lost, wrong), (vec![], vec![]));
}
