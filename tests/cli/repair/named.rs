//! Named addresses, handles and nodes.

use std::net::IpAddr;

use calipam_testkit::cluster::wire::Tunnel;

use super::site::*;

/// Returns the address of the first record that satisfies `is_wanted`.
fn address_of(cluster: &Cluster, is_wanted: impl Fn(&Attribute) -> bool) -> IpAddr {
    let mut found = cluster
        .blocks()
        .flat_map(|b| b.records())
        .filter(|(_, record)| is_wanted(record));
    found.next().expect("the cluster has one").0
}

/// Creates a cluster with one address for each reason to refuse a release. Returns the cluster, and each address with
/// the reason and a part of the message.
fn protected() -> (Cluster, Vec<(&'static str, IpAddr, String)>) {
    let mut cluster = Cluster::small(*healthy().spec());
    let pod = cluster.add_pod_on(0);
    cluster.inject(Fault::CorruptUnreferenced, 1);
    let corrupt: IpNet = subject_of(&cluster, "corrupt-block").parse().unwrap();
    let node = cluster.nodes()[0].name.clone();
    let tunnel = cluster.tunnel(&node, Tunnel::VxlanV6).unwrap();
    let block = cluster.blocks().find(|b| b.cidr == pod.block()).unwrap();
    let free = block.address(*block.unallocated.last().unwrap() as usize);
    let young = |record: &Attribute| {
        let since = record
            .get("timestamp")
            .and_then(|text| text.strip_suffix(" +0000 UTC"));
        let since = since.and_then(|text| text.replace(' ', "T").parse::<jiff::civil::DateTime>().ok());
        let since = since.and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok());
        since.is_some_and(|since| since.timestamp().as_second() > cluster.spec().now.as_second() - 60)
    };
    let owner = format!("used by {}/{}", pod.name.namespace, pod.name.pod);
    let cases = vec![
        ("in-use", pod.address(), owner),
        ("in-use", tunnel, format!("used by a tunnel of {node}")),
        (
            "young",
            address_of(&cluster, young),
            "its pod could still be starting".into(),
        ),
        (
            "cooling",
            address_of(&cluster, |r| r.released_at.is_some()),
            "is cooling down".into(),
        ),
        (
            "windows-reserved",
            address_of(&cluster, |r| {
                r.handle.as_deref() == Some("windows-reserved-ipam-handle")
            }),
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
        let is_row = |line: &str| line.starts_with(&address) && line.contains(reason) && line.contains(told);
        assert!(run.stdout.lines().any(is_row), "{reason}, {told}: {run:?}");
        assert!(run.stdout.ends_with("Nothing to do; 1 skipped\n"), "{run:?}");
    }
    let all: Vec<String> = cases.iter().map(|(_, address, _)| address.to_string()).collect();
    let together = release_by_name(&site, &["--ip", &all.join(","), "-o", "json"]);
    let expected = set(cases
        .iter()
        .map(|(reason, address, _)| format!("{reason} {address}")));
    assert_eq!((together.code, skips(&together.json())), (1, expected));

    // Some of them cannot be forced either.
    let never = ["cooling", "windows-reserved", "unchecked", "not-allocated"];
    let cases: Vec<_> = cases
        .iter()
        .filter(|(reason, ..)| never.contains(reason))
        .collect();
    assert_eq!(cases.len(), 5);
    for (reason, address, _) in cases {
        let run = release_by_name(&site, &["--ip", &address.to_string(), "--force", "-o", "json"]);
        assert_eq!(
            (run.code, skips(&run.json())),
            (1, set([format!("{reason} {address}")])),
            "{run:?}"
        );
    }
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn one_address_or_handle_in_use_can_be_forced() {
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
        site.release(&targets)
            .refused(2, "exactly one --ip or --handle")
            .says("\nhint: ");
    }
    assert_eq!(site.dump(), before);

    let forced = site
        .release(&["--ip", &address, "--force"])
        .succeeded()
        .says("--force")
        .says("used by");
    let mut expected = recorded(&before);
    expected.remove(&pod.address());
    assert_eq!(
        recorded(&site.dump()),
        expected,
        "of two addresses the one that was named"
    );
    assert!(
        site.findings(&[])
            .contains(&format!("critical unallocated-in-use {address}"))
    );
    site.undo_to(&forced, &before);

    let before = site.dump();
    let refused = site.release(&["--handle", &pod.handle, "-o", "json"]);
    assert_eq!(
        (refused.code, skips(&refused.json())),
        (1, of_pods("in-use", [&pod]))
    );
    assert_eq!(site.dump(), before);
    site.release(&["--handle", &pod.handle, "--force"]).succeeded();
    let after = site.dump();
    assert!(!after.contains_key(&key::handle(&pod.handle)));
    assert_eq!(recorded(&after), recorded_without(&before, &[pod]));
}

#[test]
fn one_leaked_address_can_be_forced_without_the_others_of_its_handle() {
    let (site, pod) = Site::leaky();
    let before = site.dump();
    let [(address, block), (_, other)] = pod.addresses[..] else {
        panic!("{pod:?}")
    };
    let refused = site.release(&["--ip", &address.to_string(), "-o", "json"]);
    assert_eq!(
        (refused.code, skips(&refused.json())),
        (1, set([format!("handle-held {address}")]))
    );

    let forced = site
        .release(&["--ip", &address.to_string(), "--force"])
        .succeeded();
    let mut expected = recorded(&before);
    expected.remove(&address);
    assert_eq!(recorded(&site.dump()), expected);
    assert_eq!(
        site.json(&key::handle(&pod.handle))["block"],
        json!({other.to_string(): 1}),
        "not {block}"
    );
    site.undo_to(&forced, &before);
}

/// If a block's pool no longer selects the block's node, the block is deleted with its last address, as in Calico.
#[test]
fn the_block_of_a_node_that_its_pool_no_longer_selects_is_deleted_with_its_last_address() {
    let site = Site::healthy();
    site.put(CONFIG, r#"{"auto_allocate_blocks":true}"#);
    let cidr = "10.7.0.0/30".parse().unwrap();
    let of_node = [key::affinity("host", "node-1", cidr), key::block(cidr)];
    for (selector, stays) in [("zone == 'a'", false), ("all()", true)] {
        let pool = json!({"cidr": "10.7.0.0/29", "blockSize": 30, "ipipMode": "Never", "vxlanMode": "Never",
            "nodeSelector": selector});
        site.put_pool("p", &pool);
        site.put(&of_node[0], r#"{"state":"confirmed","deleted":false}"#);
        let mut block = Block::new(cidr, Some("host:node-1".into()), None, 7);
        for (ordinal, handle) in [(1, "h1"), (2, "h2")] {
            let since = "2026-05-01 10:00:00 +0000 UTC";
            let gone = [
                ("namespace", "a"),
                ("pod", handle),
                ("node", "node-1"),
                ("timestamp", since),
            ];
            block.take_ordinal(ordinal, Attribute::new(handle, gone));
            site.put(
                &key::handle(handle),
                r#"{"block":{"10.7.0.0/30":1},"deleted":false}"#,
            );
        }
        site.put(&of_node[1], block.value());

        // Another address of the block is still assigned.
        let first = site.release(&["--ip", "10.7.0.1"]).succeeded();
        assert!(
            of_node.iter().all(|key| site.value(key).is_some()),
            "{selector}: {first:?}"
        );
        let before = site.dump();
        let last = site.release(&["--ip", "10.7.0.2"]).succeeded();
        assert!(
            of_node.iter().all(|key| site.value(key).is_some() == stays),
            "{selector}: {last:?}"
        );

        site.undo_to(&last, &before);
    }
}

#[test]
fn a_handle_is_released_completely_or_not_at_all() {
    let mut cluster = healthy();
    let whole = leak(&mut cluster, 0);
    let half = cluster.add_pod_on(1);
    let [v4, v6] = [half.addresses[0].0, half.addresses[1].0];
    cluster.set_addresses(&half.endpoint, &[v4]);
    let site = Site::of(&cluster);
    let before = site.dump();
    for targets in [["--handle", &half.handle], ["--ip", &v6.to_string()]] {
        let run = site.release(&[&targets[..], &["-o", "json"]].concat()).exits(1);
        assert!(
            skips(&run.json()).contains(&format!("handle-held {v6}")),
            "{run:?}"
        );
        assert_eq!(changes(&run.json()), BTreeSet::new());
    }
    assert_eq!(site.dump(), before);

    let run = site.release(&["--leaked", "-o", "json"]);
    assert_eq!(
        (run.code, skips(&run.json())),
        (1, set([format!("handle-held {v6}")]))
    );
    assert_eq!(changes(&run.json()), of_pods("release-address", [&whole]));
    assert!(!site.dump().contains_key(&key::handle(&whole.handle)));
}

#[test]
fn handles_come_from_stdin() {
    let mut cluster = healthy();
    let pods: Vec<_> = (0..4).map(|number| leak(&mut cluster, number % 3)).collect();
    // The handle object of one pod is missing. An orphan handle is not on stdin.
    cluster.remove(&key::handle(&pods[1].handle));
    cluster.inject(Fault::OrphanHandleEmpty, 1);
    let orphan = subject_of(&cluster, "orphan-handle");
    let site = Site::of(&cluster);
    let before = site.dump();
    let [first, second] = [0, 1].map(|place| &pods[place].handle);
    let text = format!("# of last night\n\n  {first}  \r\n{second} # no object\n{orphan}\n");
    let release = ["release", "--handle", "-", "--handle", &pods[2].handle, "--yes"];
    let mut command = site.command(&[&release[..], &AT_ONCE].concat());
    Run::with_input(&mut command, text.as_bytes()).succeeded();
    let after = site.dump();
    assert_eq!(recorded(&after), recorded_without(&before, &pods[..3]));
    let gone = [first, second, &pods[2].handle, &orphan];
    assert!(gone.iter().all(|id| !after.contains_key(&key::handle(id))));
    assert!(after.contains_key(&key::handle(&pods[3].handle)));
}

#[test]
fn names_that_nobody_knows_and_a_node_that_exists_release_nothing() {
    let site = Site::healthy();
    let before = site.dump();
    for (targets, says) in [
        (
            ["--handle", "k8s-pod-network.nobody"],
            "not-found        there is no handle k8s-pod-network.nobody",
        ),
        (
            ["--node", "node-of-nobody"],
            "nothing is recorded for node node-of-nobody",
        ),
        (["--node", "node-1"], "node node-1 exists"),
        (["--node", "node-1"], "node-exists"),
    ] {
        site.release(&targets).exits(1).prints(says);
    }
    site.run(&["release", "--yes"])
        .refused(2, "\nhint: ")
        .says_first("error: specify what to release: ");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

/// A stateful pod has the same name as its predecessor, and therefore the same old handle.
#[test]
fn a_successor_keeps_its_address() {
    let cluster = healthy().with(Fault::SharedLegacySuccessor, 1);
    let [leaked, handle] = ["leaked-address", "shared-legacy-handle"].map(|code| subject_of(&cluster, code));
    let site = Site::of(&cluster);
    let before = site.dump();
    let mut held = recorded(&before);
    held.retain(|address, id| id.as_deref() == Some(&handle) && address.to_string() != leaked);
    let (successor, _) = held.pop_first().expect("the successor");
    for targets in [vec!["--leaked"], vec!["--handle", &handle], vec!["--ip", &leaked]] {
        let run = site.release(&[&targets[..], &["-o", "json"]].concat());
        let plan = run.json();
        assert_eq!(
            changes(&plan),
            set([format!("release-address {leaked}")]),
            "{targets:?}"
        );
        let by_handle = targets[0] == "--handle";
        let expected = if by_handle {
            set([format!("in-use {successor}")])
        } else {
            BTreeSet::new()
        };
        assert_eq!(
            (run.code, skips(&plan)),
            (i32::from(by_handle), expected),
            "{targets:?}"
        );
        assert!(recorded(&site.dump()).contains_key(&successor));
        let handle = site.json(&key::handle(&handle));
        assert_eq!(
            handle["block"].as_object().unwrap().values().collect::<Vec<_>>(),
            [1]
        );
        site.undo_to(&run, &before);
    }
}

/// Stores a cluster whose last node has `fault`. Returns the name of the node, and the keys that name it or one of its
/// blocks.
fn site_of_node(fault: Fault) -> (Site, String, Vec<String>) {
    let cluster = healthy().with(fault, 1);
    let node = cluster.nodes().last().unwrap();
    let site = Site::of(&cluster);
    let own: Vec<String> = node.blocks.iter().map(|block| key::block(*block)).collect();
    let names = |key: &String| own.contains(key) || is_affinity_of(&node.name, key);
    let keys = site.dump().into_keys().filter(names).collect();
    (site, node.name.clone(), keys)
}

fn is_affinity_of(node: &str, key: &str) -> bool {
    key.contains(&format!("/host/{node}/"))
}

#[test]
fn a_node_that_is_gone_leaves_nothing() {
    let (site, node, keys) = site_of_node(Fault::NodeGone);
    let before = site.dump();
    assert_eq!(keys.len(), 4, "two blocks, and an affinity for each");
    let run = site.release(&["--node", &node]).succeeded();
    let after = site.dump();
    assert!(!after.keys().any(|key| is_affinity_of(&node, key)), "{run:?}");
    site.run(&["check", "--node", &node, "--settle", "0"])
        .says(&format!("node \"{node}\" not found"));
    assert_eq!(site.findings(&["--rule", "leaked-address"]), BTreeSet::new());
    let is_gone_handle = |key: &String| key.contains("/handle/") && !after.contains_key(key);
    let is_stray = |key: &String| !is_gone_handle(key) && !keys.contains(key);
    let strays = differing(&before, &after).into_iter().filter(is_stray);
    assert_eq!(strays.collect::<Vec<_>>(), Vec::<String>::new());
    site.undo_to(&run, &before);
}

/// The node object is missing, but endpoints still name the node, so it may be alive.
#[test]
fn records_that_a_node_still_uses_are_kept() {
    let (site, node, _) = site_of_node(Fault::NodeGonePodsLeft);
    let before = site.dump();
    site.release(&["--leaked", "--orphan-handles"]).succeeded();
    assert_eq!(site.dump(), before, "nothing of it goes by itself");
    let run = site.release(&["--node", &node, "-o", "json"]);
    let after = site.dump();
    assert_eq!(recorded(&after), recorded(&before), "{run:?}");
    let warnings = run.json()["warnings"].to_string();
    assert!(
        warnings.contains("endpoints or pods still refer to it; what they use is kept"),
        "{run:?}"
    );
    assert!(!after.keys().any(|key| is_affinity_of(&node, key)), "{run:?}");
}
