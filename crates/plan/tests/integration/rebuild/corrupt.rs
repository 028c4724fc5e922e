//! Corrupt blocks: trustworthy parts stay, and doubtful blocks are left alone.

use calipam_check::{Code, Remedy, Subject};
use calipam_model::IpNet;
use calipam_model::block::{Block, BlockContent};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{Request, block_files};
use calipam_plan::release::{self, Force};
use calipam_plan::{SkipReason, SuggestedAction};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::judge::{Rebuilt, planned, rebuild, rebuild_all, words};
use crate::checked::{Checked, skip_reason};

const BLOCK: &str = "10.244.1.0/26";
const KEY: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26";

fn net() -> IpNet {
    BLOCK.parse().unwrap()
}

/// A cluster whose first block contains three tunnel addresses and the addresses of some pods.
fn cluster() -> Cluster {
    Cluster::plain(ClusterSpec::new(5), 2, 4)
}

/// The cluster with another value of the first block.
fn with(value: &Value) -> Cluster {
    let mut cluster = cluster();
    cluster.put_raw(KEY, value.to_string());
    cluster
}

/// Claims that an address beyond the block is free.
fn break_free_list(value: &mut Value) {
    value["unallocated"].as_array_mut().unwrap().push(json!(64));
}

fn block(snapshot: &Snapshot) -> &Block {
    let stored = snapshot
        .blocks
        .iter()
        .find(|block| block.value.key == net())
        .expect("there is the block");
    stored.value.content.sound().expect("it is sound")
}

fn rebuilt(name: &str, value: &Value) -> Rebuilt {
    rebuild_all(name, &with(value))
}

/// The block as it was before it was broken.
fn healthy() -> Block {
    block(&cluster().snapshot()).clone()
}

/// The owner of each ordinal.
fn owners(block: &Block) -> Vec<(u32, Option<String>, String)> {
    let owner = |a: calipam_model::block::Allocation<'_>| {
        let record = a.attribute.to_attribute();
        (
            a.ordinal,
            record.handle,
            record
                .owner
                .unwrap_or_default()
                .get("pod")
                .cloned()
                .unwrap_or_default(),
        )
    };
    block.allocations().map(owner).collect()
}

#[test]
fn trustworthy_parts_of_a_corrupt_block_stay() {
    let mut value = cluster().json(KEY);
    value["unallocated"].as_array_mut().unwrap().rotate_left(7);
    let order: Vec<u64> = value["unallocated"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    value["unallocated"].as_array_mut().unwrap().push(json!(20));
    value["field-of-tomorrow"] = json!({"a": [1]});
    let rebuilt = rebuilt("free twice", &value);
    assert!(rebuilt.later.findings.is_empty());
    let (before, after) = (healthy(), block(&rebuilt.after).clone());
    assert_eq!(owners(&before), owners(&after));
    assert!(
        before
            .allocations()
            .all(|a| after.sequence_of(a.ordinal) == a.sequence)
    );
    assert!(after.sequence() > before.sequence());
    assert_eq!(
        (before.owner(), before.claim_time()),
        (after.owner(), after.claim_time())
    );
    let free: Vec<u64> = after.free().iter().map(|ordinal| u64::from(*ordinal)).collect();
    assert_eq!(free, order);
    assert_eq!(
        serde_json::to_value(&after).unwrap()["field-of-tomorrow"],
        json!({"a": [1]})
    );
}

#[test]
fn records_and_their_addresses_are_found_by_who_uses_them() {
    let lost = [
        ("allocations", json!(null)),
        ("allocations", json!([])),
        ("allocations", json!([null, 5])),
        ("attributes", json!([])),
    ];
    for (field, lost) in lost {
        let mut value = cluster().json(KEY);
        value[field] = lost.clone();
        let rebuilt = rebuilt(&format!("{field} {lost}"), &value);
        assert_eq!(
            owners(&healthy()),
            owners(block(&rebuilt.after)),
            "{field} {lost}"
        );
        assert!(rebuilt.later.findings.is_empty(), "{:?}", rebuilt.later.findings);
    }
}

#[test]
fn an_address_that_the_block_holds_is_never_free_afterwards() {
    let mut value = cluster().json(KEY);
    // The record of a pod that is about to start is lost, and nothing uses the pod's address yet.
    value["attributes"] = json!([]);
    value["allocations"][40] = json!(12);
    value["unallocated"]
        .as_array_mut()
        .unwrap()
        .retain(|ordinal| ordinal != 40);
    let rebuilt = rebuilt("held by an unknown", &value);
    let held = block(&rebuilt.after).allocation(40).expect("it is held");
    assert!(held.attribute.is_anonymous());
    assert!(rebuilt.reason(Code::LeakedAddress, held.address).is_some());
}

#[test]
fn released_addresses_whose_records_are_mixed_up_wait_for_the_last_release() {
    let mut value = cluster().json(KEY);
    let now = cluster().snapshot().taken_at;
    let [last, first] = [1, 20].map(|seconds| {
        let released = now - SignedDuration::from_secs(seconds);
        released.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    let records = value["attributes"].as_array_mut().unwrap();
    records.push(json!({"releasedAt": last}));
    records.push(json!({"releasedAt": first}));
    for ordinal in [40, 41] {
        value["allocations"][ordinal] = json!(99);
        let free = value["unallocated"].as_array_mut().unwrap();
        free.retain(|free| *free != json!(ordinal));
    }

    let rebuilt = rebuilt("mixed up releases", &value);
    for ordinal in [40, 41] {
        let cooling = block(&rebuilt.after).allocation(ordinal).expect("it cools down");
        let released = cooling.attribute.released_at().map(|text| text.to_string());
        assert_eq!(released.as_deref(), Some(&*last), "{ordinal}");
    }
}

#[test]
fn leaks_that_a_corrupt_block_hid_wait_for_the_next_rebuild() {
    let mut cluster = cluster();
    let pod = cluster.add_pod_on(0);
    cluster.remove(&pod.endpoint);
    break_free_list(cluster.json_mut(KEY));
    let first = rebuild_all("corrupt", &cluster);
    let reason = |rebuilt: &Rebuilt| {
        let subject = Subject::Address(pod.address());
        let skipped = rebuilt
            .plan
            .skipped
            .iter()
            .find(|skipped| skipped.subject == subject);
        skipped.map(|skipped| skipped.reason)
    };
    assert_eq!(reason(&first), Some(SkipReason::Unchecked));
    let second = rebuild("repaired", first.after, &Request::default());
    assert_eq!((reason(&second), second.later.findings), (None, Vec::new()));
}

#[test]
fn ambiguous_blocks_are_skipped() {
    let reason = |name: &str, value: &Value| {
        let rebuilt = rebuilt(name, value);
        assert!(rebuilt.plan.actions.is_empty(), "{name}");
        let skipped = rebuilt
            .plan
            .skipped
            .iter()
            .find(|s| s.code == Some(Code::CorruptBlock));
        skipped.unwrap_or_else(|| panic!("{name} is not skipped")).reason
    };
    // The block has lost everything except its CIDR and owner.
    let whole = cluster().json(KEY);
    let mut value = whole.clone();
    for field in ["allocations", "unallocated", "attributes"] {
        value[field] = json!(null);
    }
    assert_eq!(reason("empty", &value), SkipReason::CorruptBeyondRepair);
    // Two unused addresses and two records, which cannot be matched.
    let ghost = |n: u32| json!({"handle_id": format!("k8s-pod-network.{n:012}"), "secondary": {"namespace": "x", "pod": format!("ghost-{n}"), "node": "node-1"}});
    let mut value = whole.clone();
    value["attributes"]
        .as_array_mut()
        .unwrap()
        .extend([ghost(1), ghost(2)]);
    value["allocations"][50] = json!(-1);
    value["allocations"][51] = json!(-2);
    value["unallocated"]
        .as_array_mut()
        .unwrap()
        .retain(|ordinal| ordinal != 50 && ordinal != 51);
    assert_eq!(reason("two ghosts", &value), SkipReason::CorruptBeyondRepair);
    // The same block, but one record is of a tunnel whose node has no tunnel address. The rebuild scripts for Calico
    // 2.x gave this reason.
    let tunnel = json!({"handle_id": "ipip-tunnel-addr-node-9", "secondary": {"node": "node-9", "type": "ipipTunnelAddress"}});
    let count = value["attributes"].as_array().unwrap().len();
    value["attributes"][count - 1] = tunnel.clone();
    assert_eq!(reason("tunnel not set", &value), SkipReason::TunnelAddressNotSet);
    let mut of_other = tunnel;
    of_other["handle_id"] = json!("ipip-tunnel-addr-node-2");
    of_other["secondary"]["node"] = json!("node-2");
    value["attributes"][count - 1] = of_other;
    assert_eq!(reason("tunnel behind", &value), SkipReason::TunnelAddressTooHigh);
    // The value of another block is stored under the block's key.
    let mut value = whole;
    value["cidr"] = json!("10.244.2.0/26");
    let foreign = cluster().json(&KEY.replace("244.1.0", "244.2.0"));
    assert_eq!(
        reason("another block's", &foreign),
        SkipReason::CorruptBeyondRepair
    );
    assert!(rebuilt("its own", &value).later.findings.is_empty());
}

#[test]
fn the_files_show_the_block_before_and_after() {
    let mut value = cluster().json(KEY);
    break_free_list(&mut value);
    let checked = Checked::new(with(&value).snapshot());
    let plan = planned(&checked, &Request::default());
    let files = block_files(&checked.snapshot, &plan, checked.snapshot.taken_at).unwrap();
    let [file] = files.as_slice() else {
        panic!("{files:?}")
    };
    assert_eq!((file.name.as_str(), file.cidr), ("10-244-1-0-26.json", net()));
    assert_eq!(file.before.as_ref().unwrap(), &value);
    let after = file.after.as_ref().unwrap().to_string();
    assert!(matches!(
        BlockContent::parse(after.as_bytes()),
        Ok(BlockContent::Sound(_))
    ));
}

#[test]
fn a_corrupt_block_that_overlaps_another_is_skipped() {
    let reasons = |name: &str, cluster: &Cluster, cidrs: &[IpNet]| -> Vec<Option<SkipReason>> {
        let plan = rebuild_all(name, cluster).plan;
        cidrs
            .iter()
            .map(|cidr| skip_reason(&plan, Code::CorruptBlock, &Subject::Block(*cidr)))
            .collect()
    };
    // A corrupt block inside a sound one, with the same records.
    let mut cluster = cluster();
    let (part, key) = ("10.244.1.0/28", KEY.replace("-26", "-28"));
    let mut value = cluster.json(KEY);
    value["cidr"] = json!(part);
    value["allocations"].as_array_mut().unwrap().truncate(16);
    value["unallocated"] = json!([0]);
    cluster.put_raw(key.as_str(), value.to_string());
    let part: IpNet = part.parse().unwrap();
    let overlap = Some(SkipReason::Overlap);
    assert_eq!(reasons("within a sound one", &cluster, &[part]), [overlap]);

    // Both blocks are corrupt, or the other one cannot be decoded.
    break_free_list(cluster.json_mut(KEY));
    assert_eq!(
        reasons("two corrupt ones", &cluster, &[net(), part]),
        [overlap; 2]
    );
    cluster.put_raw(key, "[]");
    assert_eq!(
        reasons("the other cannot be decoded", &cluster, &[net()]),
        [overlap]
    );
}

/// Values of many JSON types. Most of them are wrong for any given field.
fn wrong_values() -> Vec<Value> {
    let values = json!([null, -1, 3, 1_000_000_000, u64::MAX, true, "", [], {}, [[-7]],
        {"handle_id": "x.y", "secondary": null}]);
    values.as_array().unwrap().clone()
}

#[test]
fn whatever_breaks_a_block_no_address_in_use_is_freed() {
    let mut rng = Rng::new(31);
    let (whole, wrong) = (cluster().json(KEY), wrong_values());
    for round in 0..calipam_testkit::rounds(250) {
        let mut value = whole.clone();
        for _ in 0..=rng.below(4) {
            let field = *rng.pick(&["allocations", "unallocated", "attributes"]);
            let items = value[field].as_array_mut();
            let place = items
                .as_ref()
                .map_or(0, |items| rng.below(items.len().max(1) as u64) as usize);
            match (items, rng.below(5)) {
                (Some(items), 0) => items.truncate(place),
                (Some(items), 1) if !items.is_empty() => drop(items.remove(place)),
                (Some(items), 2) => items.insert(place, rng.pick(&wrong).clone()),
                (Some(items), 3) if !items.is_empty() => items[place] = rng.pick(&wrong).clone(),
                _ => value[field] = rng.pick(&wrong).clone(),
            }
        }
        let rebuilt = rebuilt(&format!("round {round}: {value}"), &value);
        let stored = rebuilt.after.blocks.iter().find(|block| block.value.key == net());
        let Some(sound) = stored.and_then(|stored| stored.value.content.sound()) else {
            continue;
        };
        for (ordinal, handle, _) in owners(&healthy()) {
            assert!(
                sound.allocation(ordinal).is_some(),
                "round {round}: {ordinal} of {handle:?} is free: {value}"
            );
        }
    }
}

#[test]
fn addresses_leaked_in_a_corrupt_block_are_released_after_its_repair() {
    let mut cluster = Cluster::plain(ClusterSpec::new(5).v4_only(), 2, 4).with(Fault::LeakedNoOwner, 1);
    let leaks = |checked: &Checked| -> Vec<Subject> {
        let leaked = checked
            .report
            .findings
            .iter()
            .filter(|finding| finding.code == Code::LeakedAddress);
        leaked.map(|finding| finding.subject.clone()).collect()
    };
    let leaked = leaks(&Checked::without_grace(cluster.snapshot()));
    let [Subject::Address(address)] = leaked[..] else {
        panic!("{leaked:?}")
    };

    let block = cluster
        .blocks()
        .map(|block| block.cidr)
        .find(|cidr| cidr.contains(&address))
        .unwrap();
    let stored = cluster.json_mut(&Key::Block(block).to_string());
    stored["attributes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"handle_id": "left-behind"}));
    let checked = Checked::without_grace(cluster.snapshot());
    assert_eq!(leaks(&checked), leaked);

    for request in [
        release::Request {
            leaked: true,
            ..release::Request::default()
        },
        release::Request {
            addresses: vec![address],
            force: Force::Named,
            ..release::Request::default()
        },
    ] {
        let plan = release::plan(&checked.basis(), &request);
        assert!(plan.is_empty(), "{}", words(&plan));
        let [skipped] = plan.skipped.as_slice() else {
            panic!("{:?}", plan.skipped)
        };
        assert_eq!(skipped.reason, SkipReason::Unchecked);
        let repair = SuggestedAction::Remedy(Remedy::Rebuild([block].into()));
        assert_eq!(skipped.suggested_action, Some(repair));
    }

    let plan = calipam_plan::rebuild::plan(&checked.basis(), &Request::default());
    let repairs: Vec<Code> = plan
        .changes()
        .flat_map(|change| &change.repairs)
        .map(|(code, _)| *code)
        .collect();
    assert_eq!(
        repairs,
        [Code::CorruptBlock, Code::LeakedAddress],
        "{}",
        words(&plan)
    );
}
