//! Writes to real API servers, in both API groups.

use calipam_datastore::Datastore;
use calipam_datastore::write::{Batch, Change, Precondition, Stored, Swap, Writer};
use calipam_model::affinity::{Affinity, AffinityState};
use calipam_model::block::Block;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::writable::Object;
use calipam_testkit::World;
use calipam_testkit::datastore::{consent, observe};
use calipam_testkit::kube::{Flavour, create, edit, read as get};
use calipam_testkit::servers::KubeApiserver;
use serde_json::json;

use super::support::{affinity_key, pod, seeded};

const HANDLE: &str = "k8s-pod-network.ABC";

fn writer(store: &Datastore) -> Writer {
    store.writer(consent("0f0e1d2c")).unwrap()
}

fn block_key() -> Key {
    Key::Block("10.0.0.0/30".parse().unwrap())
}

async fn read(writer: &Writer, key: &Key) -> Option<Stored> {
    writer
        .read(std::slice::from_ref(key))
        .await
        .unwrap()
        .pop()
        .unwrap()
}

async fn commit(writer: &Writer, change: Change, evidence: Vec<(Key, Precondition)>) -> Swap {
    writer
        .commit(&Batch {
            changes: vec![change],
            evidence,
        })
        .await
        .unwrap()
}

fn is_done(swap: &Swap) -> bool {
    matches!(swap, Swap::Done(_))
}

async fn both(test: impl AsyncFn(Flavour, &KubeApiserver, &Datastore, &Writer)) {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let world = seeded(flavour);
        let store = world.open().await;
        test(flavour, world.server(), &store, &writer(&store)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_updated_against_the_version_that_was_read() {
    both(async |flavour, server, _, writer| {
        let path = format!("{}/10-0-0-0-30", flavour.path("ipamblocks"));
        edit(server, &path, |object| {
            object["metadata"]["labels"] = json!({"team": "net"})
        });
        let foreign = get(server, &path);
        let stored = read(writer, &block_key()).await.unwrap();
        let Some(Object::Block(content)) = &stored.object else {
            panic!("{stored:?}")
        };
        let mut block = content.sound().unwrap().clone();
        block.update(|edit| edit.release(&[1]));
        let object = Object::from(block.clone());
        let update = Change::update(block_key(), stored.revision.clone(), object.encode());
        assert!(
            is_done(&commit(writer, update.clone(), Vec::new()).await),
            "{flavour:?}"
        );
        let now = get(server, &path);
        let mut expected = foreign["spec"].clone();
        expected["allocations"] = json!([0, null, null, null]);
        expected["unallocated"] = json!([3, 2, 1]);
        expected["attributes"].as_array_mut().unwrap().truncate(1);
        expected["sequenceNumber"] = 1777630272123456793u64.into();
        expected["sequenceNumberForAllocation"]
            .as_object_mut()
            .unwrap()
            .remove("1");
        assert_eq!(now["spec"], expected);
        assert_eq!(now["metadata"]["labels"], json!({"team": "net"}));
        // The written value is read back unchanged, and an update against the old version fails.
        let again = read(writer, &block_key()).await.unwrap();
        assert_eq!(again.raw, object.encode());
        assert_eq!(commit(writer, update, Vec::new()).await, Swap::Conflict);
        assert_eq!(get(server, &path), now);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_as_calico_writes_them() {
    both(async |flavour, server, store, writer| {
        let cidr = "10.0.0.4/30".parse().unwrap();
        let now = "2026-05-01T10:00:00Z".parse().unwrap();
        let block = Object::from(Block::new(cidr, None, now).unwrap());
        let affinity = Affinity::new(affinity_key("10.0.0.4/30"), AffinityState::Pending);
        let mut handle = Handle::new("Net.XYZ");
        handle.set_count(cidr, 2);
        for (key, object) in [
            (Key::Block(cidr), block),
            (
                Key::Affinity(affinity_key("10.0.0.4/30")),
                Object::Affinity(affinity),
            ),
            (Key::Handle("Net.XYZ".into()), Object::Handle(handle)),
        ] {
            let create = Change::create(key.clone(), object.encode());
            assert!(
                is_done(&commit(writer, create.clone(), Vec::new()).await),
                "{key}"
            );
            // Calico writes missing attributes as `null` to etcd, and as `[]` to Kubernetes.
            let written = String::from_utf8(object.encode())
                .unwrap()
                .replace(r#""attributes":null"#, r#""attributes":[]"#);
            assert_eq!(read(writer, &key).await.unwrap().raw, written.as_bytes(), "{key}");
            assert_eq!(commit(writer, create, Vec::new()).await, Swap::Conflict, "{key}");
        }
        let affinity = get(
            server,
            &format!("{}/node-1-10-0-0-4-30", flavour.path("blockaffinities")),
        );
        assert_eq!(
            affinity["metadata"]["labels"]["projectcalico.org/ip-version"],
            "4"
        );
        assert_eq!(affinity["metadata"]["labels"].as_object().unwrap().len(), 3);
        let expected = if flavour == Flavour::Classic {
            json!("false")
        } else {
            json!(false)
        };
        assert_eq!(affinity["spec"]["deleted"], expected);
        let snapshot = observe(store).await;
        assert_eq!(
            (
                snapshot.blocks.len(),
                snapshot.handles.len(),
                snapshot.affinities.len()
            ),
            (2, 3, 2)
        );
        assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_compares_and_leaves_nothing() {
    both(async |flavour, server, store, writer| {
        let key = Key::Handle(HANDLE.into());
        let stored = read(writer, &key).await.unwrap();
        // An object with the same name, but another UID.
        let Revision::Kubernetes(version) = stored.revision.clone() else {
            panic!()
        };
        let mut other = version.clone();
        other.uid = "00000000-0000-0000-0000-000000000000".into();
        let stale = Change::delete(key.clone(), Revision::Kubernetes(other));
        assert_eq!(commit(writer, stale, Vec::new()).await, Swap::Conflict);
        let path = format!("{}/{}", flavour.path("ipamhandles"), HANDLE.to_lowercase());
        assert_eq!(get(server, &path)["spec"]["deleted"], json!(false));
        let delete = Change::delete(key.clone(), stored.revision);
        assert_eq!(
            commit(writer, delete.clone(), Vec::new()).await,
            Swap::Done(vec![None])
        );
        assert!(read(writer, &key).await.is_none());
        assert_eq!(commit(writer, delete, Vec::new()).await, Swap::Conflict);
        // If another client has only marked an object for deletion, the deletion is completed.
        let key = Key::Handle("ipip-tunnel-addr-node-1".into());
        let path = format!("{}/ipip-tunnel-addr-node-1", flavour.path("ipamhandles"));
        edit(server, &path, |object| object["spec"]["deleted"] = true.into());
        let stored = read(writer, &key).await.unwrap();
        assert!(stored.is_deleted());
        let delete = Change::delete(key, stored.revision);
        assert_eq!(commit(writer, delete, Vec::new()).await, Swap::Done(vec![None]));
        let snapshot = observe(store).await;
        let affinity = snapshot.affinities[0].clone();
        let delete = Change::delete(Key::Affinity(affinity.value.key), affinity.revision);
        assert_eq!(commit(writer, delete, Vec::new()).await, Swap::Done(vec![None]));
        let snapshot = observe(store).await;
        assert_eq!(
            (
                snapshot.handles.len(),
                snapshot.affinities.len(),
                snapshot.blocks.len()
            ),
            (0, 0, 1)
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_and_strangers_stop_a_write() {
    both(async |_, _, _, writer| {
        let key = Key::Handle(HANDLE.into());
        let stored = read(writer, &key).await.unwrap();
        let delete = Change::delete(key.clone(), stored.revision.clone());
        let pod = Key::Pod {
            namespace: "default".into(),
            name: "web-0".into(),
        };
        let node = Key::Node("node-1".into());
        for evidence in [
            (pod.clone(), Precondition::Absent),
            (node.clone(), Precondition::At(stored.revision.clone())),
            (
                Key::Node("gone".into()),
                Precondition::At(stored.revision.clone()),
            ),
        ] {
            assert_eq!(
                commit(writer, delete.clone(), vec![evidence.clone()]).await,
                Swap::Conflict,
                "{evidence:?}"
            );
        }
        // A handle whose ID differs only in case has the same name, but is another handle.
        let twin = read(writer, &Key::Handle(HANDLE.to_lowercase())).await.unwrap();
        assert_eq!(twin.object, None, "{twin:?}");
        let evidence = [&pod, &node].map(|key| async move {
            let version = read(writer, key).await.unwrap().revision;
            (key.clone(), Precondition::At(version))
        });
        let [pod, node] = evidence;
        let evidence = vec![
            pod.await,
            node.await,
            (Key::Node("gone".into()), Precondition::Absent),
        ];
        assert!(is_done(&commit(writer, delete, evidence).await));
        let two = Batch {
            changes: vec![Change::delete(key.clone(), stored.revision.clone()); 2],
            evidence: Vec::new(),
        };
        assert!(writer.commit(&two).await.is_err());
    })
    .await;
}

/// Objects in Kubernetes can be evidence for writes to etcd.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_an_api_server_added_to_etcd_are_evidence() {
    let world = World::etcd_with_kubernetes();
    create(
        world.server(),
        "/api/v1/namespaces/default/pods",
        &[pod("web-0", "node-1")],
    )
    .unwrap();
    let writer = writer(&world.open().await);
    let (key, there) = (
        Key::Handle("new".into()),
        Key::Pod {
            namespace: "default".into(),
            name: "web-0".into(),
        },
    );
    let gone = Key::Pod {
        namespace: "default".into(),
        name: "web-1".into(),
    };
    let create = Change::create(key.clone(), Object::Handle(Handle::new("new")).encode());
    let stored = writer
        .read(&[gone.clone(), key.clone(), there.clone()])
        .await
        .unwrap();
    assert!(stored[0].is_none() && stored[1].is_none());
    let version = stored[2].clone().unwrap().revision;
    for evidence in [
        (there.clone(), Precondition::Absent),
        (gone.clone(), Precondition::At(version.clone())),
    ] {
        assert_eq!(
            commit(&writer, create.clone(), vec![evidence]).await,
            Swap::Conflict
        );
        assert!(read(&writer, &key).await.is_none());
    }
    let evidence = vec![(there, Precondition::At(version)), (gone, Precondition::Absent)];
    assert!(is_done(&commit(&writer, create, evidence).await));
    assert!(matches!(
        read(&writer, &key).await.unwrap().revision,
        Revision::Etcd(_)
    ));
}
