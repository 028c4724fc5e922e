//! States that users reported to Calico, rebuilt with data of our own: on lists of kubectl, on an API server and on etcd.

use calipam_testkit::kube::{Flavour, Kinds, lease};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cases::{asks_for, no_pool_selects_a_node};
use super::lists::{CREATED, Lists, pool};
use crate::cli::kube_cluster::connection;
use crate::cli::program::{self, Run, calipam};

/// The rules about addresses and requests. The states have no handle objects.
const RULES: &str = "node-without-addresses,pod-without-address,pool-nearly-full,pool-smaller-than-block,leaked-address,duplicate-address,owner-mismatch,unallocated-in-use,unrecorded-address,overlapping-pools";

/// A state with the expected findings, except information, and commands with exit code and a part of the output.
struct Case {
    name: &'static str,
    lists: Lists,
    findings: &'static [&'static str],
    answers: &'static [(&'static str, i32, &'static str)],
    /// The places besides lists.
    also_on: &'static [Place],
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Kubernetes,
    /// An etcd with pods from Kubernetes.
    Etcd,
}

impl Case {
    /// Lists what differs from the expectation.
    fn failures(&self, place: &str, run: impl Fn(&str) -> Run) -> Vec<String> {
        let report = run(&format!("check --rule {RULES} -o json --settle 0")).json();
        let found: Vec<String> = program::findings(&report, &["severity", "code", "name"]);
        let found: Vec<&String> = found
            .iter()
            .filter(|finding| !finding.starts_with("info "))
            .collect();
        let mut failures = Vec::new();
        if found != self.findings {
            failures.push(format!(
                "{}, {place}: {found:?}, expected {:?}",
                self.name, self.findings
            ));
        }
        for (line, code, says) in self.answers {
            let run = run(line);
            if run.code != *code || !run.stdout.contains(says) {
                failures.push(format!("{}, {place}: {says:?} is not in {run:?}", self.name));
            }
        }
        failures
    }
}

fn cases() -> Vec<Case> {
    vec![
        fixed_address_of_an_earlier_sandbox(),
        fixed_address_that_the_plugin_releases(),
        blank_annotations_of_running_pods(),
        pool_smaller_than_a_block(),
        pods_with_one_of_two_families(),
        one_family_by_annotation(),
        pool_that_is_not_allocatable(),
        pool_for_some_pods_that_others_fill("v3.24.1"),
        pool_for_some_pods_that_others_fill("v3.31.2"),
        annotations_that_cannot_be_read(),
        pods_after_a_reboot(),
        pools_that_the_configuration_could_name(),
        pods_of_another_plugin(),
        floating_addresses(),
        names_of_no_pool(),
    ]
}

#[test]
fn each_case_wherever_the_data_is() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let kubernetes = |line: &str| calipam(&format!("{line} {}", connection(&server)));
    let kubeconfig = server.kubeconfig();
    let etcd = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        server.etcd().endpoint(),
        kubeconfig.display()
    );
    let mut failures = Vec::new();
    for case in cases() {
        failures.extend(case.failures("lists", |line| case.lists.run(line)));
        if !case.also_on.is_empty() {
            case.lists.write_to(&server);
        }
        for place in case.also_on {
            failures.extend(match place {
                Place::Kubernetes => case.failures("API server", kubernetes),
                Place::Etcd => case.failures("etcd", |line| calipam(&format!("{line} {etcd}"))),
            });
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Annotations of a pod whose sandbox was torn down, as they are named in [`Lists::block`] for a pod at an ordinal.
fn torn_down(more: Value) -> Value {
    let mut annotations = json!({"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": "",
        "cni.projectcalico.org/containerID": SANDBOX});
    annotations
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    annotations
}

const SANDBOX: &str = "408373c78a71aea9a5dc80108dae9185a9faa6402c5b959b98e817ac7e398308";

/// After a reboot, the kubelet says that the pod runs, and that it has no sandbox.
fn rebooted(pod: &mut Value) {
    pod["status"] = json!({"phase": "Running", "conditions": [
        {"type": "PodReadyToStartContainers", "status": "False"}, {"type": "Ready", "status": "False"}]});
}

fn ready() -> Value {
    json!([{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Ready", "status": "True"}])
}

/// A pod that names its address waits for a new sandbox, and its earlier sandbox still holds the address.
fn of_earlier_sandbox() -> Lists {
    let fixed = pool("90.0.0.0/24", json!({"nodeSelector": "!all()"}));
    let pools = [("default", pool("10.42.0.0/16", json!({}))), ("fixed", fixed)];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.42.0.0/26", "n1", 1);
    lists.owned_block("90.0.0.0/26", "n1", &[(1, "tenant/web", SANDBOX)]);
    let asks = json!({"cni.projectcalico.org/ipAddrs": r#"["90.0.0.1"]"#});
    lists.pod("tenant/web", "n1", torn_down(asks), CREATED, None);
    lists.edit_pod("tenant/web", rebooted);
    lists
}

fn fixed_address_of_an_earlier_sandbox() -> Case {
    Case {
        name: "fixed address of an earlier sandbox",
        lists: of_earlier_sandbox(),
        findings: &[
            "error leaked-address 90.0.0.1",
            "error pod-without-address tenant/web",
        ],
        answers: &[
            (
                "explain --pod tenant/web",
                1,
                "tenant/web gets no IPv4 address on n1: 90.0.0.1 is still recorded for an earlier container",
            ),
            ("explain --pod tenant/web", 1, "`calipam release --ip 90.0.0.1"),
            (
                "release --ip 90.0.0.1 --dry-run",
                0,
                "tenant/web, whose sandbox was torn down",
            ),
        ],
        also_on: &[Place::Kubernetes],
    }
}

/// As long as the pod's annotation names the address, the plugin releases it before it asks for it.
fn fixed_address_that_the_plugin_releases() -> Case {
    let mut lists = of_earlier_sandbox();
    lists.edit_pod("tenant/web", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = "90.0.0.1/32".into();
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIPs"] = "90.0.0.1/32".into();
    });
    Case {
        name: "fixed address that the plugin releases",
        lists,
        findings: &[],
        answers: &[(
            "explain --pod tenant/web",
            0,
            "IPAM can assign 90.0.0.1 to tenant/web on n1",
        )],
        also_on: &[],
    }
}

/// The DEL of an earlier pod of the same name blanked the annotations of pods that run.
fn blank_annotations_of_running_pods() -> Case {
    let mut lists = Lists::of_pool("default", "172.30.0.0/16", json!({}));
    lists.owned_block(
        "172.30.1.0/26",
        "n1",
        &[(21, "db/leaving", "83076b"), (22, "db/runs", SANDBOX)],
    );
    for (name, address) in [("db/leaving", "172.30.1.21"), ("db/runs", "172.30.1.22")] {
        lists.pod(name, "n1", json!({}), CREATED, Some(address));
        lists.edit_pod(name, |pod| {
            pod["metadata"]["annotations"] = torn_down(json!({}));
            pod["status"]["conditions"] = ready();
        });
    }
    lists.edit_pod("db/leaving", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"] = "83076b".into();
        pod["metadata"]["deletionTimestamp"] = format!("{:.0}", Timestamp::now()).into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    });
    Case {
        name: "blank annotations of running pods",
        lists,
        findings: &[],
        answers: &[
            (
                "explain --pod db/leaving",
                0,
                "it keeps 172.30.1.21 on n1 until its containers have ended",
            ),
            (
                "explain --pod db/runs",
                0,
                "db/runs has 172.30.1.22 on n1; Calico's annotation with it is blank",
            ),
            ("release --leaked --dry-run", 0, "Nothing to do"),
        ],
        also_on: &[Place::Kubernetes],
    }
}

fn pool_smaller_than_a_block() -> Case {
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

fn pods_with_one_of_two_families() -> Case {
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
fn one_family_by_annotation() -> Case {
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

fn pool_that_is_not_allocatable() -> Case {
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
fn pool_for_some_pods_that_others_fill(version: &str) -> Case {
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

fn annotations_that_cannot_be_read() -> Case {
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

/// Other pods took the addresses of a small pool while a node was off. Its pods run, according to the kubelet.
fn pods_after_a_reboot() -> Case {
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

/// The nodes' configuration could name the pool that was disabled.
fn pools_that_the_configuration_could_name() -> Case {
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

/// A cluster moved to Calico with the range of the plugin before.
fn pods_of_another_plugin() -> Case {
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
            ("check", 1, "`kubectl delete pod --namespace old taken`"),
            (
                "check",
                1,
                "another CNI plugin gave 2 pods an address of an enabled pool",
            ),
        ],
        also_on: &[Place::Kubernetes],
    }
}

fn floating_addresses() -> Case {
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

fn names_of_no_pool() -> Case {
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

/// Everybody who counts addresses sees an outage: `check`, `explain`, `show` and the metrics.
#[test]
fn a_selector_that_matches_no_node_is_an_outage_everywhere() {
    let mut lists = no_pool_selects_a_node(false);
    lists.edit_each("IPPool", |pool| {
        pool["spec"]["nodeSelector"] = "zone == 'c'".into()
    });
    lists
        .run("check")
        .exits(1)
        .prints("critical  2 nodes get no further address: no pool selects the node");
    lists
        .run("explain --node n1")
        .exits(1)
        .prints("no pool selects the node");
    lists
        .run("show")
        .prints("zone-a: only pods that name the pool can get 3,838 of its 65,534 free addresses");
    lists
        .run("check -o prometheus")
        .prints("calipam_ippool_allocatable{cidr=\"10.50.0.0/16\",ippool=\"zone-a\"} 0")
        .prints("calipam_nodes_without_addresses 2");
}

/// Pods with the annotations of the Kubernetes datastore, beside an etcd that holds pools only.
#[test]
fn an_etcd_that_is_not_the_clusters() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let mut lists = Lists::of_pool("default", "192.168.0.0/16", json!({}));
    lists.block("10.244.1.0/26", "n1", 2);
    lists.edit_each("Pod", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"] = SANDBOX.into();
    });
    lists.stuck("shop/new", "n1");
    lists.write_to(&server);
    server
        .etcd()
        .with_client(async |mut client| {
            let prefix = Some(etcd_client::DeleteOptions::new().with_prefix());
            for range in ["/calico/ipam/", "/calico/resources/v3/projectcalico.org/nodes/"] {
                client.delete(range, prefix.clone()).await?;
            }
            Ok(())
        })
        .unwrap();
    let kubeconfig = server.kubeconfig();
    let etcd = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        server.etcd().endpoint(),
        kubeconfig.display()
    );
    let run = |line: &str| calipam(&format!("{line} {etcd}"));
    run("check --settle 0")
        .exits(3)
        .says("is not the cluster that uses this etcd")
        .says("or `--datastore kubernetes` if Calico keeps its data there");
}
