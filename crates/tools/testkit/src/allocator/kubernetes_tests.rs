//! The states that objects go through on a real API server.

use jiff::Timestamp;
use serde_json::Value;

use super::kubernetes::KubeObjects;
use super::store::{Datastore, Ending, List, Place};
use crate::cluster::wire::{self, Attribute, Block};
use crate::cluster::{ClusterSpec, Holder, pod_name};
use crate::kube::{Flavour, Kinds, lease, seed};
use crate::servers::KubeApiserver;

/// The object at a path; `None` if there is none.
fn object(server: &KubeApiserver, path: &str) -> Option<Value> {
    let response = server.request("GET", path, "").unwrap();
    (response.status == 200).then(|| serde_json::from_str(&response.body).unwrap())
}

/// The phase, address and annotation of a pod, and whether it is being deleted.
fn state(server: &KubeApiserver, holder: &Holder) -> Option<[String; 4]> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", holder.name.namespace, holder.name.pod);
    let pod = object(server, &path)?;
    let annotation = &pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"];
    let shown = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let deleting = (!pod["metadata"]["deletionTimestamp"].is_null()).to_string();
    Some([shown(&pod["status"]["phase"]), shown(&pod["status"]["podIP"]), shown(annotation), deleting])
}

fn pods_end(server: &KubeApiserver, store: &mut KubeObjects) {
    let endings = [
        (Ending::Deleted, "f", Some(["Running", "10.244.1.7", "", "true"]), None),
        (Ending::Evicted, "f", Some(["Failed", "10.244.1.7", "", "false"]), Some("Failed")),
        (Ending::Finished, "f", Some(["Running", "10.244.1.7", "", "false"]), Some("Succeeded")),
        (Ending::Finished, "0", Some(["Succeeded", "10.244.1.7", "", "false"]), Some("Succeeded")),
        (Ending::Lost, "f", None, None),
    ];
    for (number, (ending, container, withdrawn, ended)) in (0..).zip(endings) {
        let (name, node) = (pod_name(number), "node-1".to_owned());
        let holder = Holder { name, node, container: container.repeat(64), since: Timestamp::now() };
        store.announce(&holder).unwrap();
        assert_eq!(state(server, &holder).unwrap(), ["Pending", "none", "none", "false"]);
        store.publish(&holder, "10.244.1.7".parse().unwrap()).unwrap();
        assert_eq!(state(server, &holder).unwrap(), ["Running", "10.244.1.7", "10.244.1.7/32", "false"]);
        store.withdraw(&holder, ending).unwrap();
        let expected = withdrawn.map(|texts| texts.map(str::to_owned));
        assert_eq!(state(server, &holder), expected, "{ending:?}");
        store.clean_up(&holder, ending).unwrap();
        assert_eq!(state(server, &holder).map(|[phase, ..]| phase).as_deref(), ended, "{ending:?}");
    }
}

/// The stored value, with the fields of a block in Calico's order.
fn stored(store: &mut KubeObjects, place: Place<'_>) -> String {
    let (value, _) = store.get(place).unwrap().unwrap();
    let value = match place {
        Place::Block(_) => Block::read(&value).unwrap().value(),
        _ => value,
    };
    String::from_utf8(value).unwrap()
}

fn objects_change_by_compare_and_swap(store: &mut KubeObjects) {
    let net = "10.244.1.0/26".parse().unwrap();
    let mut block = Block::new(net, Some("host:node-1".into()), None, 7);
    for place in [Place::Block(net), Place::Affinity("node-1", net), Place::Handle("net.A")] {
        let value = |block: &Block| match place {
            Place::Block(_) => block.value(),
            Place::Affinity(..) => wire::affinity("pending"),
            Place::Handle(_) => br#"{"block":{"10.244.1.0/26":1},"deleted":false}"#.to_vec(),
        };
        let created = store.create(place, value(&block)).unwrap().unwrap();
        assert!(store.create(place, value(&block)).unwrap().is_none(), "{place:?} is there");
        assert_eq!(stored(store, place).as_bytes(), value(&block));
        block.take(1, Attribute::bare("net.A"));
        let changed = match place {
            Place::Block(_) => block.value(),
            Place::Affinity(..) => wire::affinity("confirmed"),
            Place::Handle(_) => br#"{"block":{"10.244.1.0/26":2},"deleted":false}"#.to_vec(),
        };
        let updated = store.update(place, changed.clone(), &created).unwrap().unwrap();
        assert!(store.update(place, value(&block), &created).unwrap().is_none(), "{place:?} has changed");
        assert_eq!(stored(store, place).as_bytes(), changed);
        assert!(!store.delete(place, &created).unwrap(), "{place:?} has changed");
        assert!(store.delete(place, &updated).unwrap());
        assert!(store.get(place).unwrap().is_none() && !store.delete(place, &updated).unwrap());
    }
}

/// A reader completes the deletion of an object that was only marked.
fn marked_objects_are_deleted(server: &KubeApiserver, flavour: Flavour, store: &mut KubeObjects) {
    let net = "10.244.2.0/26".parse().unwrap();
    let mark = if flavour == Flavour::Classic { "true".into() } else { Value::Bool(true) };
    let places = [
        (Place::Affinity("node-1", net), "blockaffinities/node-1-10-244-2-0-26", mark),
        (Place::Block(net), "ipamblocks/10-244-2-0-26", Value::Bool(true)),
    ];
    for (place, path, mark) in places {
        let value = match place {
            Place::Block(_) => Block::new(net, None, None, 7).value(),
            _ => wire::affinity("pendingDeletion"),
        };
        store.create(place, value).unwrap().unwrap();
        let path = flavour.path(path);
        let mut stored = object(server, &path).unwrap();
        stored["spec"]["deleted"] = mark;
        assert_eq!(server.request("PUT", &path, &stored.to_string()).unwrap().status, 200);
        if let Place::Affinity(..) = place {
            assert!(store.list(List::Affinities(None)).unwrap().is_empty());
        }
        assert!(store.get(place).unwrap().is_none());
        assert_eq!(object(server, &path), None);
    }
}

#[test]
fn objects_are_those_of_calico() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        seed(&server, flavour, &ClusterSpec::new(8).v4_only(), 1).unwrap();
        let mut store = KubeObjects::connect(&server, flavour).unwrap();
        objects_change_by_compare_and_swap(&mut store);
        marked_objects_are_deleted(&server, flavour, &mut store);
        pods_end(&server, &mut store);
    }
}
