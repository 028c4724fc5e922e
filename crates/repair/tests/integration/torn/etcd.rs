//! Connections to etcd that break at every request in turn, and members that die: every step has a defined result, the
//! lock is restored, and a second run converges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;
use calipam_model::edit::Step;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::journal::LockMark;
use calipam_repair::{Event, EventFn, Execution, Options, execute};
use calipam_testkit::datastore;
use calipam_testkit::servers::{Entries, Etcd, Tear, Tearing};
use serde_json::Value;

use super::{Cluster, ORPHAN, TornSite, rebuild, tear_every_request};
use crate::cluster::{Site, dump, sound, start, values};
use crate::execute::release;

const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

struct OnEtcd {
    etcd: Etcd,
    site: TornSite,
    base: Entries,
    /// The block whose affinity is pending.
    cidr: IpNet,
}

impl OnEtcd {
    /// A cluster with a pending affinity whose block exists, and a handle that nothing refers to.
    async fn new() -> Self {
        let (etcd, sound) = start(300).await;
        let snapshot = sound.observe().await;
        let owned = snapshot
            .affinities
            .iter()
            .find(|a| a.value.key.kind == AffinityType::Host)
            .unwrap();
        let pending = r#"{"state":"pending","deleted":false}"#;
        etcd.put(&Key::Affinity(owned.value.key.clone()).to_string(), pending)
            .unwrap();
        let cidr = owned.value.key.cidr;
        let orphan = format!(r#"{{"block":{{"{cidr}":1}},"deleted":false}}"#);
        etcd.put(&Key::Handle(ORPHAN.into()).to_string(), orphan).unwrap();
        let torn = Tearing::etcd(&etcd).unwrap();
        let store = datastore::etcd(torn.url());
        Self {
            base: dump(&etcd),
            etcd,
            site: TornSite::new(torn, store, sound).await,
            cidr,
        }
    }
}

impl Cluster for OnEtcd {
    const TEARS: &'static [Tear] = &[
        Tear::Drop,
        Tear::Status(429),
        Tear::Swallow,
        Tear::Delay(Duration::from_millis(50)),
        Tear::Drop,
        Tear::Status(500),
        Tear::Swallow,
        Tear::Status(422),
    ];

    fn site(&mut self) -> &mut TornSite {
        &mut self.site
    }

    async fn values(&mut self) -> BTreeMap<String, Value> {
        values(&dump(&self.etcd))
    }

    async fn reset(&mut self) {
        let now = dump(&self.etcd);
        let has_changed =
            |(key, (value, _)): &(&String, &(Vec<u8>, i64))| now.get(*key).is_none_or(|now| now.0 != *value);
        let changed = self.base.iter().filter(has_changed);
        let changed: Vec<_> = changed
            .map(|(key, (value, _))| (key.clone(), value.clone()))
            .collect();
        self.etcd.put_all(&changed).unwrap();
        for key in now.keys().filter(|key| !self.base.contains_key(*key)) {
            self.etcd.delete(key).unwrap();
        }
    }

    /// A run must survive one broken connection.
    fn copes(tear: Tear, execution: Option<&Execution>) -> bool {
        !matches!(tear, Tear::Drop | Tear::Swallow) || execution.is_some_and(Execution::is_complete)
    }
}

/// One pod address in each of three blocks.
fn targets(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let of_pod = |block: &Block| {
        let mut pods = block
            .allocations()
            .filter(|a| a.attribute.owner().get("pod").is_some());
        pods.next().map(|a| a.address)
    };
    sound(snapshot).filter_map(of_pod).take(3).collect()
}

/// The releases of the target addresses that are still recorded.
fn releases(snapshot: &Snapshot, targets: &BTreeSet<IpAddr>) -> Vec<Step> {
    let of_block = |block: &Block| {
        let held = block.allocations().find(|a| targets.contains(&a.address));
        held.map(|held| release(block, &[held.ordinal], Vec::new()))
    };
    sound(snapshot).filter_map(of_block).collect()
}

/// Injects each fault into each request of a release, of a rebuild, and of their undo, in turn.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_torn_in_turn() {
    let mut cluster = OnEtcd::new().await;
    let targets = targets(&cluster.site.snapshot().await);
    tear_every_request(&mut cluster, &targets, |snapshot| releases(snapshot, &targets)).await;
    let cidr = cluster.cidr;
    tear_every_request(&mut cluster, &BTreeSet::new(), |snapshot| rebuild(snapshot, cidr)).await;
}

/// Locks the datastore behind the proxies, and releases addresses. The first proxy closes at the first event that
/// `when` accepts.
async fn run_until_closed(proxies: &[&Tearing], site: &Site, when: fn(&Event) -> bool) -> Execution {
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url()).collect();
    let store = datastore::open(datastore::etcd(urls.join(","))).await;
    let close = proxies[0].closer();
    let events: EventFn = Arc::new(move |event| {
        if when(event) {
            close();
        }
    });
    let options = Options {
        lock: true,
        events,
        ..site.options("run")
    };
    let snapshot = site.observe().await;
    let plan = releases(&snapshot, &targets(&snapshot));
    execute(&store, &site.cluster, plan, site.consent(), &options)
        .await
        .unwrap()
}

/// The member that a run talks to dies, while another one is healthy.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_restored_through_another_member() {
    let (etcd, site) = start(300).await;
    let base = dump(&etcd);
    let (dying, healthy) = (Tearing::etcd(&etcd).unwrap(), Tearing::etcd(&etcd).unwrap());
    let is_written = |event: &Event| matches!(event, Event::Written { .. });
    let execution = run_until_closed(&[&dying, &healthy], &site, is_written).await;
    assert!(execution.is_complete(), "{execution:?}");
    assert!(healthy.count() > 0);
    assert_eq!(dump(&etcd)[INFORMATION].0, base[INFORMATION].0);
}

/// No member answers any more: the run reports that the datastore stays locked, whatever else went wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_restored_is_named() {
    let (etcd, site) = start(300).await;
    let torn = Tearing::etcd(&etcd).unwrap();
    let is_intended = |event: &Event| matches!(event, Event::Intended { .. });
    let execution = run_until_closed(&[&torn], &site, is_intended).await;
    let error = execution
        .lock_left
        .as_ref()
        .expect("it is still locked")
        .to_string();
    assert!(
        error.starts_with("cannot restore the datastore lock: "),
        "{error}"
    );
    assert!(
        execution.failure.is_some() && !execution.is_complete(),
        "{execution:?}"
    );
    let lock = site.recorded("run").lock;
    assert!(
        matches!(lock, Some(LockMark::Taking(_) | LockMark::Taken(_))),
        "{lock:?}"
    );
}
