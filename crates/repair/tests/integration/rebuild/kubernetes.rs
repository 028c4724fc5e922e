//! Rebuilds on Kubernetes, in both API groups.

use std::collections::BTreeMap;

use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot};
use calipam_testkit::World;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Form};
use calipam_testkit::kube::Flavour;
use jiff::Timestamp;

use super::support::{judge, rebuild_all, revert, touched};
use crate::cluster::Site;

/// The value of each object, without sequence numbers, and its version.
fn records(snapshot: &Snapshot) -> BTreeMap<Key, (String, String)> {
    let version = |revision: &Revision| revision.to_string();
    let blocks = snapshot.blocks.iter().map(|b| {
        let value = match b.value.content.sound() {
            Some(block) => {
                let held = block
                    .allocations()
                    .map(|a| (a.ordinal, a.attribute.to_attribute()));
                format!(
                    "{:?} {:?} {:?}",
                    block.owner(),
                    block.free(),
                    held.collect::<Vec<_>>()
                )
            }
            None => format!("{:?}", b.value.content),
        };
        (Key::Block(b.value.key), (value, version(&b.revision)))
    });
    let handles = snapshot.handles.iter().map(|h| {
        (
            Key::Handle(h.value.id().to_string()),
            (format!("{:?}", h.value), version(&h.revision)),
        )
    });
    let affinities = snapshot.affinities.iter().map(|a| {
        (
            Key::Affinity(a.value.key.clone()),
            (format!("{:?}", a.value), version(&a.revision)),
        )
    });
    blocks.chain(handles).chain(affinities).collect()
}

async fn rebuild_and_revert(flavour: Flavour) {
    let cluster = Cluster::all_faults_of(
        ClusterSpec::new(9).at(Timestamp::now()).wide(),
        Form::of(flavour),
        1,
    );
    let world = World::kubernetes_of(&cluster.kubernetes(flavour));
    let site = Site::open(world.overrides()).await;
    let before = records(&site.observe().await);
    let rebuilt = rebuild_all(&site).await;
    assert!(rebuilt.plan.actions.len() > 50);
    judge("all faults", &rebuilt);
    let after = records(&site.observe().await);
    let named = touched(&rebuilt.plan);
    for key in before
        .keys()
        .chain(after.keys())
        .filter(|key| !named.contains(key))
    {
        assert_eq!(before.get(key), after.get(key), "{key} has changed");
    }
    assert_ne!(before, after);
    revert(&site).await;
    let back = records(&site.observe().await);
    let values = |records: &BTreeMap<Key, (String, String)>| -> BTreeMap<Key, String> {
        records
            .iter()
            .map(|(key, (value, _))| (key.clone(), value.clone()))
            .collect()
    };
    assert_eq!(values(&back), values(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_the_classic_group_at_once_and_back_again() {
    rebuild_and_revert(Flavour::Classic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_the_native_group_at_once_and_back_again() {
    rebuild_and_revert(Flavour::Native).await;
}
