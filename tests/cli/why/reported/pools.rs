//! Pools that are too small, not allocatable, or eaten by others.

use serde_json::json;

use super::super::cases::asks_for;
use super::super::lists::{CREATED, Lists, pool};
use super::Case;
use super::sandboxes::{rebooted, torn_down};

pub(super) fn pool_smaller_than_a_block() -> Case {
    let tiny = pool("c001:c0af::10/126", json!({"nodeSelector": "!all()"}));
    let pools = [("default", pool("10.46.0.0/16", json!({}))), ("tiny", tiny)];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.46.1.0/26", "n1", 1);
    let asks = json!({"cni.projectcalico.org/ipv6pools": r#"["tiny"]"#, "cni.projectcalico.org/ipFamilies": r#"["IPv6"]"#});
    lists.pod("shop/six", "n1", asks, CREATED, None);
    Case {
        name: "pool smaller than a block",
        lists,
        findings: &[
            "error pool-smaller-than-block c001:c0af::10/126",
            "error pod-without-address shop/six",
        ],
        answers: &[
            (
                "explain --pod shop/six",
                1,
                "shop/six gets no IPv6 address on n1: the pool tiny is smaller than one of its blocks",
            ),
            (
                "show",
                0,
                "tiny: not even pods that name the pool get an address: no node matches the node selector; the pool is smaller than one of its blocks",
            ),
        ],
        also_on: &[],
    }
}

/// Calico's plugin takes the first pool whose selectors match, and dies when it makes a block there.
pub(super) fn pool_with_an_impossible_block_size() -> Case {
    let typo = pool("10.47.0.0/16", json!({"blockSize": 122}));
    let pools = [("a-typo", typo), ("default", pool("10.46.0.0/16", json!({})))];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.46.1.0/26", "n1", 64);
    lists.pod("shop/any", "n1", json!({}), CREATED, None);
    lists.pod("shop/named", "n1", asks_for("a-typo"), CREATED, None);
    let other = json!({"cni.projectcalico.org/ipv6pools": r#"["a-typo"]"#});
    lists.pod("shop/other", "n1", other, CREATED, None);
    Case {
        name: "pool with an impossible block size",
        lists,
        findings: &[
            "critical node-without-addresses n1",
            "critical pod-without-address shop/any",
            "error pod-without-address shop/named",
            "error pod-without-address shop/other",
            "error undecodable-object ippools/a-typo",
        ],
        answers: &[
            (
                "explain --pod shop/any",
                1,
                "shop/any gets no IPv4 address on n1: the blocks of the pool a-typo would be /122, which is longer than an address",
            ),
            (
                "explain --pod shop/any",
                1,
                "Calico says: netplugin failed: \"fatal error: runtime: out of memory…",
            ),
            (
                "explain --pod shop/named",
                1,
                "Calico says: the given pool (10.47.0.0/16) does not exist, or is not enabled",
            ),
            (
                "explain --pod shop/other",
                1,
                r#"Calico says: "10.47.0.0" isn't a IPv6 address"#,
            ),
            (
                "show",
                0,
                "a-typo: its blocks would be /122, which is longer than an address",
            ),
        ],
        also_on: &[],
    }
}

pub(super) fn pool_that_is_not_allocatable() -> Case {
    let mut lists = Lists::of_pool("default", "10.54.0.0/16", json!({}));
    lists.block("10.54.1.0/26", "n1", 1);
    lists.version("v3.32.1");
    lists.object("IPPool", "team-b", pool("10.54.128.0/20", json!({})));
    lists.edit_last(|pool| {
        pool["status"] = json!({"conditions": [{"type": "Allocatable", "status": "False", "reason": "CIDROverlap",
            "message": "overlaps", "lastTransitionTime": CREATED}]});
    });
    lists.pod("team-b/web", "n1", asks_for("team-b"), CREATED, None);
    Case {
        name: "pool that is not allocatable",
        lists,
        // In the native group of Calico, where the controller marks the pool, they may overlap.
        findings: &[
            "error overlapping-pools 10.54.0.0/16",
            "error overlapping-pools 10.54.128.0/20",
            "error pod-without-address team-b/web",
        ],
        answers: &[(
            "explain --pod team-b/web",
            1,
            "it asks for the pool team-b, but its status says that it is not allocatable: CIDROverlap",
        )],
        also_on: &[],
    }
}

/// Pods that do not name the pool took it.
pub(super) fn pool_for_some_pods_that_others_fill(version: &str) -> Case {
    let pools = [
        ("default", pool("10.55.0.0/16", json!({}))),
        ("game", pool("10.56.0.0/28", json!({"blockSize": 28}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.version(version);
    lists.block("10.55.1.0/26", "n1", 1);
    lists.block("10.56.0.0/28", "n1", 16);
    lists.pod("game/server", "n1", asks_for("game"), CREATED, None);
    let answers = match version {
        "v3.24.1" => &[
            (
                "explain --pod game/server",
                1,
                r#"-p '{"spec":{"nodeSelector":"!all()"}}'"#,
            ),
            (
                "explain --pod game/server",
                1,
                "calipam show --node '*' --pool game",
            ),
        ],
        _ => &[
            (
                "explain --pod game/server",
                1,
                r#"-p '{"spec":{"assignmentMode":"Manual"}}'"#,
            ),
            (
                "explain --pod game/server",
                1,
                "gets no IPv4 address on n1: no address in its pools is free",
            ),
        ],
    };
    Case {
        name: "pool for some pods that others fill",
        lists,
        findings: &[
            "error pool-nearly-full 10.56.0.0/28",
            "error pod-without-address game/server",
        ],
        answers,
        also_on: &[],
    }
}

/// The nodes' configuration could name the pool that was disabled.
pub(super) fn pools_that_the_configuration_could_name() -> Case {
    let pools = [
        ("old", pool("10.233.64.0/18", json!({"disabled": true}))),
        ("extra", pool("192.168.0.0/16", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.233.64.0/26", "n1", 2);
    lists.stuck("shop/new", "n1");
    Case {
        name: "pools that the configuration could name",
        lists,
        findings: &[],
        answers: &[
            ("explain --pod shop/new", 0, "IPAM can assign 192.168."),
            (
                "explain --pod shop/new",
                0,
                "the node's CNI configuration names it: look for ipv4_pools",
            ),
        ],
        also_on: &[],
    }
}

/// Other pods took the addresses of a small pool while a node was off. Its pods run, according to the kubelet.
pub(super) fn pods_after_a_reboot() -> Case {
    let small = pool("10.60.0.0/29", json!({"blockSize": 29, "nodeSelector": "!all()"}));
    let pools = [("default", pool("10.59.0.0/16", json!({}))), ("small", small)];
    let mut lists = Lists::new(&pools, &[("n1", json!({})), ("n2", json!({}))]);
    lists.block("10.59.1.0/26", "n1", 1);
    lists.block("10.59.2.0/26", "n2", 1);
    lists.block("10.60.0.0/29", "n2", 8);
    lists.pod("app/ds", "n1", torn_down(asks_for("small")), CREATED, None);
    lists.edit_pod("app/ds", rebooted);
    Case {
        name: "pods after a reboot",
        lists,
        findings: &[
            "error pool-nearly-full 10.60.0.0/29",
            "error pod-without-address app/ds",
        ],
        answers: &[
            (
                "explain --pod app/ds",
                1,
                "app/ds gets no IPv4 address on n1: no address in its pools is free",
            ),
            ("check -o prometheus", 1, "calipam_pods_without_address 1"),
        ],
        also_on: &[],
    }
}
