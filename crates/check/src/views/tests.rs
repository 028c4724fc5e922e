use calipam_model::plugin::Plugin;
use calipam_model::snapshot::Source;
use serde_json::{Value, json};

use super::*;
use crate::Scope;
use crate::test_cluster::{Cluster, pod};

/// A cluster with a /28 pool of /30 blocks instead of the usual large pool.
fn small() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.only_pool("small", json!({"cidr": "10.244.1.0/28", "blockSize": 30}));
    let cooling = json!({"releasedAt": "2026-05-01T12:00:00Z"});
    cluster.block("10.244.1.0/30", "host:node-1", [pod("node-1", "a"), cooling]);
    cluster
}

/// The cluster from [`small`], with the block's affinity, and with all data read that allocations depend on.
fn judged() -> Cluster {
    let mut cluster = small();
    cluster
        .0
        .mark_read([Source::Affinities, Source::Reservations, Source::IpamConfig]);
    cluster.affinity("host/node-1", "10.244.1.0/30", json!({"state": "confirmed"}));
    cluster
}

fn pool(cluster: &Cluster) -> PoolView {
    pools(&cluster.0).pools[0].clone()
}

#[test]
fn the_sums_of_a_pool() {
    let mut cluster = judged();
    let windows = json!({"handle_id": "windows-reserved-ipam-handle"});
    cluster.block("10.244.1.4/30", "host:node-9", [windows, pod("node-1", "b")]);
    cluster.resource(
        "ipreservations/r",
        json!({"reservedCIDRs": ["10.244.1.3/32", "10.244.1.8/30"]}),
    );
    let view = pool(&cluster);
    let sums = [
        view.total,
        view.in_use,
        view.cooling,
        view.windows_reserved,
        view.reserved,
        view.free,
    ]
    .map(|c| c.0);
    assert_eq!(sums, [16, 2, 1, 1, 5, 7]);
    assert_eq!(
        (view.blocks, view.allocatable, view.limited_by.len()),
        (2, Some(Count(7)), 0)
    );
}

#[test]
fn a_pool_says_why_free_addresses_are_not_allocatable() {
    let mut cluster = judged();
    cluster.block("10.244.1.4/30", "host:node-9", [pod("node-1", "b")]);
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    let view = pool(&cluster);
    assert_eq!(
        (view.free, view.allocatable),
        (Count(13), Some(Count(10))),
        "node-9 does not exist"
    );
    assert!(
        view.limited_by[0].starts_with("strict affinity"),
        "{:?}",
        view.limited_by
    );
    cluster.config(json!({}));
    assert_eq!(pool(&cluster).limited_by[0], "nodes cannot claim blocks");
    cluster.0.coverage.remove(&Source::Affinities);
    assert_eq!(pool(&cluster).allocatable, None, "what is not known is no number");
}

#[test]
fn blocks_outside_all_pools_are_counted_of_both_families() {
    let mut cluster = small();
    assert!(pools(&cluster.0).outside.is_none());
    cluster.block("10.9.0.0/30", Value::Null, [pod("node-1", "x")]);
    cluster.block(
        "fd00::/126",
        Value::Null,
        [pod("node-1", "y"), pod("node-1", "z")],
    );
    let outside = pools(&cluster.0).outside.unwrap();
    assert_eq!(
        (outside.blocks, outside.total.0, outside.in_use.0, outside.free.0),
        (2, 8, 3, 5)
    );
    let views = blocks(&cluster.0).blocks;
    assert_eq!(views.iter().filter(|b| b.pool.is_none()).count(), 2);
}

#[test]
fn large_numbers_keep_their_digits() {
    assert_eq!(serde_json::to_value(Count(1 << 53)).unwrap(), json!(1u64 << 53));
    assert_eq!(
        serde_json::to_value(Count(1 << 64)).unwrap(),
        json!("18446744073709551616")
    );
}

#[test]
fn nodes_and_borrowed_addresses() {
    let mut cluster = judged();
    cluster.block(
        "10.244.1.4/30",
        "host:node-9",
        [pod("node-1", "b"), pod("node-9", "c"), json!({})],
    );
    let views = nodes(&cluster.0).nodes;
    let row = |n: &NodeView| {
        (
            n.node.clone(),
            n.exists,
            n.addresses,
            n.borrowed,
            n.borrowed_by_others,
            n.free,
        )
    };
    let expected = [
        ("node-1".to_owned(), true, 2, 1, 0, 2),
        ("node-9".to_owned(), false, 2, 0, 1, 1),
    ];
    assert_eq!(views.iter().map(row).collect::<Vec<_>>(), expected);
    assert_eq!(
        (views[0].pools[0].limit, views[0].pools[0].claimable),
        (Some(20), Some(2))
    );
    let list = borrowed(&cluster.0, &Scope::default());
    assert_eq!((list.addresses.len(), list.unknown), (1, 1));
    let one = &list.addresses[0];
    let expected = ("10.244.1.4", "node-1", "default/b");
    assert_eq!(
        (
            one.address.to_string().as_str(),
            one.node.as_str(),
            one.allocated_to.as_str()
        ),
        expected
    );
}

#[test]
fn a_node_shows_its_plugin_by_annotation_and_newest_address() {
    let at = |node: &str, time: &str| {
        let mut record = pod(node, "x");
        record["secondary"]["timestamp"] = format!("2026-06-01 10:12:{time} +0000 UTC").into();
        record
    };
    let (calico, calipam) = ("02.120225471", "01.120225472");
    let plugins = |records: &[Value]| {
        let mut cluster = small();
        cluster.block("10.244.1.4/30", "host:node-1", records.to_vec());
        cluster.0.nodes[0].value.plugin = Some("calipam 0.1.0".into());
        let views = nodes(&cluster.0).nodes.into_iter().map(|node| node.plugin);
        views
            .map(|plugin| (plugin.installed, plugin.assigned_by))
            .collect::<Vec<_>>()
    };
    let noted = Some("calipam 0.1.0".to_owned());
    // If no record is added, the node's newest address is an older one, from Calico.
    assert_eq!(plugins(&[]), [(noted.clone(), Some(Plugin::Calico))]);
    let records = [at("node-1", calipam), at("node-9", calico), at("node-1", calico)];
    assert_eq!(plugins(&records[..1]), [(noted.clone(), Some(Plugin::Calipam))]);
    // Other nodes' addresses in the node's block do not count for the node.
    let expected = [
        (noted.clone(), Some(Plugin::Calipam)),
        (None, Some(Plugin::Calico)),
    ];
    assert_eq!(plugins(&records[..2]), expected);
    assert_eq!(plugins(&records)[0], (noted, Some(Plugin::Calico)));
}

#[test]
fn borrowed_addresses_of_overlapping_blocks_are_in_order() {
    let mut cluster = small();
    let fifth = std::iter::repeat_n(Value::Null, 5).chain([pod("node-2", "b")]);
    cluster.block("10.244.2.0/29", "host:node-1", fifth);
    cluster.block("10.244.2.0/30", "host:node-1", [pod("node-2", "a")]);
    let list = borrowed(
        &cluster.0,
        &Scope::of_networks(["10.244.2.0/24".parse().unwrap()]),
    );
    let addresses: Vec<String> = list.addresses.iter().map(|of| of.address.to_string()).collect();
    assert_eq!(addresses, ["10.244.2.0", "10.244.2.5"]);
}

#[test]
fn a_negative_cooldown_counts_as_zero() {
    let mut cluster = small();
    cluster.config(json!({"ipCooldownSeconds": -1}));
    let settings = configuration(&cluster.0).settings;
    let cooldown = settings
        .iter()
        .find(|setting| setting.name == "ipCooldownSeconds")
        .unwrap();
    assert_eq!(cooldown.value, "0");
}

/// A dual-stack node that can get addresses of only one family.
#[test]
fn a_node_without_addresses_is_shown_by_family() {
    let families = |cluster: &Cluster| {
        let view = nodes(&cluster.0).nodes.swap_remove(0);
        let families = view.families.into_iter();
        families
            .map(|f| (f.family, f.free, f.without_address, f.reason))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        families(&small()),
        [("ipv4", 2, None, None)],
        "affinities were not read"
    );
    let mut cluster = judged();
    assert_eq!(families(&cluster), [("ipv4", 2, Some(false), None)]);

    cluster.resource("ippools/six", json!({"cidr": "fd00::/124", "blockSize": 126}));
    let taken = ["a", "b", "c", "d"].map(|name| pod("node-1", name));
    cluster.block("fd00::/126", "host:node-1", taken);
    cluster.affinity("host/node-1", "fd00::/126", json!({"state": "confirmed"}));
    cluster.config(json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 1}));
    let full = Some("the block limit of 1 is reached: the node holds 1".to_owned());
    assert_eq!(
        families(&cluster),
        [("ipv4", 2, Some(false), None), ("ipv6", 0, Some(true), full)]
    );
    // A deleted node needs no address.
    cluster.0.nodes.clear();
    assert_eq!(
        families(&cluster),
        [("ipv4", 2, Some(false), None), ("ipv6", 0, Some(false), None)]
    );
}

#[test]
fn the_story_of_an_address() {
    let mut cluster = small();
    cluster.endpoint("node-1", "a", &["10.244.1.0/32"]);
    cluster.0.nodes[0].value.tunnels.clear();
    let story = |cluster: &Cluster, text: &str| address(&cluster.0, text.parse().unwrap());
    let used = story(&cluster, "10.244.1.0");
    let expected = (AddressState::Allocated, Some(OwnerStatus::UsesIt));
    assert_eq!((used.state, used.blocks[0].owner_status), expected);
    assert_eq!(
        used.blocks[0].handle.as_ref().map(|h| (h.exists, h.count)),
        Some((false, 0))
    );
    assert_eq!(used.owners[0].pod, "default/a");
    assert_eq!(
        used.findings.iter().map(|f| f.code.name()).collect::<Vec<_>>(),
        ["missing-handle"]
    );
    assert_eq!(story(&cluster, "10.244.1.1").state, AddressState::Cooling);
    assert_eq!(story(&cluster, "10.244.1.2").state, AddressState::Free);
    assert_eq!(story(&cluster, "10.244.1.9").state, AddressState::NoBlock);
    assert_eq!(story(&cluster, "10.9.9.9").pools, []);
    cluster.0.endpoints.clear();
    let leaked = story(&cluster, "10.244.1.0");
    assert_eq!(leaked.blocks[0].owner_status, Some(OwnerStatus::Gone));
    assert!(leaked.findings.iter().any(|f| f.code.name() == "leaked-address"));
    cluster.0.pools[0].value.disabled = true;
    assert!(
        !story(&cluster, "10.244.1.0").pools[0].enabled,
        "found in a disabled pool"
    );
}

#[test]
fn a_handle_and_what_is_recorded_under_it() {
    let mut cluster = small();
    let value = json!({"block": {"10.244.1.0/30": 2, "10.244.9.0/30": 1}});
    cluster.put("/calico/ipam/v2/handle/k8s-pod-network.a", value);
    let view = handle(&cluster.0, "k8s-pod-network.a").unwrap();
    let found = view
        .blocks
        .iter()
        .map(|b| (b.in_handle, b.addresses.len(), b.exists))
        .collect::<Vec<_>>();
    assert_eq!(found, [(2, 1, true), (1, 0, false)]);
    assert_eq!(
        view.findings.iter().map(|f| f.code.name()).collect::<Vec<_>>(),
        ["handle-count"]
    );
    assert_eq!(handle(&cluster.0, "nobody"), None);
    let ids = |begin: &str| handle_ids(&cluster.0, begin).into_iter().collect::<Vec<_>>();
    assert_eq!(
        (ids("k8s-pod"), ids("lb-")),
        (vec!["k8s-pod-network.a".to_owned()], Vec::new())
    );

    // Without a handle object, the view has only the block's records.
    let unknown = handle(&small().0, "k8s-pod-network.a").unwrap();
    assert_eq!((unknown.exists, unknown.blocks[0].addresses.len()), (false, 1));
}

#[test]
fn configuration_and_where_it_comes_from() {
    let mut cluster = small();
    let value = |cluster: &Cluster, name: &str| {
        let settings = configuration(&cluster.0).settings;
        settings
            .into_iter()
            .find(|s| s.name == name)
            .map(|s| (s.value, s.origin, s.resource))
            .unwrap()
    };
    assert_eq!(value(&cluster, "autoAllocateBlocks").0, "true");
    let default = |value: &str, why: &str| (value.to_owned(), format!("Calico's default{why}"), None);
    assert_eq!(
        value(&cluster, "maxBlocksPerHost"),
        default("20", ": nothing is stored")
    );
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.18.0"}));
    assert_eq!(value(&cluster, "maxBlocksPerHost").0, "no limit");
    cluster.config(json!({}));
    assert_eq!(
        value(&cluster, "maxBlocksPerHost"),
        default("no limit", " (not set)")
    );
    assert_eq!(
        value(&cluster, "kubeVirtVMAddressPersistence"),
        default("Enabled", " (not set)")
    );
    cluster.resource(
        "ipamconfigurations/default",
        json!({"strictAffinity": false, "autoAllocateBlocks": true}),
    );
    let (stored, origin, resource) = value(&cluster, "autoAllocateBlocks");
    let expected = ("false", "/calico/ipam/v2/config", Some("true"));
    assert_eq!((stored.as_str(), origin.as_str(), resource.as_deref()), expected);
    assert_eq!(value(&cluster, "leakGracePeriod").0, "15m");
}

#[test]
fn a_configuration_that_is_not_called_default_is_ignored() {
    let mut cluster = Cluster::new();
    let other = "/calico/resources/v3/projectcalico.org/ipamconfigurations/rancher-config";
    cluster.put(
        other,
        json!({"spec": {"strictAffinity": true, "autoAllocateBlocks": true}}),
    );
    let view = configuration(&cluster.0);
    let strict = view
        .settings
        .iter()
        .find(|setting| setting.name == "strictAffinity")
        .unwrap();
    assert_eq!(strict.value, "false");
    assert_eq!(
        strict.origin,
        "Calico's default: there is no IPAM configuration called default"
    );
    assert_eq!(view.ignored, ["rancher-config"]);
    let note = "Calico ignores the IPAM configuration rancher-config: only the one called default counts";
    cluster.block("10.244.1.0/30", Value::Null, []);
    assert_eq!(crate::check(&cluster.0, &crate::Options::default()).notes, [note]);
}
