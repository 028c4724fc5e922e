//! Address counts and allocatable addresses, on hand-written entries.

use serde_json::{Value, json};

use super::Occupancy;
use crate::test_cluster::{Cluster, pod};
use crate::{Context, Options};
use calipam_assign::{Allocatable, Outlook, PoolLimit as Limit, PoolPassedOver};
use calipam_model::key::Key;
use calipam_model::snapshot::{Defect, DefectKind, Source};
use calipam_testkit::values;

fn cooling() -> Value {
    json!({"releasedAt": "2026-05-01T12:00:00Z"})
}

fn windows() -> Value {
    json!({"handle_id": "windows-reserved-IPAM-handle"})
}

/// A pool of sixteen addresses in blocks of four. node-1 owns one of the blocks.
fn small() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.0.pools.clear();
    cluster
        .0
        .mark_read([Source::Reservations, Source::IpamConfig, Source::Affinities]);
    cluster.resource("ippools/small", json!({"cidr": "10.244.1.0/28", "blockSize": 30}));
    cluster.block(
        "10.244.1.0/30",
        "host:node-1",
        [pod("node-1", "a"), cooling(), windows()],
    );
    cluster.affinity("host/node-1", "10.244.1.0/30", json!({"state": "confirmed"}));
    cluster
}

/// The numbers of addresses in the first pool: in use, cooling, reserved by Windows, reserved, unknown and free.
fn parts(cluster: &Cluster) -> [u128; 6] {
    let context = Context::new(&cluster.0, &Options::default());
    let tally = Occupancy::new(&context).tally(cluster.0.pools[0].value.cidr);
    let parts = [
        tally.in_use,
        tally.cooling,
        tally.windows_reserved,
        tally.reserved,
        tally.unknown,
        tally.free,
    ];
    assert_eq!(parts.iter().sum::<u128>(), tally.total);
    parts
}

/// The number of allocatable addresses in the first pool, and what limits it.
fn allocatable(cluster: &Cluster) -> (Option<u128>, Vec<Limit>) {
    let found = of_first_pool(cluster);
    (found.addresses, found.limits)
}

/// The number of addresses that requests can get by naming the first pool, if all other requests get nothing.
fn by_name(cluster: &Cluster) -> Option<u128> {
    of_first_pool(cluster).by_name
}

fn of_first_pool(cluster: &Cluster) -> Allocatable {
    let context = Context::new(&cluster.0, &Options::default());
    let pool = &cluster.0.pools[0].value;
    let free = Occupancy::new(&context).tally(pool.cidr).free;
    let outlook = Outlook::new(&cluster.0);
    outlook.map_or(Allocatable::unknown(Limit::NotKnown), |outlook| {
        outlook.allocatable(pool, free)
    })
}

#[test]
fn addresses_that_have_cooled_down_are_free() {
    let released = |at: &str| {
        let mut cluster = small();
        cluster.config(json!({"auto_allocate_blocks": true, "ipCooldownSeconds": 30}));
        let cooling = || json!({"releasedAt": at});
        let own = [pod("node-1", "a"), cooling(), cooling(), cooling()];
        cluster.block("10.244.1.4/30", "host:node-1", own);
        cluster.0.blocks.remove(0);
        cluster
    };
    let passed = released("2026-05-01T11:59:29Z");
    assert_eq!(parts(&passed), [1, 0, 0, 0, 0, 15]);
    let cools = released("2026-05-01T11:59:31Z");
    assert_eq!(parts(&cools), [1, 3, 0, 0, 0, 12]);
    let mut unread = passed;
    unread.0.coverage.remove(&Source::IpamConfig);
    assert_eq!(
        parts(&unread),
        [1, 3, 0, 0, 0, 12],
        "how long it lasts is not known"
    );
}

#[test]
fn every_address_counts_once() {
    let mut cluster = small();
    assert_eq!(parts(&cluster), [1, 1, 1, 0, 0, 13]);
    // The reservation covers an allocated address, a free one, and two outside of all blocks.
    let spec = json!({"reservedCIDRs": ["10.244.1.0/32", "10.244.1.3", "10.244.1.4/31"]});
    cluster.resource("ipreservations/r", spec);
    assert_eq!(parts(&cluster), [1, 1, 1, 3, 0, 10]);
    // A block that cannot be decoded covers a part of the reservation.
    cluster.put(&values::block_key("10.244.1.4/30"), json!("no block"));
    assert_eq!(parts(&cluster), [1, 1, 1, 1, 4, 8]);
}

#[test]
fn overlapping_blocks_count_once() {
    let mut cluster = small();
    // A /29 with only four ordinals is corrupt. Its addresses are unknown, unless the sound /30 inside it shows them as
    // taken.
    let mut half = values::block("10.244.1.0/30", Value::Null, [pod("node-1", "b")]);
    half["cidr"] = "10.244.1.0/29".into();
    cluster.put(&values::block_key("10.244.1.0/29"), half);
    assert_eq!(parts(&cluster), [1, 1, 1, 0, 5, 8]);
    let mut cluster = small();
    cluster.block(
        "10.244.1.0/31",
        Value::Null,
        [pod("node-1", "b"), pod("node-1", "b")],
    );
    assert_eq!(
        parts(&cluster),
        [2, 0, 1, 0, 0, 13],
        "what one block holds is not cooling in another"
    );
}

#[test]
fn a_block_around_the_pool_counts_with_its_part() {
    let mut cluster = Cluster::new();
    cluster.only_pool("tiny", json!({"cidr": "10.244.1.2/31", "blockSize": 31}));
    cluster.block(
        "10.244.1.0/30",
        Value::Null,
        [pod("node-1", "a"), pod("node-1", "b"), pod("node-1", "c")],
    );
    assert_eq!(parts(&cluster), [1, 0, 0, 0, 0, 1]);
    // Nor does the whole of IPv6 overflow.
    cluster.only_pool("all", json!({"cidr": "::/0"}));
    assert_eq!(parts(&cluster)[5], u128::MAX);
}

#[test]
fn allocatable_addresses_are_unknown_if_data_is_missing() {
    let mut cluster = small();
    assert_eq!(allocatable(&cluster), (Some(13), vec![]), "all free addresses");
    let defect = |kind| Defect {
        path: "small".into(),
        key: Some(Key::Pool("small".into())),
        kind,
    };
    cluster.0.defects.push(defect(DefectKind::Fields(Vec::new())));
    assert!(allocatable(&cluster).0.is_some(), "the rest of the pool is known");
    cluster
        .0
        .defects
        .push(defect(DefectKind::Value("no pool".into())));
    assert_eq!(
        allocatable(&cluster).0,
        Some(13),
        "Calico skips a pool that it cannot read"
    );

    let mut cluster = small();
    cluster.0.coverage.remove(&Source::Affinities);
    assert_eq!(allocatable(&cluster), (None, vec![Limit::NotKnown]));
    let mut cluster = small();
    cluster.config(json!("broken"));
    assert_eq!(allocatable(&cluster), (None, vec![Limit::NotKnown]));
}

#[test]
fn pools_without_allocatable_addresses_have_a_reason() {
    for (field, value, limit) in [
        (
            "disabled",
            json!(true),
            Limit::PassedOver(PoolPassedOver::Disabled),
        ),
        ("nodeSelector", json!("rack == 'a'"), Limit::NoNode),
        ("allowedUses", json!(["Other"]), Limit::NoUse),
    ] {
        let mut cluster = small();
        cluster.only_pool(
            "small",
            json!({"cidr": "10.244.1.0/28", "blockSize": 30, field: value}),
        );
        assert_eq!(allocatable(&cluster), (Some(0), vec![limit]));
    }
    let mut cluster = small();
    cluster.resource(
        "ippools/other",
        json!({"cidr": "10.245.0.0/16", "nodeSelector": "rack =="}),
    );
    assert_eq!(allocatable(&cluster), (None, vec![Limit::BrokenSelector]));
}

/// The pool was shrunk below the block of node-1, which still assigns the addresses of its block.
#[test]
fn the_owner_of_a_larger_block_gets_the_addresses_of_a_pool() {
    let mut cluster = small();
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    cluster.only_pool("small", json!({"cidr": "10.244.1.0/31", "blockSize": 30}));
    assert_eq!(
        allocatable(&cluster),
        (Some(0), vec![]),
        "one is in use, one is cooling"
    );
    cluster.0.blocks.clear();
    cluster.block("10.244.1.0/30", "host:node-1", [pod("node-1", "a")]);
    assert_eq!(allocatable(&cluster), (Some(1), vec![]));
    cluster.0.blocks.clear();
    assert_eq!(
        allocatable(&cluster),
        (Some(2), vec![]),
        "the block is created again"
    );
    cluster.resource("ipreservations/r", json!({"reservedCIDRs": ["10.244.1.0/32"]}));
    assert_eq!(allocatable(&cluster), (Some(1), vec![]));

    // The block does not begin in the pool.
    cluster.only_pool("small", json!({"cidr": "10.244.1.2/31", "blockSize": 30}));
    assert_eq!(allocatable(&cluster), (Some(0), vec![Limit::SmallerThanBlock]));
}

/// A node creates the missing block of its affinity, of whatever size, even at its block limit.
#[test]
fn a_block_of_another_size_is_created_for_its_affinity() {
    let with_affinity = |cidr: &str| {
        let mut cluster = small();
        cluster.only_pool("small", json!({"cidr": "10.244.1.0/29", "blockSize": 30}));
        cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true, "maxBlocksPerHost": 1}));
        cluster.affinity("host/node-1", cidr, json!({"state": "confirmed"}));
        allocatable(&cluster)
    };
    assert_eq!(with_affinity("10.244.1.4/30"), (Some(5), vec![]));
    assert_eq!(with_affinity("10.244.1.4/31"), (Some(3), vec![Limit::BlockLimit]));
    // It would overlap the block of node-1.
    assert_eq!(with_affinity("10.244.1.0/29"), (Some(1), vec![Limit::BlockLimit]));
}

#[test]
fn addresses_around_a_smaller_block_have_a_reason() {
    let mut cluster = small();
    cluster.0.blocks.clear();
    cluster.0.affinities.clear();
    cluster.only_pool("small", json!({"cidr": "10.244.1.0/29", "blockSize": 30}));
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    cluster.block(
        "10.244.1.0/31",
        "host:node-1",
        [pod("node-1", "a"), pod("node-1", "b")],
    );
    cluster.affinity("host/node-1", "10.244.1.0/31", json!({"state": "confirmed"}));
    assert_eq!(allocatable(&cluster), (Some(4), vec![Limit::Overlap]));
}

#[test]
fn a_manual_pool_ignores_its_selector() {
    let mut cluster = small();
    let spec = json!({"cidr": "10.244.1.0/28", "blockSize": 30, "assignmentMode": "Manual", "nodeSelector": "rack == 'a'"});
    cluster.only_pool("small", spec);
    assert_eq!(allocatable(&cluster), (Some(0), vec![Limit::Manual]));
    assert_eq!(by_name(&cluster), Some(13));
    cluster.0.pools[0].value.automatic = true;
    assert_eq!(
        (allocatable(&cluster).1, by_name(&cluster)),
        (vec![Limit::NoNode], Some(13))
    );
}

#[test]
fn the_block_limit_keeps_space_unclaimed() {
    let mut cluster = small();
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true, "maxBlocksPerHost": 2}));
    let expected = (Some(5), vec![Limit::BlockLimit]);
    assert_eq!(
        allocatable(&cluster),
        expected,
        "one block more, and the last free one"
    );
    // An affinity without a block counts toward the limit, and its block can still be created.
    cluster.affinity("host/node-1", "10.244.1.4/30", json!({"state": "confirmed"}));
    assert_eq!(allocatable(&cluster), expected);
    // A block in another pool also counts if that pool serves the same requests, but not if that pool selects no node.
    let spec = json!({"cidr": "10.245.0.0/16", "blockSize": 30, "nodeSelector": "!all()"});
    cluster.resource("ippools/else", spec);
    cluster.affinity("host/node-1", "10.245.0.0/30", json!({"state": "confirmed"}));
    assert_eq!(allocatable(&cluster).0, Some(5));
    cluster.resource("ippools/more", json!({"cidr": "10.246.0.0/16", "blockSize": 30}));
    cluster.affinity("host/node-1", "10.246.0.0/30", json!({"state": "confirmed"}));
    let found = allocatable(&cluster).0;
    assert_eq!(
        found,
        Some(5),
        "over the limit, but the block of the affinity is still to come"
    );
    cluster
        .0
        .affinities
        .retain(|a| a.value.key.cidr.to_string() != "10.244.1.4/30");
    assert_eq!(allocatable(&cluster).0, Some(1));
}

#[test]
fn a_block_without_affinity_counts_for_the_limit_where_it_has_room() {
    let with = |names: &[&str]| {
        let mut cluster = small();
        cluster.config(json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 2}));
        cluster.block(
            "10.244.1.4/30",
            "host:node-1",
            names.iter().map(|name| pod("node-1", name)),
        );
        cluster
    };
    let mut cluster = with(&["a", "b", "c", "d"]);
    assert_eq!(
        allocatable(&cluster),
        (Some(5), vec![Limit::BlockLimit]),
        "one more block can be claimed"
    );
    cluster.affinity("host/node-1", "10.244.1.4/30", json!({"state": "confirmed"}));
    assert_eq!(allocatable(&cluster), (Some(1), vec![Limit::BlockLimit]));
    let empty = with(&[]);
    assert_eq!(
        allocatable(&empty),
        (Some(5), vec![Limit::BlockLimit]),
        "it is the one that is claimed"
    );
}

#[test]
fn free_addresses_in_blocks_of_others() {
    let others = |cluster: &mut Cluster| {
        cluster.block("10.244.1.4/30", "host:gone", [pod("node-1", "x")]);
        cluster.block("10.244.1.8/30", "host:gone", []);
        cluster.affinity("host/gone", "10.244.1.8/30", json!({"state": "confirmed"}));
    };
    let mut cluster = small();
    others(&mut cluster);
    assert_eq!(
        allocatable(&cluster),
        (Some(12), vec![]),
        "borrowed once the last place is claimed"
    );
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    assert_eq!(
        allocatable(&cluster),
        (Some(9), vec![Limit::StrictAffinity]),
        "a current Calico, presumably"
    );
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.31.7"}));
    assert_eq!(allocatable(&cluster), (Some(5), vec![Limit::StrictAffinity]));
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.32.1"}));
    assert_eq!(
        allocatable(&cluster),
        (Some(9), vec![Limit::StrictAffinity]),
        "an empty block is taken over"
    );
    cluster.config(json!({"strict_affinity": true}));
    let limits = vec![Limit::AutoAllocationOff, Limit::StrictAffinity];
    assert_eq!(allocatable(&cluster), (Some(1), limits));
}

#[test]
fn blocks_of_another_size_are_not_borrowed_from() {
    let mut cluster = small();
    cluster.block("10.244.1.8/29", "host:gone", []);
    assert_eq!(allocatable(&cluster), (Some(5), vec![Limit::BlockSize]));
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    cluster.block("10.244.1.4/30", "host:gone", []);
    cluster.affinity("host/gone", "10.244.1.4/30", json!({"state": "confirmed"}));
    let expected = (Some(5), vec![Limit::BlockSize]);
    assert_eq!(
        allocatable(&cluster),
        expected,
        "all that others have is taken over"
    );
}

#[test]
fn windows_nodes_need_strict_affinity_and_reserve_addresses_of_each_new_block() {
    let mut cluster = small();
    cluster.0.pools[0].value.block_size = 29;
    cluster.0.blocks.clear();
    cluster.0.affinities.clear();
    cluster.0.nodes.truncate(1);
    assert_eq!(allocatable(&cluster), (Some(16), vec![]));
    let labels = &mut cluster.0.nodes[0].value.labels;
    labels.insert("kubernetes.io/os".into(), "windows".into());
    assert_eq!(
        allocatable(&cluster),
        (Some(0), vec![Limit::WindowsNeedsStrictAffinity])
    );
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    assert_eq!(
        allocatable(&cluster),
        (Some(4), vec![Limit::BlockLimit, Limit::ReservedForWindows]),
        "a single block, four addresses of which are reserved"
    );
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.32.1"}));
    cluster.block("10.244.1.0/29", "host:gone", []);
    cluster.block("10.244.1.8/29", "host:gone", []);
    for block in ["10.244.1.0/29", "10.244.1.8/29"] {
        cluster.affinity("host/gone", block, json!({"state": "confirmed"}));
    }
    assert_eq!(
        allocatable(&cluster).0,
        Some(4),
        "one of the empty blocks is created again"
    );
    cluster.0.blocks.clear();
    cluster.0.affinities.clear();
    cluster.0.pools[0].value.block_size = 30;
    assert_eq!(allocatable(&cluster), (Some(0), vec![Limit::TooSmallForWindows]));
    let linux = cluster.0.nodes[0].clone();
    cluster.0.nodes.push(linux);
    cluster.0.nodes[1].value.labels.clear();
    cluster.0.nodes[1].value.name = "node-2".into();
    assert_eq!(
        allocatable(&cluster),
        (Some(16), vec![]),
        "another node gets all of them"
    );
}

#[test]
fn a_block_that_is_reserved_as_a_whole_takes_no_room_twice() {
    let mut cluster = small();
    cluster.resource("ipreservations/r", json!({"reservedCIDRs": ["10.244.1.4/30"]}));
    cluster.block("10.244.1.4/30", "host:gone", []);
    assert_eq!(allocatable(&cluster).0, Some(9), "two more blocks can be claimed");
}

#[test]
fn load_balancer_pools_serve_their_virtual_owner() {
    let mut cluster = small();
    cluster.0.pools.clear();
    cluster.0.nodes.clear();
    let spec = json!({"cidr": "10.244.1.0/28", "blockSize": 30, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb", spec);
    assert_eq!(
        allocatable(&cluster),
        (Some(13), vec![]),
        "the node's block can be borrowed from"
    );
    cluster.0.pools[0].value.node_selector = "has(rack)".into();
    assert_eq!(
        allocatable(&cluster),
        (Some(0), vec![Limit::NoNode]),
        "the virtual owner has no labels"
    );
}
