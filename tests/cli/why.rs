//! Why a pod gets no address: `check`, `explain`, `show`, on lists of kubectl.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::program::{Run, calipam};

/// Lists of kubectl, in a file of their own.
struct Lists {
    items: Vec<Value>,
    folder: tempfile::TempDir,
}

const CREATED: &str = "2026-06-01T08:00:00Z";

impl Lists {
    fn new(pools: &[(&str, Value)], nodes: &[(&str, Value)]) -> Self {
        let mut lists = Self { items: Vec::new(), folder: tempfile::tempdir().unwrap() };
        for (name, spec) in pools {
            lists.object("IPPool", name, json!({}), spec.clone());
        }
        for (name, labels) in nodes {
            lists.add(json!({"kind": "Node", "apiVersion": "v1", "spec": {},
                "metadata": {"name": name, "labels": labels, "creationTimestamp": CREATED},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}));
        }
        lists.object(
            "ClusterInformation",
            "default",
            json!({}),
            json!({"calicoVersion": "v3.31.2", "datastoreReady": true,
            "clusterGUID": "0f0e1d2c3b4a59687786951423324150", "clusterType": "k8s,bgp,kdd"}),
        );
        // Makes the clock of the lists, an hour later.
        lists.pod("kube-system/clock", "", json!({}), "2026-06-01T09:00:00Z", Some("192.0.2.9"));
        lists
    }

    fn add(&mut self, item: Value) {
        self.items.push(item);
    }

    fn object(&mut self, kind: &str, name: &str, labels: Value, spec: Value) {
        self.add(json!({"kind": kind, "apiVersion": "crd.projectcalico.org/v1", "spec": spec,
            "metadata": {"name": name, "labels": labels, "creationTimestamp": CREATED}}));
    }

    fn pod(&mut self, name: &str, node: &str, annotations: Value, created: &str, address: Option<&str>) {
        let (namespace, name) = name.split_once('/').unwrap();
        let mut annotations = annotations;
        if let Some(address) = address {
            // As the CNI plugin leaves it.
            annotations["cni.projectcalico.org/podIPs"] = address.into();
            annotations["cni.projectcalico.org/podIP"] = address.into();
        }
        let status = match address {
            Some(address) => json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}),
            None => json!({"phase": "Pending"}),
        };
        self.add(json!({"kind": "Pod", "apiVersion": "v1", "status": status,
            "spec": {"nodeName": node, "hostNetwork": namespace == "kube-system"},
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "creationTimestamp": created}}));
    }

    fn stuck(&mut self, name: &str, node: &str) {
        self.pod(name, node, json!({}), CREATED, None);
    }

    /// A block of a node with its first addresses in use by pods.
    fn block(&mut self, cidr: &str, node: &str, taken: usize) {
        let net: calipam_model::IpNet = cidr.parse().unwrap();
        let size = calipam_model::cidr::size(net) as usize;
        let name = cidr.replace([':', '.', '/'], "-");
        let record = |at: usize| {
            let id = format!("{:0>64}", format!("{:x}{at:x}", name.len()));
            json!({"handle_id": format!("k8s-pod-network.{id}{name}"),
                "secondary": {"namespace": "apps", "node": node, "pod": format!("{name}-{at}"), "timestamp": "2026-05-20 10:12:00 +0000 UTC"}})
        };
        let allocations: Vec<Value> =
            (0..size).map(|at| if at < taken { json!(at) } else { Value::Null }).collect();
        self.object("IPAMBlock", &name, json!({}), json!({"cidr": cidr, "affinity": format!("host:{node}"),
            "allocations": allocations, "unallocated": (taken..size).collect::<Vec<_>>(),
            "attributes": (0..taken).map(record).collect::<Vec<_>>(), "deleted": false, "strictAffinity": false}));
        self.object(
            "BlockAffinity",
            &format!("{node}-{name}"),
            json!({}),
            json!({"state": "confirmed", "node": node, "cidr": cidr, "deleted": "false", "type": "host"}),
        );
        for at in 0..taken {
            let address = calipam_model::cidr::address_at(net, at as u32).to_string();
            self.pod(&format!("apps/{name}-{at}"), node, json!({}), CREATED, Some(&address));
        }
    }

    fn path(&self) -> PathBuf {
        let path = self.folder.path().join("cluster.json");
        let list = json!({"kind": "List", "apiVersion": "v1", "items": self.items});
        std::fs::write(&path, list.to_string()).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Run {
        calipam(&[arguments, &["--datastore", self.path().to_str().unwrap()]].concat())
    }

    /// `severity code subject: message` of findings about addresses that cannot be had.
    fn findings(&self) -> Vec<String> {
        let rules = "node-without-addresses,pod-without-address,pool-nearly-full";
        let report = self.run(&["check", "--rule", rules, "-o", "json"]).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|f| [&f["severity"], &f["code"], &f["subject"]["name"]].map(text).join(" ")).collect()
    }

    fn answer(&self, arguments: &[&str]) -> (i32, String) {
        let run = self.run(&[&["explain"], arguments].concat());
        (run.code, run.stdout.lines().next().unwrap_or_default().to_owned())
    }
}

fn pool(cidr: &str, more: Value) -> Value {
    let mut spec = json!({"cidr": cidr, "blockSize": if cidr.contains(':') { 122 } else { 26 }, "nodeSelector": "all()",
        "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "vxlanMode": "Always", "ipipMode": "Never"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Cases 19b and 19.
#[test]
fn no_pool_is_enabled_or_selects_the_node() {
    let mut lists =
        Lists::new(&[("old", pool("10.50.0.0/16", json!({"disabled": true})))], &[("n1", json!({}))]);
    lists.block("10.50.0.0/26", "n1", 2);
    lists.stuck("shop/new", "n1");
    assert_eq!(
        lists.findings(),
        ["critical node-without-addresses n1", "critical pod-without-address shop/new"]
    );
    assert_eq!(
        lists.answer(&["--pod", "shop/new"]),
        (1, "shop/new gets no IPv4 address on n1: no pool is enabled".to_owned())
    );
    let run = lists.run(&["explain", "--node", "n1"]);
    assert!(
        run.stdout.contains("`calicoctl patch ippool old -p '{\"spec\":{\"disabled\":false}}'`"),
        "{run:?}"
    );
    assert!(run.stdout.contains("Calico says: cannot find a qualified ippool"), "{run:?}");
    assert_eq!(lists.run(&["check", "--fail-on", "error"]).code, 1);
    let shown = lists.run(&["show", "--pod", "shop/new"]);
    assert!(shown.stderr.contains("shop/new gets no IPv4 address on n1: no pool is enabled"), "{shown:?}");
    assert!(shown.stderr.contains("explain --pod shop/new"), "{shown:?}");
    let nodes = lists.run(&["show", "--nodes"]);
    assert!(nodes.stdout.contains("ipv4: no pool is enabled"), "{nodes:?}");
    let metrics = lists.run(&["check", "-o", "prometheus"]);
    for expected in ["calipam_nodes_without_addresses 1", "calipam_pods_without_address 1"] {
        assert!(metrics.stdout.contains(expected), "{metrics:?}");
    }

    let zone = |zone: &str| json!({"nodeSelector": format!("zone == '{zone}'")});
    let pools = [("zone-a", pool("10.50.0.0/16", zone("a"))), ("zone-b", pool("10.51.0.0/16", zone("b")))];
    let nodes = [("n1", json!({"zone": "a"})), ("n2", json!({"zone": "b"})), ("n3", json!({}))];
    let mut lists = Lists::new(&pools, &nodes);
    lists.block("10.50.0.0/26", "n1", 2);
    lists.block("10.51.0.0/26", "n2", 1);
    assert_eq!(lists.findings(), ["error node-without-addresses n3"]);
    lists.stuck("shop/new", "n3");
    assert_eq!(
        lists.findings(),
        ["critical node-without-addresses n3", "error pod-without-address shop/new"]
    );
    let (code, sentence) = lists.answer(&["--node", "n3"]);
    assert_eq!(
        (code, sentence.as_str()),
        (1, "the next pod gets no IPv4 address on n3: no pool selects the node")
    );
    assert_eq!(lists.answer(&["--node", "n1"]).0, 0);
}

/// Case 07: which families new pods ask for is not known, and a pod waits.
#[test]
fn a_family_has_manual_pools_only() {
    let pools = [
        ("v6", pool("2001:db8:42::/48", json!({}))),
        ("v4-vpn", pool("10.77.0.0/16", json!({"assignmentMode": "Manual"}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({})), ("n2", json!({}))]);
    lists.block("2001:db8:42:1::/122", "n1", 1);
    assert_eq!(lists.findings(), [""; 0], "IPv4 addresses are had by name");
    lists.stuck("app/new", "n1");
    assert_eq!(lists.findings(), ["error node-without-addresses n1"]);
    let (code, sentence) = lists.answer(&["--pod", "app/new"]);
    assert_eq!(code, 0);
    assert!(
        sentence.contains("an IPv4 address, if it asks for one, it does not get: every pool is Manual"),
        "{sentence}"
    );
}

/// Case 11.
#[test]
fn pools_that_pods_ask_for_by_name_ignore_selectors() {
    let only_named = json!({"nodeSelector": "!all()", "blockSize": 28});
    let mut lists =
        Lists::new(&[("west", pool("10.20.0.0/27", only_named))], &[("n1", json!({})), ("n2", json!({}))]);
    lists.block("10.20.0.0/28", "n1", 14);
    lists.block("10.20.0.16/28", "n2", 1);
    assert_eq!(lists.findings(), [""; 0]);
    let json = lists.run(&["show", "-o", "json"]).json();
    assert_eq!((&json["pools"][0]["allocatable"], &json["pools"][0]["byName"]), (&json!(0), &json!(17)));
    assert!(lists.run(&["show"]).stdout.contains("west: 17 for pods that name it, none for others"));
    let annotation = json!({"cni.projectcalico.org/ipv4pools": "[\"west\"]"});
    lists.pod("team/next", "n1", annotation.clone(), CREATED, None);
    assert_eq!(lists.findings(), [""; 0], "it gets one of n1's");
    let (code, sentence) = lists.answer(&["--pod", "team/next"]);
    assert_eq!(
        (code, sentence.as_str()),
        (0, "nothing of IPAM stands in the way: team/next gets 10.20.0.14 on n1")
    );
    let none = json!({"cni.projectcalico.org/ipv4pools": "[\"nowhere\"]"});
    lists.pod("team/wrong", "n1", none, CREATED, None);
    assert!(
        lists.answer(&["--pod", "team/wrong"]).1.contains("asks for the pool nowhere, which does not exist")
    );
    let fixed = json!({"cni.projectcalico.org/ipAddrs": "[\"10.20.0.1\"]"});
    lists.pod("team/fixed", "n1", fixed, CREATED, None);
    let (code, sentence) = lists.answer(&["--pod", "team/fixed"]);
    assert!(code == 1 && sentence.contains("10.20.0.1 is taken by apps/10-20-0-0-28-1"), "{sentence}");
}

/// Case 21.
#[test]
fn a_windows_node_has_one_block() {
    let windows = || json!({"kubernetes.io/os": "windows"});
    let nodes = [("lin-1", json!({"kubernetes.io/os": "linux"})), ("win-1", windows()), ("win-2", windows())];
    let mut lists = Lists::new(&[("default", pool("10.42.0.0/16", json!({})))], &nodes);
    lists.object(
        "IPAMConfig",
        "default",
        json!({}),
        json!({"strictAffinity": true, "autoAllocateBlocks": true}),
    );
    lists.block("10.42.1.0/26", "lin-1", 1);
    lists.block("10.42.2.0/26", "win-1", 64);
    lists.block("10.42.3.0/26", "win-2", 9);
    lists.stuck("apps/iis", "win-1");
    assert_eq!(
        lists.findings(),
        ["critical node-without-addresses win-1", "error pod-without-address apps/iis"]
    );
    let (code, sentence) = lists.answer(&["--pod", "apps/iis"]);
    assert!(
        code == 1 && sentence.ends_with("its one block is full, and a Windows node gets no second one"),
        "{sentence}"
    );
    let nodes = lists.run(&["show", "--nodes"]).stdout;
    let line = nodes.lines().find(|line| line.starts_with("win-1")).unwrap();
    assert!(line.contains("0 of 1 ipv4"), "{nodes}");
}

/// A total outage is an error, be it foreseen or not.
#[test]
fn the_pool_is_full() {
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| (name, json!({})));
    let mut lists = Lists::new(&[("small", pool("10.60.0.0/26", json!({"blockSize": 28})))], &nodes);
    for (at, (node, _)) in nodes.iter().enumerate() {
        lists.block(&format!("10.60.0.{}/28", 16 * at), node, 16);
    }
    assert_eq!(
        lists.findings(),
        ["critical node-without-addresses ipv4/exhausted", "error pool-nearly-full 10.60.0.0/26"]
    );
    assert_eq!(lists.run(&["check", "--fail-on", "error"]).code, 1);
    let nodes = lists.run(&["show", "--nodes"]).stdout;
    assert!(nodes.contains("0 of 20 ipv4") && nodes.contains("no address of its pools is free"), "{nodes}");
}

#[test]
fn pods_that_ipam_does_not_keep_waiting() {
    let mut lists = Lists::new(&[("all", pool("10.60.0.0/24", json!({})))], &[("n1", json!({}))]);
    lists.block("10.60.0.0/26", "n1", 1);
    lists.stuck("shop/volume", "n1");
    lists.stuck("shop/unbound", "");
    lists.stuck("shop/nowhere", "n9");
    lists.pod("kube-system/host", "n1", json!({}), CREATED, None);
    assert_eq!(lists.findings(), [""; 0]);
    for (pod, code, says) in [
        ("shop/volume", 0, "nothing of IPAM stands in the way: shop/volume gets 10.60.0.1 on n1"),
        ("shop/unbound", 0, "shop/unbound is not bound to a node yet"),
        ("shop/nowhere", 1, "shop/nowhere gets no address: Calico knows no node n9"),
        ("kube-system/host", 0, "uses the network of its node"),
        ("apps/10-60-0-0-26-0", 0, "has 10.60.0.0 on n1"),
    ] {
        let found = lists.answer(&["--pod", pod]);
        assert!(found.0 == code && found.1.contains(says), "{found:?}");
    }
    let described = lists.run(&["explain", "--pod", "shop/volume"]).stdout;
    assert!(described.contains("kubectl describe pod --namespace shop volume"), "{described}");
    let gone = lists.run(&["explain", "--pod", "shop/volumes"]);
    assert!(gone.code != 0 && gone.stderr.contains("shop/volume"), "{gone:?}");
}
