//! Files and folders of objects as in kubectl's output and in exports.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn block(name: &str, cidr: &str) -> Value {
    json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock",
        "metadata": {"name": name, "uid": "u", "resourceVersion": "7"},
        "spec": {"cidr": cidr, "allocations": [null, null], "unallocated": [0, 1], "attributes": [],
            "strictAffinity": false},
    })
}

fn pool() -> Value {
    json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "p"},
        "spec": {"cidr": "10.0.0.0/16"}})
}

fn pod(kind: Option<&str>) -> Value {
    let mut pod = json!({"metadata": {"name": "web-0", "namespace": "default"},
        "spec": {"nodeName": "node-1", "containers": [{"env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"}});
    if let Some(kind) = kind {
        pod["kind"] = kind.into();
        pod["apiVersion"] = "v1".into();
    }
    pod
}

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A list of objects in the form of `kubectl get`.
fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "items": items, "kind": "List"}).to_string()
}

/// Reads a file with this text.
fn read_text(text: &str) -> Result<Snapshot> {
    let folder = tempfile::tempdir().unwrap();
    read(folder.path(), &[write(&folder, "x.json", text)])
}

fn read_list(items: &[Value]) -> Snapshot {
    read_text(&list(items)).unwrap()
}

#[test]
fn affinities_of_the_aggregated_api_have_no_type() {
    let mut owned = block("10-0-0-0-31", "10.0.0.0/31");
    owned["spec"]["affinity"] = "virtual:load-balancer".into();
    let affinity = |cidr: &str, node: &str, labels: Value| {
        let name = format!("{node}-{}", cidr.replace(['.', '/'], "-"));
        json!({"apiVersion": "projectcalico.org/v3", "kind": "BlockAffinity", "metadata": {"name": name, "labels": labels},
            "spec": {"cidr": cidr, "node": node, "state": "confirmed", "deleted": false}})
    };
    let snapshot = read_list(&[
        owned,
        affinity("10.0.0.0/31", "load-balancer", json!({})),
        affinity("10.0.0.2/31", "load-balancer", json!({AFFINITY_TYPE: "virtual"})),
        affinity("10.0.0.4/31", "node-1", json!({})),
    ]);
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    let kinds: Vec<&AffinityType> = snapshot.affinities.iter().map(|a| &a.value.key.kind).collect();
    assert_eq!(
        kinds,
        [
            &AffinityType::Virtual,
            &AffinityType::Virtual,
            &AffinityType::Host
        ]
    );
    assert!(!snapshot.is_native, "the blocks are of the classic group");
}

#[test]
fn the_first_block_of_an_export_tells_its_api_group() {
    let is_native = |group: &str| {
        let mut snapshot = Snapshot::default();
        let mut object = block("10-0-0-0-31", "10.0.0.0/31");
        object["apiVersion"] = format!("{group}/v1").into();
        add_exported(&mut snapshot, b"ippools/p", pool().to_string().as_bytes());
        add_exported(
            &mut snapshot,
            b"ipamblocks/10-0-0-0-31",
            object.to_string().as_bytes(),
        );
        assert_eq!(
            (snapshot.pools.len(), snapshot.blocks.len()),
            (1, 1),
            "{:?}",
            snapshot.defects
        );
        snapshot.is_native
    };
    assert!(is_native("projectcalico.org") && !is_native("crd.projectcalico.org"));
}

#[test]
fn instances_without_their_machines_say_nothing_about_machines() {
    let object = |kind: &str, owners: Value| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {"name": "vm-1", "namespace": "vms", "ownerReferences": owners}})
    };
    let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-1", "controller": true}]);
    let instance = object("VirtualMachineInstance", owners);
    let says_machines = |object: &Value| read_list(&[pool(), object.clone()]).has_read(Source::Machines);
    assert!(!says_machines(&instance));
    let machine = object("VirtualMachine", json!([]));
    assert!(!says_machines(&machine), "an instance may have no machine");
    let alone = object("VirtualMachineInstance", json!([]));
    assert!(!says_machines(&alone), "a stopped machine has no instance");
    let whole = read_list(&[pool(), instance, machine]);
    assert!(whole.has_read(Source::Machines) && whole.has_machine("vms", "vm-1"));
}

#[test]
fn lists_of_all_kinds_and_single_objects() {
    let folder = tempfile::tempdir().unwrap();
    let items = [
        block("10-0-0-0-31", "10.0.0.0/31"),
        pod(Some("Pod")),
        json!({"kind": "Secret"}),
    ];
    let whole =
        json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}});
    write(&folder, "a.json", &serde_json::to_string_pretty(&whole).unwrap());
    write(&folder, "b.json", &pool().to_string());
    // In lists as the API server prints them, the items have no kind.
    let mut other = pod(None);
    other["metadata"]["name"] = "web-1".into();
    let items = format!("{},{other}", pod(None));
    let pods = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
    write(&folder, "c.json", &pods);
    write(&folder, "notes.txt", "no JSON");
    let files = files_of(folder.path()).unwrap();
    assert_eq!(files.len(), 3);
    let snapshot = read(folder.path(), &files).unwrap();
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    assert_eq!(
        (snapshot.blocks.len(), snapshot.pools.len(), snapshot.pods.len()),
        (1, 1, 2)
    );
    assert!(snapshot.has_read(Source::Pods) && snapshot.has_read(Source::Reservations));
    assert!(
        !snapshot.has_read(Source::ClusterInformation),
        "every cluster has one, so it was left out"
    );
    assert_eq!(
        snapshot.coverage[&Source::Handles],
        Coverage::Skipped(WhySkipped::NotInFile)
    );
}

#[test]
fn the_kind_of_a_long_list_may_follow_its_items() {
    let block = |number: usize| {
        let (high, low) = (number >> 8, number & 255);
        let mut block = block(&format!("10-{high}-{low}-0-31"), &format!("10.{high}.{low}.0/31"));
        block
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "kind" && name != "apiVersion");
        block
    };
    let items: Vec<Value> = (0..2000).map(block).collect();
    let list = json!({"apiVersion": "projectcalico.org/v3", "items": items, "kind": "IPAMBlockList"});
    let text = list.to_string();
    assert!(text.len() > PIECE && text.find("\"items\"") < text.find("\"kind\""));
    let snapshot = read_text(&text).unwrap();
    assert_eq!((snapshot.blocks.len(), snapshot.defects.len()), (2000, 0));
    // Without a kind in the list or its items, no object is recognized as Calico's.
    let nameless = text.replace("\"kind\":\"IPAMBlockList\"", "\"kind\":\"List\"");
    assert!(read_text(&nameless).is_err());
}

#[test]
fn an_empty_list_of_a_kind_says_that_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let empty = |kind: &str, version: &str| json!({"apiVersion": version, "items": [], "kind": kind, "metadata": {"resourceVersion": "7"}});
    let files = [
        write(&folder, "a.json", &list(&[pool()])),
        write(
            &folder,
            "b.json",
            &empty("IPAMBlockList", "crd.projectcalico.org/v1").to_string(),
        ),
        write(&folder, "c.json", &empty("List", "v1").to_string()),
        write(&folder, "d.json", &empty("PodList", "example.com/v1").to_string()),
    ];
    let snapshot = read(folder.path(), &files).unwrap();
    assert!(snapshot.has_read(Source::Blocks) && snapshot.blocks.is_empty());
    assert!(!snapshot.has_read(Source::Handles) && !snapshot.has_read(Source::Pods));
}

#[test]
fn the_order_of_a_list_says_what_was_read_first() {
    let blocks_first = |items: [Value; 2]| read_list(&items).blocks_before_pods;
    let block = || block("10-0-0-0-31", "10.0.0.0/31");
    assert!(blocks_first([block(), pod(Some("Pod"))]));
    assert!(!blocks_first([pod(Some("Pod")), block()]));
    assert!(!blocks_first([pool(), pod(Some("Pod"))]));
}

#[test]
fn an_address_of_a_node_and_its_types() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations":
        {"projectcalico.org/IPv4Address": "10.0.0.1/24", "projectcalico.org/IPv6Address": "x", "calipam.io/cni-plugin": "v3.32.1"}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "n"},
            {"type": "ExternalIP", "address": "10.0.0.3"}]}});
    let snapshot = read_list(&[pool(), node]);
    let addresses = snapshot.nodes[0].value.addresses.iter().map(ToString::to_string);
    assert_eq!(addresses.collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(snapshot.nodes[0].value.plugin.as_deref(), Some("v3.32.1"));
}

#[test]
fn the_first_page_of_a_list_is_not_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let page = |kind: &str, metadata: Value| {
        let page =
            json!({"apiVersion": "v1", "items": [pod(Some("Pod"))], "kind": kind, "metadata": metadata});
        let files = [
            write(&folder, "a.json", &pool().to_string()),
            write(&folder, "pods.json", &page.to_string()),
        ];
        read(folder.path(), &files)
            .map(|snapshot| snapshot.pods.len())
            .map_err(|error| error.to_string())
    };
    for kind in ["PodList", "List"] {
        let error = page(kind, json!({"continue": "abc", "remainingItemCount": 17})).unwrap_err();
        assert!(error.contains("pods.json") && error.contains(kind), "{error}");
        assert!(error.contains("17 more objects"), "{error}");
        assert!(page(kind, json!({"continue": "abc"})).is_err());
        assert!(page(kind, json!({"remainingItemCount": 1})).is_err());
        assert_eq!(
            page(kind, json!({"continue": "", "remainingItemCount": 0})),
            Ok(1)
        );
    }
    assert_eq!(
        page("SecretList", json!({"continue": "abc"})),
        Ok(1),
        "not what a check reads"
    );
}

#[test]
fn truncated_files_and_files_without_calicos_objects_are_errors() {
    let whole = list(&[pool(), pool()]);
    for len in 1..whole.len() {
        assert!(read_text(&whole[..len]).is_err(), "{len}");
    }
    let machines = json!({"apiVersion": "kubevirt.io/v1", "items": [], "kind": "VirtualMachineList"});
    for text in [list(&[pod(Some("Pod"))]), machines.to_string()] {
        let error = read_text(&text).unwrap_err();
        assert!(
            matches!(
                error,
                Error {
                    kind: FileError::NoObjects,
                    ..
                }
            ),
            "{error}"
        );
    }
    let other = json!({"apiVersion": "apps/v1", "kind": "Node", "metadata": {"name": "n"}});
    assert!(read_text(&other.to_string()).is_err());
}

#[test]
fn an_export_keeps_what_a_check_needs_and_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let items = [block("10-0-0-0-31", "10.0.0.0/31"), pod(Some("Pod")), pool()];
    let files = [write(&folder, "x.json", &list(&items))];
    let (mut again, mut lines) = (Snapshot::default(), String::new());
    read_entries(&files, |entry| {
        assert!(is_exported(entry.key));
        lines.push_str(std::str::from_utf8(entry.value).unwrap());
        add_exported(&mut again, entry.key, entry.value);
    })
    .unwrap();
    assert!(
        !lines.contains("hunter2") && lines.contains("10.0.0.1"),
        "{lines}"
    );
    let first = read(folder.path(), &files).unwrap();
    assert_eq!(
        (again.blocks, again.pods, again.pools),
        (first.blocks, first.pods, first.pools)
    );
    assert!(!is_exported(b"/calico/ipam/v2/config") && !is_exported(b"secrets/default/x"));
}

#[test]
fn an_ipam_configuration_that_is_not_called_default_is_named() {
    let config = |kind: &str, group: &str, name: &str| json!({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": {"strictAffinity": true}});
    for (kind, group) in [
        ("IPAMConfig", "crd.projectcalico.org/v1"),
        ("IPAMConfiguration", "projectcalico.org/v3"),
    ] {
        let snapshot = read_list(&[config(kind, group, "rancher-config"), pool()]);
        let expected = (None, &["rancher-config".to_owned()][..]);
        assert_eq!((snapshot.ipam_config, &snapshot.ignored_configs[..]), expected);
        let both = [
            config(kind, group, "default"),
            config(kind, group, "rancher-config"),
            pool(),
        ];
        let snapshot = read_list(&both);
        assert!(
            snapshot.ipam_config.is_some_and(|config| config.strict_affinity),
            "{kind}"
        );
    }
}
