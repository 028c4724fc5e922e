//! Named addresses and handles.

use std::io::Write;
use std::net::IpAddr;
use std::process::Stdio;

use calipam_testkit::cluster::wire::{Attribute, Tunnel, key};
use calipam_testkit::cluster::{Cluster, Fault};
use serde_json::{Value, json};

use super::site::*;
use crate::cli::program::Run;

/// Returns the address of the first record that satisfies `is_wanted`.
fn address_of(cluster: &Cluster, is_wanted: impl Fn(&Attribute) -> bool) -> IpAddr {
    let mut found = cluster.blocks().flat_map(|b| b.records()).filter(|(_, record)| is_wanted(record));
    found.next().expect("the cluster has one").0
}

/// Creates a cluster with one address for each reason to refuse a release. Returns the cluster, and each address with
/// the reason and a part of the message.
fn protected() -> (Cluster, Vec<(&'static str, IpAddr, String)>) {
    let mut cluster = Cluster::small(*healthy().spec());
    let pod = cluster.add_pod_on(0);
    cluster.inject(Fault::CorruptUnreferenced, 1);
    let corrupt = cluster.truth().iter().find(|f| f.code == "corrupt-block").unwrap().subject;
    let corrupt: calipam_model::IpNet = corrupt.parse().unwrap();
    let node = cluster.nodes()[0].name.clone();
    let tunnel = cluster.node_mut(&node).tunnel(Tunnel::VxlanV6).unwrap();
    let block = cluster.blocks().find(|b| b.cidr == pod.block()).unwrap();
    let free = block.address(*block.unallocated.last().unwrap() as usize);
    let young = |record: &Attribute| {
        let since = record.get("timestamp").and_then(|text| text.strip_suffix(" +0000 UTC"));
        let since = since.and_then(|text| text.replace(' ', "T").parse::<jiff::civil::DateTime>().ok());
        let since = since.and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok());
        since.is_some_and(|since| since.timestamp().as_second() > cluster.spec().now.as_second() - 60)
    };
    let owner = format!("used by {}/{}", pod.name.namespace, pod.name.pod);
    let cases = vec![
        ("in-use", pod.address(), owner),
        ("in-use", tunnel, format!("used by a tunnel of {node}")),
        ("young", address_of(&cluster, young), "its pod could still be starting".into()),
        ("cooling", address_of(&cluster, |r| r.released_at.is_some()), "is cooling down".into()),
        (
            "windows-reserved",
            address_of(&cluster, |r| r.handle.as_deref() == Some("windows-reserved-ipam-handle")),
            "reserved by a Windows node".into(),
        ),
        ("unchecked", corrupt.addr(), "corrupt or cannot be decoded".into()),
        ("not-allocated", free, "no block records".into()),
        ("not-allocated", [192, 0, 2, 1].into(), "no block records".into()),
    ];
    (cluster, cases)
}

/// Releases targets without `--grace 0`, so that young addresses are kept.
fn release_by_name(site: &Site, targets: &[&str]) -> Run {
    site.run(&[&["release", "--yes", "--settle", "0"], targets].concat())
}

#[test]
fn protected_addresses_are_refused_by_name() {
    let (cluster, cases) = protected();
    let site = Site::of(&cluster);
    let before = site.dump();
    for (reason, address, told) in &cases {
        let address = address.to_string();
        let run = release_by_name(&site, &["--ip", &address]).exits(1);
        let row =
            run.stdout.lines().find(|line| line.starts_with(&address)).unwrap_or_else(|| panic!("{run:?}"));
        assert!(row.contains(reason) && row.contains(told), "{reason}: {row}");
        assert!(run.stdout.ends_with("Nothing to do; 1 skipped\n"), "{run:?}");
    }
    let all: Vec<String> = cases.iter().map(|(_, address, _)| address.to_string()).collect();
    let together = release_by_name(&site, &["--ip", &all.join(","), "-o", "json"]);
    let expected = set(cases.iter().map(|(reason, address, _)| format!("{reason} {address}")));
    assert_eq!((together.code, skips(&together.json())), (1, expected));
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn some_refusals_cannot_be_forced() {
    let (cluster, cases) = protected();
    let site = Site::of(&cluster);
    let before = site.dump();
    let never = ["cooling", "windows-reserved", "unchecked", "not-allocated"];
    let cases: Vec<_> = cases.iter().filter(|(reason, ..)| never.contains(reason)).collect();
    assert_eq!(cases.len(), 5);
    for (reason, address, _) in cases {
        let run = release_by_name(&site, &["--ip", &address.to_string(), "--force", "-o", "json"]);
        assert_eq!((run.code, skips(&run.json())), (1, set([format!("{reason} {address}")])), "{run:?}");
    }
    assert_eq!(site.dump(), before);
}

#[test]
fn one_address_in_use_can_be_forced() {
    let mut cluster = healthy();
    let (pod, other) = (cluster.add_pod_on(0), cluster.add_pod_on(1));
    let site = Site::of(&cluster);
    let before = site.dump();
    let [address, second] = [pod.address().to_string(), other.address().to_string()];
    for targets in [
        vec!["--ip", &address, "--ip", &second, "--force"],
        vec!["--leaked", "--force"],
        vec!["--ip", &address, "--leaked", "--force"],
        vec!["--ip", &address, "--handle", &other.handle, "--force"],
        vec!["--orphan-handles", "--force"],
        vec!["--node", "node-9", "--force"],
    ] {
        site.release(&targets).refused(2, "exactly one --ip or --handle").says("\nhint: ");
    }
    assert_eq!(site.dump(), before);

    let forced = site.release(&["--ip", &address, "--force"]).succeeded().says("--force").says("used by");
    let mut expected = recorded(&before);
    expected.remove(&pod.address());
    assert_eq!(recorded(&site.dump()), expected, "of two addresses the one that was named");
    assert!(site.findings(&[]).contains(&format!("critical unallocated-in-use {address}")));
    assert_eq!(site.undo(&journal_of(&forced)).code, 0);
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn one_leaked_address_can_be_forced_without_the_others_of_its_handle() {
    let (site, pod) = Site::leaky();
    let before = site.dump();
    let [(address, block), (_, other)] = pod.addresses[..] else { panic!("{pod:?}") };
    let refused = site.release(&["--ip", &address.to_string(), "-o", "json"]);
    assert_eq!((refused.code, skips(&refused.json())), (1, set([format!("handle-held {address}")])));

    let forced = site.release(&["--ip", &address.to_string(), "--force"]).succeeded();
    let mut expected = recorded(&before);
    expected.remove(&address);
    assert_eq!(recorded(&site.dump()), expected);
    let handle: Value = serde_json::from_slice(&site.value(&key::handle(&pod.handle)).unwrap()).unwrap();
    let wanted = (&Value::Null, &1.into());
    assert_eq!((&handle["block"][block.to_string()], &handle["block"][other.to_string()]), wanted);
    assert_eq!(site.undo(&journal_of(&forced)).code, 0);
    assert_eq!(values(&site.dump()), values(&before));
}

/// If a block's pool no longer selects the block's node, the block is deleted with its last address, as in Calico.
#[test]
fn the_block_of_a_node_that_its_pool_no_longer_selects_is_deleted_with_its_last_address() {
    let site = Site::of(&healthy());
    site.put("/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true}"#);
    let pool = |selector: &str| {
        json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": "p", "uid": "U7", "creationTimestamp": "2026-05-01T10:00:00Z"},
            "spec": {"cidr": "10.7.0.0/29", "blockSize": 30, "ipipMode": "Never", "vxlanMode": "Never",
                "nodeSelector": selector}})
    };
    let of_node = ["affinity", "block"].map(|kind| match kind {
        "affinity" => "/calico/ipam/v2/host/node-1/ipv4/block/10.7.0.0-30".to_owned(),
        _ => key::block("10.7.0.0/30".parse().unwrap()),
    });
    for (selector, stays) in [("zone == 'a'", false), ("all()", true)] {
        site.put("/calico/resources/v3/projectcalico.org/ippools/p", pool(selector).to_string());
        site.put(&of_node[0], r#"{"state":"confirmed","deleted":false}"#);
        let gone = |pod: &str| {
            json!({"namespace": "a", "pod": pod, "node": "node-1",
            "timestamp": "2026-05-01 10:00:00 +0000 UTC"})
        };
        let block = json!({"cidr": "10.7.0.0/30", "affinity": "host:node-1", "allocations": [null, 0, 1, null],
            "unallocated": [0, 3], "attributes": [{"handle_id": "h1", "secondary": gone("b")},
            {"handle_id": "h2", "secondary": gone("c")}],
            "sequenceNumber": 7, "sequenceNumberForAllocation": {"1": 5, "2": 6}, "deleted": false});
        site.put(&of_node[1], block.to_string());
        for id in ["h1", "h2"] {
            site.put(&key::handle(id), r#"{"block":{"10.7.0.0/30":1},"deleted":false}"#);
        }

        // Another address of the block is still assigned.
        let first = site.release(&["--ip", "10.7.0.1"]).succeeded();
        assert!(of_node.iter().all(|key| site.value(key).is_some()), "{selector}: {first:?}");
        let before = site.dump();
        let last = site.release(&["--ip", "10.7.0.2"]).succeeded();
        assert!(of_node.iter().all(|key| site.value(key).is_some() == stays), "{selector}: {last:?}");

        site.undo(&journal_of(&last)).succeeded();
        assert_eq!(values(&site.dump()), values(&before));
    }
}

#[test]
fn a_handle_in_use_can_be_forced() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    let site = Site::of(&cluster);
    let before = site.dump();
    let refused = site.release(&["--handle", &pod.handle, "-o", "json"]);
    let expected = set(pod.addresses.iter().map(|(address, _)| format!("in-use {address}")));
    assert_eq!((refused.code, skips(&refused.json())), (1, expected));
    assert_eq!(site.dump(), before);
    site.release(&["--handle", &pod.handle, "--force"]).succeeded();
    let mut expected = recorded(&before);
    pod.addresses.iter().for_each(|(address, _)| drop(expected.remove(address)));
    let after = site.dump();
    assert_eq!(recorded(&after), expected);
    assert!(!after.contains_key(&key::handle(&pod.handle)));
}

#[test]
fn a_handle_is_released_completely_or_not_at_all() {
    let mut cluster = healthy();
    let whole = leak(&mut cluster, 0);
    let half = cluster.add_pod_on(1);
    let [v4, v6] = [half.addresses[0].0, half.addresses[1].0];
    cluster.endpoint_mut(&half.endpoint).set_addresses(&[v4]);
    let site = Site::of(&cluster);
    let before = site.dump();
    for targets in [["--handle", &half.handle], ["--ip", &v6.to_string()]] {
        let run = site.release(&[&targets[..], &["-o", "json"]].concat()).exits(1);
        assert!(skips(&run.json()).contains(&format!("handle-held {v6}")), "{run:?}");
        assert_eq!(changes(&run.json()), set::<String>([]));
    }
    assert_eq!(site.dump(), before);

    let run = site.release(&["--leaked", "-o", "json"]);
    assert_eq!((run.code, skips(&run.json())), (1, set([format!("handle-held {v6}")])));
    let released = set(whole.addresses.iter().map(|(address, _)| format!("release-address {address}")));
    assert_eq!(changes(&run.json()), released);
    assert!(!site.dump().contains_key(&key::handle(&whole.handle)));
}

#[test]
fn handles_come_from_stdin() {
    let mut cluster = healthy();
    let pods: Vec<_> = (0..4).map(|number| leak(&mut cluster, number % 3)).collect();
    // The handle object of one pod is missing. An orphan handle is not on stdin.
    cluster.remove(&key::handle(&pods[1].handle));
    cluster.inject(Fault::OrphanHandleEmpty, 1);
    let orphan = cluster.truth().iter().find(|f| f.code == "orphan-handle").unwrap().subject;
    let site = Site::of(&cluster);
    let before = site.dump();
    let arguments =
        [&["release", "--handle", "-", "--handle", &pods[2].handle, "--yes"], &AT_ONCE[..]].concat();
    let mut child = site.command(&arguments);
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text =
        format!("# of last night\n\n  {}  \r\n{} # no object\n{orphan}\n", pods[0].handle, pods[1].handle);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Run::ended(child.wait_with_output().unwrap()).succeeded();
    let mut expected = recorded(&before);
    pods[..3].iter().flat_map(|pod| &pod.addresses).for_each(|(address, _)| drop(expected.remove(address)));
    let after = site.dump();
    assert_eq!(recorded(&after), expected);
    let gone = [&pods[0].handle, &pods[1].handle, &pods[2].handle, &orphan];
    assert!(gone.iter().all(|id| !after.contains_key(&key::handle(id))));
    assert!(after.contains_key(&key::handle(&pods[3].handle)));
}

#[test]
fn a_handle_that_nobody_knows() {
    let site = Site::of(&healthy());
    let run = site.release(&["--handle", "k8s-pod-network.nobody"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("not-found        there is no handle k8s-pod-network.nobody"), "{run:?}");
    let nothing = site.run(&["release", "--yes"]).exits(2).prints_nothing();
    assert!(nothing.stderr.starts_with("error: specify what to release: "), "{nothing:?}");
    assert!(nothing.stderr.contains("\nhint: "), "{nothing:?}");
}

/// A stateful pod has the same name as its predecessor, and therefore the same old handle.
#[test]
fn a_successor_keeps_its_address() {
    let cluster = healthy().with(Fault::SharedLegacySuccessor, 1);
    let subject = |code: &str| cluster.truth().iter().find(|f| f.code == code).unwrap().subject;
    let (leaked, handle) = (subject("leaked-address"), subject("shared-legacy-handle"));
    for targets in [vec!["--leaked"], vec!["--handle", &handle], vec!["--ip", &leaked]] {
        let site = Site::of(&cluster);
        let before = site.dump();
        let held = recorded(&before).into_iter().filter(|(_, id)| id.as_deref() == Some(&handle));
        let successor =
            held.map(|(address, _)| address.to_string()).find(|address| *address != leaked).unwrap();
        let run = site.release(&[&targets[..], &["-o", "json"]].concat());
        let plan = run.json();
        assert_eq!(changes(&plan), set([format!("release-address {leaked}")]), "{targets:?}");
        let by_handle = targets[0] == "--handle";
        let expected = if by_handle { set([format!("in-use {successor}")]) } else { set::<String>([]) };
        assert_eq!((run.code, skips(&plan)), (i32::from(by_handle), expected), "{targets:?}");
        let after = site.dump();
        assert!(recorded(&after).contains_key(&successor.parse().unwrap()));
        let handle: serde_json::Value = serde_json::from_slice(&after[&key::handle(&handle)].0).unwrap();
        assert_eq!(handle["block"].as_object().unwrap().values().collect::<Vec<_>>(), [1]);
    }
}
