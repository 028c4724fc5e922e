//! States in which pods get no address, or seem to get none.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::lists::{CREATED, Lists, answer, findings, pool};
use crate::cli::program::Run;

/// A state, the expected findings about missing addresses, and a question with its expected answer.
pub(super) struct Case {
    lists: Lists,
    findings: &'static [&'static str],
    asked: &'static str,
    code: i32,
    says: &'static str,
}

impl Case {
    pub(super) fn lists(&self) -> &Lists {
        &self.lists
    }

    pub(super) fn check(&self, place: &str, run: impl Fn(&str) -> Run) {
        let Self {
            asked, code, says, ..
        } = self;
        assert_eq!(findings(&run), self.findings, "{asked} {place}");
        let found = answer(asked, &run);
        assert!(
            found.0 == *code && found.1.contains(says),
            "{asked} {place}: {found:?}"
        );
    }
}

pub(super) fn all() -> Vec<Case> {
    let case = |lists, findings, asked, code, says| Case {
        lists,
        findings,
        asked,
        code,
        says,
    };
    vec![
        case(
            all_pools_disabled(),
            &[
                "critical node-without-addresses n1",
                "critical pod-without-address shop/new",
            ],
            "--pod shop/new",
            1,
            "shop/new gets no IPv4 address on n1: no pool is enabled",
        ),
        case(
            no_pool_selects_a_node(true),
            &[
                "critical node-without-addresses n3",
                "error pod-without-address shop/new",
            ],
            "--node n3",
            1,
            "the next pod gets no IPv4 address on n3: no pool selects the node",
        ),
        case(
            no_ipv6_pool_selects_a_node(),
            &["error node-without-addresses n2"],
            "--node n2",
            1,
            "the next pod gets no IPv6 address on n2: no pool selects the node",
        ),
        case(
            manual_pools_of_a_family(true),
            &[],
            "--pod app/new",
            0,
            "no IPv4 address: no pod here has one, so the nodes' CNI configuration does not ask for it (assign_ipv4)",
        ),
        case(
            pools_for_tunnels(),
            &[
                "critical node-without-addresses n1",
                "critical pod-without-address shop/new",
            ],
            "--pod shop/new",
            1,
            "shop/new gets no IPv4 address on n1: no pool is for workloads",
        ),
        case(
            full_pool(),
            &[
                "critical node-without-addresses ipv4/exhausted",
                "error pool-nearly-full 10.60.0.0/26",
            ],
            "--node n4",
            1,
            "the next pod gets no IPv4 address on n4: no address in its pools is free",
        ),
        case(
            windows_node(),
            &[
                "critical node-without-addresses win-1",
                "error pod-without-address apps/iis",
            ],
            "--pod apps/iis",
            1,
            "its only block is full, and the node uses a single block",
        ),
        case(
            pool_by_name(true),
            &[],
            "--pod team/next",
            0,
            "IPAM can assign 10.20.0.14 to team/next on n1",
        ),
        case(
            pool_by_namespace(),
            &[
                "error pool-nearly-full 10.80.0.0/28",
                "error pod-without-address annex/next",
            ],
            "--pod annex/next",
            1,
            "annex/next gets no IPv4 address on n1: no address in its pools is free",
        ),
        case(
            pool_of_namespaces(true),
            &["error pod-without-address shop/new"],
            "--pod shop/new",
            1,
            "shop/new gets no IPv4 address on n1: no pool selects the namespace",
        ),
        case(
            cooling_pool(),
            &[
                "critical node-without-addresses n1",
                "critical pod-without-address shop/new",
                "error pool-nearly-full 10.60.0.0/28",
            ],
            "--pod shop/new",
            1,
            "no address in its pools is free; 16 addresses are cooling down, the first until",
        ),
    ]
}

pub(super) fn all_pools_disabled() -> Lists {
    let mut lists = Lists::of_pool("old", "10.50.0.0/16", json!({"disabled": true}));
    lists.block("10.50.0.0/26", "n1", 2);
    lists.stuck("shop/new", "n1");
    lists
}

pub(super) fn no_pool_selects_a_node(waits: bool) -> Lists {
    let zone = |zone: &str| json!({"nodeSelector": format!("zone == '{zone}'")});
    let pools = [
        ("zone-a", pool("10.50.0.0/16", zone("a"))),
        ("zone-b", pool("10.51.0.0/16", zone("b"))),
    ];
    let nodes = [
        ("n1", json!({"zone": "a"})),
        ("n2", json!({"zone": "b"})),
        ("n3", json!({})),
    ];
    let mut lists = Lists::new(&pools, &nodes);
    lists.block("10.50.0.0/26", "n1", 2);
    lists.block("10.51.0.0/26", "n2", 1);
    if waits {
        lists.stuck("shop/new", "n3");
    }
    lists
}

fn no_ipv6_pool_selects_a_node() -> Lists {
    let v6 = pool("2001:db8:42::/48", json!({"nodeSelector": "zone == 'a'"}));
    let pools = [("v4", pool("10.50.0.0/16", json!({}))), ("v6", v6)];
    let mut lists = Lists::new(&pools, &[("n1", json!({"zone": "a"})), ("n2", json!({}))]);
    lists.block("10.50.0.0/26", "n1", 1);
    lists.block("10.50.0.64/26", "n2", 1);
    lists.block("2001:db8:42::/122", "n1", 1);
    lists
}

pub(super) fn manual_pools_of_a_family(waits: bool) -> Lists {
    let pools = [
        ("v6", pool("2001:db8:42::/48", json!({}))),
        (
            "v4-vpn",
            pool("10.77.0.0/16", json!({"assignmentMode": "Manual"})),
        ),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({})), ("n2", json!({}))]);
    lists.block("2001:db8:42:1::/122", "n1", 1);
    if waits {
        lists.stuck("app/new", "n1");
    }
    lists
}

fn pools_for_tunnels() -> Lists {
    let mut lists = Lists::of_pool("tunnels", "10.50.0.0/16", json!({"allowedUses": ["Tunnel"]}));
    lists.block("10.50.0.0/26", "n1", 1);
    lists.stuck("shop/new", "n1");
    lists
}

pub(super) fn full_pool() -> Lists {
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| (name, json!({})));
    let mut lists = Lists::new(
        &[("small", pool("10.60.0.0/26", json!({"blockSize": 28})))],
        &nodes,
    );
    for (at, (node, _)) in nodes.iter().enumerate() {
        lists.block(&format!("10.60.0.{}/28", 16 * at), node, 16);
    }
    lists
}

pub(super) fn windows_node() -> Lists {
    let windows = || json!({"kubernetes.io/os": "windows"});
    let nodes = [
        ("lin-1", json!({"kubernetes.io/os": "linux"})),
        ("win-1", windows()),
        ("win-2", windows()),
    ];
    let mut lists = Lists::new(&[("default", pool("10.42.0.0/16", json!({})))], &nodes);
    lists.settings(json!({"strictAffinity": true, "autoAllocateBlocks": true}));
    lists.block("10.42.1.0/26", "lin-1", 1);
    lists.block("10.42.2.0/26", "win-1", 64);
    lists.block("10.42.3.0/26", "win-2", 9);
    lists.stuck("apps/iis", "win-1");
    lists
}

pub(super) fn pool_by_name(asks: bool) -> Lists {
    let mut lists = pool_by_name_of("10.20.0.0/27");
    if asks {
        lists.pod("team/next", "n1", asks_for("west"), CREATED, None);
    }
    lists
}

/// The same with the CIDR of the pool.
pub(super) fn pool_by_name_of(cidr: &str) -> Lists {
    let only_named = json!({"nodeSelector": "!all()", "blockSize": 28});
    let mut lists = Lists::new(
        &[("west", pool(cidr, only_named))],
        &[("n1", json!({})), ("n2", json!({}))],
    );
    lists.block("10.20.0.0/28", "n1", 14);
    lists.block("10.20.0.16/28", "n2", 1);
    lists.annotate_pods(&asks_for("west"));
    lists
}

/// Creates the annotation of a pod or namespace that requests a pool.
pub(super) fn asks_for(pool: &str) -> Value {
    json!({"cni.projectcalico.org/ipv4pools": format!("[\"{pool}\"]")})
}

/// A namespace requests a full pool. One of its pods waits, and another pod requests a pool with room.
fn pool_by_namespace() -> Lists {
    let pools = [
        ("full", pool("10.80.0.0/28", json!({"blockSize": 28}))),
        ("room", pool("10.81.0.0/16", json!({}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.80.0.0/28", "n1", 16);
    lists.block("10.81.0.0/26", "n1", 2);
    lists.namespace("annex", json!({}), asks_for("full"));
    lists.stuck("annex/next", "n1");
    let of_any = json!({"cni.projectcalico.org/ipv4pools": "[]"});
    lists.pod("annex/any", "n1", of_any, CREATED, None);
    lists
}

/// The only pool is for team `a` and thus for the namespace tools. A pod of the namespace shop waits.
pub(super) fn pool_of_namespaces(are_read: bool) -> Lists {
    let selector = json!({"namespaceSelector": "team == 'a'"});
    let mut lists = Lists::of_pool("of-team", "10.70.0.0/16", selector);
    lists.block("10.70.0.0/26", "n1", 2);
    lists.stuck("shop/new", "n1");
    if are_read {
        lists.namespace("shop", json!({"team": "b"}), json!({}));
        lists.namespace("tools", json!({"team": "a"}), json!({}));
    }
    lists
}

/// All addresses in a node's pool were released just now.
pub(super) fn cooling_pool() -> Lists {
    let now = Timestamp::now();
    let mut lists = Lists::of_pool("small", "10.60.0.0/28", json!({"blockSize": 28}));
    lists.settings(json!({"strictAffinity": false, "autoAllocateBlocks": true, "ipCooldownSeconds": 1200}));
    lists.cooling_block("10.60.0.0/28", "n1", &format!("{now:.0}"));
    lists.stuck("shop/new", "n1");
    // The creation time of the newest pod counts as the time of the data.
    lists.pod(
        "kube-system/later",
        "",
        json!({}),
        &format!("{now:.0}"),
        Some("192.0.2.9"),
    );
    lists
}

/// The pool is full. Its only block belongs to a deleted node, and a pod on another node waits.
pub(super) fn gone_node_with_a_cooldown() -> Lists {
    let mut lists = Lists::of_pool("small", "10.60.0.0/28", json!({"blockSize": 28}));
    lists.settings(json!({"strictAffinity": false, "autoAllocateBlocks": true, "ipCooldownSeconds": 1200}));
    lists.block("10.60.0.0/28", "dead-1", 16);
    lists.delete_pods("dead-1");
    lists.stuck("shop/new", "n1");
    lists
}
