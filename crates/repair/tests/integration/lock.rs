//! The datastore lock while other clients write. Restoring it is tested in `tests/cli/repair/lock.rs`.

use std::sync::Arc;

use calipam_model::key::Key;
use calipam_repair::{Event, Options};
use calipam_testkit::World;

use crate::cluster::{Until, start};

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_others_are_kept_when_the_lock_is_removed() {
    let (etcd, site) = start(600).await;
    let world = Arc::new(World::Etcd(Box::new(etcd)));
    let key = Key::ClusterInformation("default".into());
    site.repair_by_hand("first", &site.leaks(1).await, Until::Outcome)
        .await;
    let before = world.get(&key).unwrap();

    let (other, information) = (Arc::clone(&world), key.clone());
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let Event::Intended { .. } = event {
                // A component writes its version while the lock is held.
                other.edit(&information, |value| {
                    value["spec"]["calicoVersion"] = "v9.9.9".into()
                });
            }
        }),
        ..site.options("second")
    };
    let execution = site.undo(&site.undo_plan("first"), &options).await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = world.get(&key).unwrap();
    assert_eq!(after["spec"]["calicoVersion"], "v9.9.9");
    assert_eq!(after["spec"]["datastoreReady"], before["spec"]["datastoreReady"]);
}
