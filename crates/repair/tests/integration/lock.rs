//! The datastore lock while other clients write. Restoring it is tested in `tests/cli/repair/lock.rs`.

use std::sync::Arc;

use calipam_repair::journal::Recorded;
use calipam_repair::{Event, Options, UndoPlan, undo};
use calipam_testkit::servers::Etcd;

use crate::cluster::{Until, consent, dump, guid, journal_path, leaks, new_journal, repair_by_hand, start};

const KEY: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

async fn information(etcd: &Etcd) -> String {
    String::from_utf8(dump(etcd).await[KEY].0.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_others_are_kept_when_the_lock_is_removed() {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let (folder, first) = new_journal("first");
    repair_by_hand(&store, &first, &leaks(&store, 1).await, Until::Outcome).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let before: serde_json::Value = serde_json::from_str(&information(&etcd).await).unwrap();
    let endpoint = etcd.endpoint();
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let Event::Intended { .. } = event {
                // A component writes its version while the lock is held.
                let endpoint = endpoint.clone();
                std::thread::spawn(move || {
                    let work = async {
                        let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
                        let answer = client.get(KEY, None).await.unwrap();
                        let mut value: serde_json::Value =
                            serde_json::from_slice(answer.kvs()[0].value()).unwrap();
                        value["spec"]["calicoVersion"] = "v9.9.9".into();
                        client.put(KEY, value.to_string(), None).await.unwrap();
                    };
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.unwrap().block_on(work);
                })
                .join()
                .unwrap();
            }
        }),
        ..Options::new("undo", journal_path(folder.path(), "second"))
    };
    let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    let after: serde_json::Value = serde_json::from_str(&information(&etcd).await).unwrap();
    assert_eq!(after["spec"]["calicoVersion"], "v9.9.9");
    assert_eq!(after["spec"]["datastoreReady"], before["spec"]["datastoreReady"]);
}
