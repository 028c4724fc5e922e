//! A cluster that is followed: once an hour everything is read, and what that finds wins.

use std::io;
use std::sync::Arc;

use calipam_check::{Code, Options};
use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Consent, Question};
use calipam_model::key::Key;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use calipam_workflow::{Activity, Criteria, Live, Meter, NoConsent, Note, Operator, Pending, Proposal, Step};
use jiff::SignedDuration;

/// Nobody is there.
struct Unattended;

impl Operator for Unattended {
    fn note(&self, _: Note<'_>) {}

    fn start(&self, _: Activity) -> Arc<dyn Meter> {
        Arc::new(Self)
    }

    fn show(&self, _: Proposal<'_>) -> io::Result<()> {
        Ok(())
    }

    fn can_agree(&self) -> Result<(), NoConsent> {
        Err(NoConsent::Declined)
    }

    fn ask(&self, _: Question) -> Pending<'_, Result<Consent, NoConsent>> {
        Box::pin(async { Err(NoConsent::Declined) })
    }
}

impl Meter for Unattended {
    fn set(&self, _: u64, _: u64) {}

    fn end(&self) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_check_finds_wins_and_the_difference_counts() {
    let etcd = Etcd::start().unwrap();
    Cluster::plain(ClusterSpec::new(32), 2, 3).write_to_etcd(&etcd.endpoint()).unwrap();
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let settings = Settings::resolve(&overrides, &Default::default(), &LocalFiles).unwrap();
    let datastore = Datastore::open(&settings).await.unwrap();
    let options = Options { grace: Some(SignedDuration::ZERO), ..Options::default() };
    let criteria = Criteria { options, recheck_after: SignedDuration::ZERO };
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
