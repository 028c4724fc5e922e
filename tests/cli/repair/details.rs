//! A release leaves blocks and handles in the same state as a release by Calico would.

use serde_json::json;

use super::site::*;

/// Sets the cooldown period of the cluster.
fn with_cooldown(cluster: &mut Cluster, seconds: u32) {
    let seconds = (seconds > 0).then_some(seconds);
    cluster.change_settings(&json!({"ipCooldownSeconds": seconds}));
}

fn block(site: &Site, pod: &Pod) -> Block {
    Block::read(&site.value(&key::block(pod.block())).unwrap()).unwrap()
}

#[test]
fn released_addresses_cool_down_where_the_cluster_says_so() {
    for seconds in [0, 30] {
        let mut cluster = healthy();
        with_cooldown(&mut cluster, seconds);
        let pod = leak(&mut cluster, 0);
        let site = Site::of(&cluster);
        let before = block(&site, &pod);
        let planned = site.run_at_once(&["release", "--leaked", "--dry-run"], &[]);
        let run = site.release(&["--leaked"]).succeeded();
        for (said, text) in [
            (&planned.stderr, "2 released addresses will cool down for 30 s; "),
            (&run.stdout, "2 addresses are cooling down, the first until "),
        ] {
            let is_said = said.contains(text) && said.contains("configure --ip-cooldown-seconds 0");
            assert_eq!(is_said, seconds == 30, "{planned:?} {run:?}");
        }
        let mut after = block(&site, &pod);
        let ordinal = after.ordinal(pod.address());
        assert_eq!(after.sequence, before.sequence + 1);
        if seconds == 0 {
            assert_eq!(after.allocations[ordinal], None);
            let expected: Vec<i64> = before
                .unallocated
                .iter()
                .copied()
                .chain([ordinal as i64])
                .collect();
            assert_eq!(after.unallocated, expected, "what is freed goes to the tail");
            assert!(!after.sequences.contains_key(&ordinal.to_string()));
            continue;
        }
        let record = after.record_mut(pod.address()).clone();
        assert_eq!((record.handle, record.owner), (None, None));
        let released: jiff::Timestamp = record.released_at.unwrap().parse().unwrap();
        assert!(released.duration_until(Timestamp::now()).as_secs() < 60);
        let again = site.release(&["--ip", &pod.address().to_string()]);
        again.exits(1).prints("was already released and is cooling down");
    }
}

/// A block without an owner is deleted when its last address is released.
#[test]
fn an_empty_block_without_owner_is_deleted() {
    let mut cluster = healthy();
    with_cooldown(&mut cluster, 0);
    cluster.inject(Fault::LeakedInUnownedBlock, 1);
    let address = subject_of(&cluster, "leaked-address");
    let block = cluster.blocks().find(|b| b.affinity.is_none()).unwrap().cidr;
    assert!(block.contains(&address.parse::<std::net::IpAddr>().unwrap()));
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked"]).succeeded();
    assert_eq!(site.value(&key::block(block)), None);
    assert_eq!(
        site.findings(&["--skip-rule", "configuration-mismatch"]),
        BTreeSet::new()
    );
    site.undo_to(&run, &before);
}

/// The IDs of handles that were migrated from host-local can contain a carriage return and further text.
#[test]
fn handles_with_a_carriage_return_are_deleted() {
    for by_handle in [false, true] {
        let mut cluster = healthy();
        let pod = leak(&mut cluster, 0);
        let id = format!("{}\r\neth0", pod.handle);
        for (address, block) in &pod.addresses {
            cluster.record_mut(*address, *block).handle = Some(id.clone());
        }
        let object = cluster.remove(&key::handle(&pod.handle));
        cluster.put(key::handle(&id), object);
        let site = Site::of(&cluster);
        assert!(site.dump().contains_key(&key::handle(&id)));
        let targets = if by_handle {
            vec!["--handle", &pod.handle]
        } else {
            vec!["--leaked"]
        };
        let run = site.release(&targets).succeeded();
        assert!(
            !run.stdout.contains('\r') && !run.stderr.contains('\r'),
            "{run:?}"
        );
        let after = site.dump();
        assert!(!after.contains_key(&key::handle(&id)));
        assert!(
            pod.addresses
                .iter()
                .all(|(address, _)| !recorded(&after).contains_key(address))
        );
        assert_eq!(site.findings(&[]), BTreeSet::new());
    }
}

#[test]
fn handles_with_wrong_counts_are_corrected_or_deleted() {
    let mut cluster = healthy();
    let pods: Vec<Pod> = (0..3).map(|node| leak(&mut cluster, node)).collect();
    // One count is too high, one is too low, and one is for a block that no longer exists.
    cluster.count(&pods[0].handle, pods[0].block(), 2);
    cluster.count(&pods[1].handle, pods[1].block(), -1);
    cluster.count(&pods[2].handle, "10.244.250.0/26".parse().unwrap(), 1);
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked", "-o", "json"]).succeeded();
    let corrected = changes(&run.json())
        .into_iter()
        .filter(|change| change.starts_with("set-handle-counts"));
    assert_eq!(
        set(corrected),
        set(pods.iter().map(|pod| format!("set-handle-counts {}", pod.handle)))
    );
    let after = site.dump();
    assert!(
        pods.iter()
            .all(|pod| !after.contains_key(&key::handle(&pod.handle)))
    );
    assert_eq!(site.findings(&[]), BTreeSet::new());
    site.undo_to(&run, &before);
}

/// Two addresses of a pod share a handle of the old scheme. After one address is released, the handle counts only the
/// other one.
#[test]
fn remaining_handles_count_the_remaining_addresses() {
    let mut cluster = healthy();
    let block = cluster.nodes()[0].blocks[0];
    let owner = cluster.add_pod_on(0);
    let id = format!("{}.{}", owner.name.namespace, owner.name.pod);
    let bare = Attribute::bare(&id);
    let extra = cluster.block_mut(block).take(2, bare);
    cluster.count(&id, block, 2);
    let both = [
        owner.addresses.iter().map(|(address, _)| *address).collect(),
        vec![extra[0]],
    ]
    .concat();
    cluster.set_addresses(&owner.endpoint, &both);
    let site = Site::of(&cluster);
    let run = site.release(&["--leaked", "-o", "json"]);
    assert_eq!(
        changes(&run.json()),
        set([format!("release-address {}", extra[1])]),
        "{run:?}"
    );
    assert_eq!(
        site.json(&key::handle(&id))["block"],
        json!({block.to_string(): 1})
    );
}
