//! Connections to etcd that break at every request in turn, and members that die: what was begun comes to a defined end,
//! the lock is restored, and running again converges.

use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_model::edit::Step;
use calipam_repair::journal::Recorded;
use calipam_repair::{Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::servers::{Etcd, Tear, Tearing};

use crate::cluster::{Entries, consent, dump, guid, journal_path, observe, open, start, values};
use crate::execute::release;

const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

/// The release of an address of each of some blocks.
async fn steps(store: &Datastore) -> Vec<Step> {
    let snapshot = observe(store).await;
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let of_pod = |block: &calipam_model::block::Block| {
        let mut pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        pods.next().map(|a| release(block, &[a.ordinal], Vec::new()))
    };
    blocks.filter_map(of_pod).take(3).collect()
}

struct Site {
    etcd: Etcd,
    torn: Tearing,
    /// Opened at the torn endpoint.
    store: Datastore,
    cluster: String,
    folder: tempfile::TempDir,
    runs: usize,
}

impl Site {
    async fn new() -> Self {
        let (etcd, sound) = start(300).await;
        let torn = Tearing::etcd(&etcd).unwrap();
        let store = open(&torn.url()).await;
        let folder = tempfile::tempdir().unwrap();
        Self { cluster: guid(&sound).await, etcd, torn, store, folder, runs: 0 }
    }

    fn options(&mut self) -> Options {
        self.runs += 1;
        Options {
            lock: true,
            ..Options::new("a test", journal_path(self.folder.path(), &self.runs.to_string()))
        }
    }

    async fn release(&mut self, steps: Vec<Step>) -> (Option<Execution>, std::path::PathBuf) {
        let options = self.options();
        let run = execute(&self.store, &self.cluster, steps, consent(&self.cluster), &options).await;
        (run.ok(), options.journal)
    }

    async fn undo(&mut self, journal: &std::path::Path) -> Option<Execution> {
        let options = self.options();
        let plan = UndoPlan::new(&Recorded::read(journal).unwrap()).unwrap();
        undo(&self.store, &plan, consent(&self.cluster), &options).await.ok()
    }
}

fn information(entries: &Entries) -> &[u8] {
    &entries[INFORMATION].0
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_torn_in_turn() {
    let mut site = Site::new().await;
    let base = dump(&site.etcd).await;
    let plan = steps(&site.store).await;

    // How many requests it takes undisturbed, and what it leaves.
    site.torn.plan(|_| Tear::Pass);
    let (execution, journal) = site.release(plan.clone()).await;
    assert!(execution.unwrap().is_complete());
    let requests = site.torn.count();
    let released = values(&dump(&site.etcd).await);
    assert!(site.undo(&journal).await.unwrap().is_complete());
    assert_eq!(values(&dump(&site.etcd).await), values(&base));

    for tear in [Tear::Drop, Tear::Swallow] {
        for number in 0..requests {
            let what = format!("{tear:?} at {number} of {requests}");
            let plan = steps(&site.store).await;
            site.torn.tear_at(number, tear);
            let (execution, journal) = site.release(plan.clone()).await;
            let after = dump(&site.etcd).await;
            assert_eq!(information(&after), information(&base), "{what}: {execution:?}");
            // One connection that breaks is no reason to give up.
            let execution = execution.unwrap_or_else(|| panic!("{what}"));
            assert!(execution.is_complete(), "{what}: {execution:?}");
            assert_eq!(values(&after), released, "{what}");

            site.torn.tear_at(number, tear);
            let execution = site.undo(&journal).await.unwrap_or_else(|| panic!("undo, {what}"));
            assert!(execution.is_complete(), "undo, {what}: {execution:?}");
            assert_eq!(values(&dump(&site.etcd).await), values(&base), "undo, {what}");
            assert_eq!(information(&dump(&site.etcd).await), information(&base), "undo, {what}");
        }
    }
}

/// The member that a run talks to dies in the middle, while another one is healthy.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_restored_through_another_member() {
    let (etcd, sound) = start(300).await;
    let base = dump(&etcd).await;
    let (dying, healthy) = (Tearing::etcd(&etcd).unwrap(), Tearing::etcd(&etcd).unwrap());
    let store = open(&format!("{},{}", dying.url(), healthy.url())).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = guid(&sound).await;
    let close = dying.closer();
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let calipam_repair::Event::Written { .. } = event {
                close();
            }
        }),
        ..Options::new("a test", journal_path(folder.path(), "run"))
    };
    let plan = steps(&sound).await;
    let execution = execute(&store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    assert!(healthy.count() > 0);
    assert_eq!(information(&dump(&etcd).await), information(&base));
}

/// No member answers any more: that the datastore stays locked is said, whatever else went wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_restored_is_named() {
    let (etcd, sound) = start(300).await;
    let torn = Tearing::etcd(&etcd).unwrap();
    let store = open(&torn.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = guid(&sound).await;
    let close = torn.closer();
    let journal = journal_path(folder.path(), "run");
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let calipam_repair::Event::Intended { .. } = event {
                close();
            }
        }),
        ..Options::new("a test", &journal)
    };
    let plan = steps(&sound).await;
    let execution = execute(&store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    let error = execution.lock_left.as_ref().expect("it is still locked").to_string();
    assert!(error.starts_with("cannot restore the datastore lock: "), "{error}");
    assert!(execution.broken_off.is_some() && !execution.is_complete(), "{execution:?}");
    assert!(Recorded::read(&journal).unwrap().leaves_lock());
}
