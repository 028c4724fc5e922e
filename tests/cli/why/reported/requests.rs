//! Requests of pods: families, annotations, pools by name, other plugins and floating addresses.

use serde_json::{Value, json};

use super::super::cases::asks_for;
use super::super::lists::{CREATED, Lists, pool};
use super::sandboxes::ready;
use super::{Case, Place, SANDBOX};

pub(super) fn pods_with_one_of_two_families() -> Case {
    let pools = [
        ("v4", pool("10.47.0.0/16", json!({}))),
        ("v6", pool("fd00:47::/64", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.47.1.0/26", "n1", 2);
    Case {
        name: "pods with one of two families",
        lists,
        findings: &[],
        answers: &[
            (
                "explain --pod apps/10-47-1-0-26-0",
                0,
                "has 10.47.1.0 on n1; no IPv6 address: no pod here has one, so the nodes' CNI configuration does not ask for it (assign_ipv6)",
            ),
            (
                "explain --node n1",
                0,
                "the next pod on n1 gets 10.47.1.2; no IPv6 address: no pod here has one",
            ),
        ],
        also_on: &[],
    }
}

/// The only IPv6 block belongs to another node. A pod asks for an IPv4 address alone.
pub(super) fn one_family_by_annotation() -> Case {
    let pools = [
        ("v4", pool("10.48.0.0/16", json!({}))),
        ("v6", pool("fd00:48::/122", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({})), ("n2", json!({}))]);
    lists.settings(json!({"strictAffinity": true, "autoAllocateBlocks": true}));
    lists.block("10.48.1.0/26", "n1", 1);
    lists.block("fd00:48::/122", "n2", 3);
    let only = |families: &str| json!({"cni.projectcalico.org/ipFamilies": families});
    lists.pod("shop/four", "n1", only(r#"["IPv4"]"#), CREATED, None);
    lists.namespace("old", json!({}), only(r#"["IPv4"]"#));
    lists.stuck("old/web", "n1");
    lists.stuck("shop/both", "n1");
    Case {
        name: "one family by annotation",
        lists,
        findings: &[
            "critical node-without-addresses n1",
            "error pod-without-address shop/both",
        ],
        answers: &[
            (
                "explain --pod shop/four",
                0,
                "IPAM can assign 10.48.1.1 to shop/four on n1\n",
            ),
            (
                "explain --pod old/web",
                0,
                "IPAM can assign 10.48.1.1 to old/web on n1\n",
            ),
            (
                "explain --pod shop/both",
                1,
                "shop/both gets no IPv6 address on n1: no block is left to claim, and strict affinity forbids borrowing",
            ),
        ],
        also_on: &[Place::Kubernetes, Place::Etcd],
    }
}

pub(super) fn annotations_that_cannot_be_read() -> Case {
    let pools = [
        ("v4", pool("192.168.0.0/16", json!({}))),
        ("v6", pool("2001:db8:42::/64", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("192.168.199.0/26", "n1", 1);
    for (name, annotations) in [
        (
            "shop/two",
            json!({"ipAddrs": r#"["2001:db8:42::1","2001:db8:42::2"]"#}),
        ),
        ("shop/pools", json!({"ipv4pools": "default-pool"})),
        (
            "shop/twice",
            json!({"ipAddrs": r#"["192.168.199.9"]"#, "ipAddrsNoIpam": r#"["192.168.199.9"]"#}),
        ),
        ("shop/plain", json!({"ipAddrs": "192.168.199.202"})),
    ] {
        let annotations = annotations.as_object().unwrap().iter();
        let annotations: serde_json::Map<String, Value> = annotations
            .map(|(name, value)| (format!("cni.projectcalico.org/{name}"), value.clone()))
            .collect();
        lists.pod(name, "n1", annotations.into(), CREATED, None);
    }
    Case {
        name: "annotations that cannot be read",
        lists,
        findings: &[
            "error pod-without-address shop/plain",
            "error pod-without-address shop/pools",
            "error pod-without-address shop/twice",
            "error pod-without-address shop/two",
        ],
        answers: &[
            ("explain --pod shop/two", 1, "names more than one IPv6 address"),
            (
                "explain --pod shop/pools",
                1,
                "ipv4pools is not a JSON list of strings",
            ),
            (
                "explain --pod shop/twice",
                1,
                "it has both annotations ipAddrs and ipAddrsNoIpam",
            ),
            (
                "explain --pod shop/plain",
                1,
                "Calico says: failed to parse IPs 192.168.199.202 for annotation",
            ),
            (
                "check",
                1,
                "shop/plain gets no IPv4 address: its annotation cni.projectcalico.org/ipAddrs is not",
            ),
            (
                "check",
                1,
                "shop/pools gets no IPv4 address: its annotation cni.projectcalico.org/ipv4pools is not",
            ),
        ],
        also_on: &[Place::Etcd],
    }
}

/// A cluster moved to Calico with the range of the plugin before.
pub(super) fn pods_of_another_plugin() -> Case {
    let mut lists = Lists::of_pool("default", "10.203.0.0/16", json!({}));
    lists.version("v3.8.0");
    lists.block("10.203.1.0/26", "n1", 1);
    lists.owned_block("10.203.1.64/26", "n1", &[(22, "escrow/starts", SANDBOX)]);
    lists.stuck("escrow/starts", "n1");
    for (name, address) in [
        ("old/in-block", "10.203.1.20"),
        ("old/in-none", "10.203.77.5"),
        ("old/taken", "10.203.1.86"),
    ] {
        lists.pod(name, "n1", json!({}), CREATED, Some(address));
        lists.edit_pod(name, |pod| {
            pod["metadata"]["annotations"] = json!({});
            pod["status"]["conditions"] = ready();
        });
    }
    Case {
        name: "pods of another plugin",
        lists,
        findings: &[
            "critical duplicate-address 10.203.1.86",
            "warning unrecorded-address 10.203.1.20",
            "warning unrecorded-address 10.203.77.5",
        ],
        answers: &[
            (
                "check",
                1,
                "10.203.1.86 is used by old/taken, which has it from another CNI plugin, but recorded for escrow/starts",
            ),
            ("check", 1, "`kubectl delete pod --namespace old taken"),
            (
                "check",
                1,
                "another CNI plugin gave 2 pods an address of an enabled pool",
            ),
        ],
        also_on: &[Place::Kubernetes],
    }
}

pub(super) fn floating_addresses() -> Case {
    let pools = [
        ("default", pool("10.61.0.0/16", json!({}))),
        ("public", pool("203.0.113.0/26", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.61.1.0/26", "n1", 1);
    lists.block("203.0.113.0/26", "n1", 1);
    lists.owned_block(
        "10.61.2.0/26",
        "n1",
        &[(1, "dns/free", "aa"), (2, "dns/taken", "bb")],
    );
    for (name, address, floating) in [
        ("dns/free", "10.61.2.1", "203.0.113.1"),
        ("dns/taken", "10.61.2.2", "203.0.113.0"),
    ] {
        let asks = json!({"cni.projectcalico.org/floatingIPs": json!([floating]).to_string()});
        lists.pod(name, "n1", asks, CREATED, Some(address));
        lists.edit_pod(name, |pod| pod["status"]["conditions"] = ready());
    }
    Case {
        name: "floating addresses",
        lists,
        findings: &[
            "critical duplicate-address 203.0.113.0",
            "warning unrecorded-address 203.0.113.1",
        ],
        answers: &[
            (
                "check",
                1,
                "2 pods name an address of an enabled pool in the annotation ipAddrsNoIpam or floatingIPs",
            ),
            (
                "show 203.0.113.1",
                0,
                "pod dns/free on n1 (annotation cni.projectcalico.org/floatingIPs)",
            ),
        ],
        also_on: &[],
    }
}

/// A pod that has got the address that it names, without IPAM. The kubelet has not written its status yet, or has.
pub(super) fn addresses_without_ipam(phase: &'static str) -> Case {
    let pools = [
        ("default", pool("10.42.0.0/16", json!({}))),
        ("six", pool("fd42::/64", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.42.0.0/26", "n1", 2);
    let annotations = json!({"cni.projectcalico.org/ipAddrsNoIpam": r#"["203.0.113.7"]"#});
    lists.pod(
        "shop/first",
        "n1",
        annotations.clone(),
        CREATED,
        Some("203.0.113.7"),
    );
    lists.edit_pod("shop/first", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"] = SANDBOX.into();
        pod["status"]["phase"] = phase.into();
        if phase == "Pending" {
            pod["status"] = json!({"phase": phase});
        }
    });
    lists.pod("shop/next", "n1", annotations, CREATED, None);
    Case {
        name: "addresses without IPAM",
        lists,
        findings: &[],
        answers: &[
            (
                "explain --pod shop/first",
                0,
                "shop/first has 203.0.113.7 on n1\n",
            ),
            (
                "explain --pod shop/next",
                0,
                "shop/next names its addresses itself: IPAM is not used\n",
            ),
        ],
        also_on: &[Place::Kubernetes, Place::Etcd],
    }
}

pub(super) fn names_of_no_pool() -> Case {
    let pools = [
        ("default", pool("10.67.0.0/16", json!({}))),
        ("v6", pool("2001:db8:2b34::/64", json!({"disabled": true}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.67.1.0/26", "n1", 1);
    for (name, pool) in [
        ("shop/part", "10.67.8.0/24"),
        ("shop/typo", "defualt"),
        ("shop/family", "v6"),
    ] {
        lists.pod(name, "n1", asks_for(pool), CREATED, None);
    }
    let six = json!({"cni.projectcalico.org/ipv6pools": r#"["2001:db8:2b34::/64"]"#});
    lists.pod("shop/six", "n1", six, CREATED, None);
    Case {
        name: "names of no pool",
        lists,
        findings: &[
            "error pod-without-address shop/family",
            "error pod-without-address shop/part",
            "error pod-without-address shop/typo",
        ],
        answers: &[
            (
                "explain --pod shop/part",
                1,
                "(default contains it, but a pool's whole CIDR must be named)",
            ),
            (
                "explain --pod shop/typo",
                1,
                "it asks for the pool \"defualt\", which does not exist",
            ),
            (
                "explain --pod shop/family",
                1,
                "but the pool is for the other family",
            ),
            (
                "explain --pod shop/six",
                0,
                "IPAM can assign 10.67.1.1 to shop/six on n1",
            ),
        ],
        also_on: &[],
    }
}
