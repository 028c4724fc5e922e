//! LoadBalancer services in `check`, `explain` and `show`: on lists of kubectl, on an API server and on etcd.

use calipam_testkit::kube::{Flavour, Kinds, lease};
use serde_json::{Value, json};

use super::lists::{Lists, pool};
use crate::cli::kube_cluster::connection;
use crate::cli::program::{self, Run, calipam};

const RULES: &str = "service-without-address,service-address-extra,unrecorded-address,block-outside-pools,in-use-outside-pools,leaked-address,unallocated-in-use";

const NOT_SERVED: &str = "is not a LoadBalancer service, so it needs no address";

/// A state, the expected findings about services, and services with the exit code and the answer of `explain`.
struct Case {
    lists: Lists,
    findings: &'static [&'static str],
    answers: &'static [(&'static str, i32, &'static str)],
}

impl Case {
    fn check(&self, place: &str, run: impl Fn(&str) -> Run) {
        let report = run(&format!("check --rule {RULES} -o json --settle 0")).json();
        let found: Vec<String> = program::findings(&report, &["severity", "code", "name"]);
        assert_eq!(found, self.findings, "{place}: {report}");
        for (service, code, says) in self.answers {
            let run = run(&format!("explain --service {service}"));
            assert!(
                run.code == *code && run.stdout.contains(says),
                "{place} {service} {says}: {run:?}"
            );
        }
    }
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
    for case in [
        one_family_is_missing(),
        a_field_that_this_version_does_not_read(),
        a_field_that_this_version_reads(),
        the_last_pool_was_deleted(),
        an_address_of_another_load_balancer(),
        the_controller_is_off(),
        another_load_balancer_is_at_work(),
        requests_that_cannot_be_met(),
        one_family_is_full_and_the_other_refused(),
        services_of_other_types(),
        an_address_that_is_not_recorded(),
        a_service_that_was_created_again(&["198.51.100.1"]),
        a_service_that_was_created_again(&["198.51.100.0"]),
    ] {
        case.check("lists", |line| case.lists.run(line));
        case.lists.write_to(&server);
        case.check("API server", kubernetes);
        case.check("etcd", |line| calipam(&format!("{line} {etcd}")));
    }
}

fn for_services(cidr: &str) -> Value {
    pool(
        cidr,
        json!({"allowedUses": ["LoadBalancer"], "vxlanMode": "Never"}),
    )
}

fn cluster(pools: &[(&str, Value)]) -> Lists {
    let mut lists = Lists::new(pools, &[("n1", json!({}))]);
    lists.controllers(json!({"loadBalancer": {"assignIPs": "AllServices"}}));
    lists
}

fn dual_stack() -> Value {
    json!({"clusterIP": "fd00:1::7", "clusterIPs": ["fd00:1::7", "10.96.0.9"], "ipFamilies": ["IPv6", "IPv4"],
        "ipFamilyPolicy": "RequireDualStack"})
}

/// The controller was interrupted after the first of two addresses.
fn one_family_is_missing() -> Case {
    let mut lists = cluster(&[
        ("lb4", for_services("198.51.100.0/24")),
        ("lb6", for_services("2001:db8:9::/112")),
    ]);
    lists.service_block("198.51.100.128/26", &["istio-ingress/test-istio", "shop/half"]);
    lists.service_block("2001:db8:9::9280/122", &["istio-ingress/test-istio"]);
    let both = ["198.51.100.128", "2001:db8:9::9280"];
    lists.service("istio-ingress/test-istio", dual_stack(), json!({}), &both);
    lists.service("shop/half", dual_stack(), json!({}), &["198.51.100.129"]);
    Case {
        lists,
        findings: &["warning service-without-address shop/half"],
        answers: &[
            (
                "istio-ingress/test-istio",
                0,
                "has 198.51.100.128, 2001:db8:9::9280",
            ),
            (
                "shop/half",
                1,
                "shop/half has 198.51.100.129; shop/half gets no IPv6 address: the controller asks for no",
            ),
            (
                "shop/half",
                1,
                r#"projectcalico.org/loadBalancerIPs='["198.51.100.129","IPV6-ADDRESS"]'"#,
            ),
        ],
    }
}

fn pinned(version: &str) -> Lists {
    let mut lists = Lists::new(&[("lb", for_services("198.51.100.0/24"))], &[("n1", json!({}))]);
    lists.controllers(json!({"loadBalancer": {"assignIPs": "RequestedServicesOnly"}}));
    lists.version(version);
    lists.service_block("198.51.100.0/26", &["shop/asks"]);
    let asks = json!({"projectcalico.org/ipv4pools": "[\"lb\"]"});
    lists.service("shop/asks", json!({}), asks, &["198.51.100.0"]);
    lists.service(
        "shop/pinned",
        json!({"loadBalancerIP": "198.51.100.20"}),
        json!({}),
        &[],
    );
    lists
}

fn a_field_that_this_version_does_not_read() -> Case {
    Case {
        lists: pinned("v3.32.1"),
        findings: &[],
        answers: &[
            ("shop/asks", 0, "shop/asks has 198.51.100.0"),
            (
                "shop/pinned",
                0,
                "Calico does not serve shop/pinned: assignIPs is RequestedServicesOnly",
            ),
            (
                "shop/pinned",
                0,
                "does not read its spec.loadBalancerIP 198.51.100.20",
            ),
            (
                "shop/pinned",
                0,
                r#"projectcalico.org/loadBalancerIPs='["198.51.100.20"]'"#,
            ),
        ],
    }
}

fn a_field_that_this_version_reads() -> Case {
    Case {
        lists: pinned("v3.32.2"),
        findings: &["warning service-without-address shop/pinned"],
        answers: &[("shop/pinned", 0, "IPAM can assign 198.51.100.20 to shop/pinned")],
    }
}

fn the_last_pool_was_deleted() -> Case {
    let mut lists = cluster(&[("default", pool("10.52.0.0/16", json!({})))]);
    lists.version("v3.30.0");
    lists.block("10.52.1.0/26", "n1", 1);
    lists.service_block("198.51.100.0/26", &["shop/front", "shop/api"]);
    lists.service("shop/front", json!({}), json!({}), &["198.51.100.0"]);
    lists.service(
        "shop/api",
        json!({"loadBalancerClass": "calico"}),
        json!({}),
        &["198.51.100.1"],
    );
    Case {
        lists,
        findings: &[
            "error in-use-outside-pools 198.51.100.0",
            "error in-use-outside-pools 198.51.100.1",
            "warning block-outside-pools 198.51.100.0/26",
        ],
        answers: &[
            (
                "shop/front",
                1,
                "no pool is for LoadBalancer services; the controller releases 198.51.100.0",
            ),
            (
                "shop/front",
                1,
                r#"calicoctl create -f - <<< '{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"NAME"},"spec":{"cidr":"CIDR","allowedUses":["LoadBalancer"]}}'`"#,
            ),
        ],
    }
}

fn an_address_of_another_load_balancer() -> Case {
    let mut lists = cluster(&[
        ("pool-1", pool("100.64.0.0/10", json!({}))),
        ("pool-2", pool("172.16.0.0/12", json!({}))),
    ]);
    lists.block("100.64.1.0/26", "n1", 2);
    lists.service(
        "edge/nat",
        json!({"loadBalancerClass": "example.com/nat"}),
        json!({}),
        &["100.64.200.9"],
    );
    Case {
        lists,
        findings: &["warning unrecorded-address 100.64.200.9"],
        answers: &[(
            "edge/nat",
            0,
            "Calico does not serve edge/nat: its loadBalancerClass is \"example.com/nat\"",
        )],
    }
}

/// The controller keeps the address of an earlier service of the same name, and puts either address into the status.
fn a_service_that_was_created_again(ingress: &[&str]) -> Case {
    let mut lists = cluster(&[("lb", for_services("198.51.100.0/24"))]);
    lists.service_block("198.51.100.0/26", &["shop/web", "shop/web"]);
    lists.edit_each("IPAMBlock", |block| {
        let mut earlier = block["spec"]["attributes"][0].clone();
        earlier["handle_id"] = "lb-earlier".into();
        let records = block["spec"]["attributes"].as_array_mut().unwrap();
        records.push(earlier);
        let position = records.len() - 1;
        block["spec"]["allocations"][0] = position.into();
    });
    lists.service("shop/web", json!({}), json!({}), ingress);
    if ingress == ["198.51.100.0"] {
        return Case {
            lists,
            findings: &["warning service-address-extra 198.51.100.1"],
            answers: &[
                (
                    "shop/web",
                    0,
                    "198.51.100.0 is still recorded for an earlier service of this name",
                ),
                (
                    "shop/web",
                    0,
                    "delete the service, wait until 198.51.100.0 is free",
                ),
            ],
        };
    }
    Case {
        lists,
        findings: &["warning service-address-extra 198.51.100.0"],
        answers: &[
            (
                "shop/web",
                0,
                "shop/web has 198.51.100.1; 198.51.100.0 is still recorded for an earlier service of this name",
            ),
            ("shop/web", 0, "`calipam release --ip 198.51.100.0"),
        ],
    }
}

/// The status lists an address of which Calico has no record, for example because a backup was restored.
fn an_address_that_is_not_recorded() -> Case {
    let mut lists = cluster(&[("lb", for_services("198.51.100.0/24"))]);
    lists.service_block("198.51.100.0/26", &["shop/web"]);
    lists.service(
        "shop/web",
        json!({}),
        json!({}),
        &["198.51.100.0", "198.51.100.9"],
    );
    lists.service("shop/lost", json!({}), json!({}), &["198.51.100.7"]);
    lists.service(
        "shop/broken",
        json!({}),
        json!({"projectcalico.org/ipv4pools": "lb"}),
        &["198.51.100.8"],
    );
    Case {
        lists,
        findings: &[
            "critical unallocated-in-use 198.51.100.7",
            "critical unallocated-in-use 198.51.100.8",
            "critical unallocated-in-use 198.51.100.9",
        ],
        answers: &[
            (
                "shop/web",
                0,
                "shop/web has 198.51.100.0; the controller removes 198.51.100.9 from its status: not recorded for the service",
            ),
            (
                "shop/lost",
                0,
                "IPAM can assign 198.51.100.1 to shop/lost; the controller removes 198.51.100.7 from its status: not",
            ),
            (
                "shop/broken",
                1,
                "the controller cannot read projectcalico.org/ipv4pools; its status lists 198.51.100.8, not recorded",
            ),
        ],
    }
}

#[test]
fn a_service_that_was_created_again_is_a_cause() {
    let says = "1 service was deleted and created again at once, and Calico's controller kept the earlier addresses: shop/web";
    let released = a_service_that_was_created_again(&["198.51.100.1"]).lists;
    released
        .run("check")
        .prints(says)
        .prints("`calipam release --ip 198.51.100.0");
    // The address that the status does not list is the service's own.
    let listed = a_service_that_was_created_again(&["198.51.100.0"]).lists;
    let run = listed.run("check").prints(says);
    assert!(!run.stdout.contains("calipam release --ip"), "{}", run.stdout);
}

/// A pool for services exists, and nobody gives addresses.
fn the_controller_is_off() -> Case {
    let mut lists = Lists::new(&[("lb", for_services("198.51.100.0/24"))], &[("n1", json!({}))]);
    lists.version("v3.32.1");
    lists.controllers(json!({}));
    lists.service("shop/web", json!({}), json!({}), &[]);
    lists.service(
        "shop/cloud",
        json!({"loadBalancerClass": "example.com/nlb"}),
        json!({}),
        &[],
    );
    Case {
        lists,
        findings: &["warning service-without-address shop/web"],
        answers: &[
            (
                "shop/web",
                1,
                "gets no address from Calico: KubeControllersConfiguration has no loadBalancer section",
            ),
            (
                "shop/web",
                1,
                "calicoctl patch kubecontrollersconfiguration default",
            ),
        ],
    }
}

fn another_load_balancer_is_at_work() -> Case {
    let mut case = the_controller_is_off();
    case.lists
        .service("shop/old", json!({}), json!({}), &["203.0.113.7"]);
    Case {
        findings: &[],
        answers: &[("shop/old", 0, "gets no address from Calico")],
        ..case
    }
}

fn requests_that_cannot_be_met() -> Case {
    let mut lists = cluster(&[
        ("lb", for_services("198.51.100.0/24")),
        ("pods", pool("10.52.0.0/16", json!({}))),
        (
            "off",
            pool(
                "198.18.0.0/24",
                json!({"allowedUses": ["LoadBalancer"], "disabled": true}),
            ),
        ),
    ]);
    lists.service_block("198.51.100.0/26", &["shop/first"]);
    lists.service("shop/first", json!({}), json!({}), &["198.51.100.0"]);
    let annotated = |lists: &mut Lists, name: &str, annotation: &str, value: &str| {
        let annotations = json!({format!("projectcalico.org/{annotation}"): value});
        lists.service(name, json!({}), annotations, &[]);
    };
    annotated(&mut lists, "shop/taken", "loadBalancerIPs", r#"["198.51.100.0"]"#);
    annotated(&mut lists, "shop/plain", "loadBalancerIPs", "198.51.100.7");
    annotated(&mut lists, "shop/off", "ipv4pools", r#"["off"]"#);
    annotated(&mut lists, "shop/pods", "ipv4pools", r#"["10.52.0.0/16"]"#);
    annotated(&mut lists, "shop/none", "ipv4pools", r#"["nowhere"]"#);
    annotated(&mut lists, "shop/empty", "ipv4pools", "[]");
    Case {
        lists,
        findings: &[
            "warning service-without-address shop/empty",
            "warning service-without-address shop/none",
            "warning service-without-address shop/off",
            "warning service-without-address shop/plain",
            "warning service-without-address shop/pods",
            "warning service-without-address shop/taken",
        ],
        answers: &[
            ("shop/taken", 1, "198.51.100.0 is taken by service shop/first"),
            (
                "shop/plain",
                1,
                "the controller cannot read projectcalico.org/loadBalancerIPs",
            ),
            (
                "shop/plain",
                1,
                "Calico says: invalid character '.' after top-level value",
            ),
            ("shop/off", 1, "it asks for the pool off, but it is disabled"),
            ("shop/pods", 1, "no pool is for LoadBalancer services"),
            (
                "shop/none",
                1,
                r#"Calico says: error parsing pool "nowhere": invalid CIDR address: nowhere"#,
            ),
            (
                "shop/empty",
                1,
                "assigns and releases the address of shop/empty again and again",
            ),
        ],
    }
}

/// The controller logs the error of the second family, although the first one already gets no address.
fn one_family_is_full_and_the_other_refused() -> Case {
    let single = json!({"allowedUses": ["LoadBalancer"], "vxlanMode": "Never", "blockSize": 32});
    let elsewhere =
        json!({"allowedUses": ["LoadBalancer"], "vxlanMode": "Never", "nodeSelector": "has(rack)"});
    let mut lists = cluster(&[
        ("lb4", pool("198.51.100.9/32", single)),
        ("lb6", pool("2001:db8:9::/112", elsewhere)),
    ]);
    lists.service_block("198.51.100.9/32", &["shop/first"]);
    lists.service("shop/first", json!({}), json!({}), &["198.51.100.9"]);
    lists.service("shop/both", dual_stack(), json!({}), &[]);
    Case {
        lists,
        findings: &["warning service-without-address shop/both"],
        answers: &[
            (
                "shop/both",
                1,
                "shop/both gets no IPv4 address: no address in its pools is free",
            ),
            (
                "shop/both",
                1,
                "Calico says: no configured Calico pools for node load-balancer",
            ),
        ],
    }
}

fn services_of_other_types() -> Case {
    let mut lists = cluster(&[("lb", for_services("198.51.100.0/24"))]);
    let without_address = json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]});
    lists.service("shop/headless", without_address, json!({}), &[]);
    lists.service("shop/internal", json!({"type": "ClusterIP"}), json!({}), &[]);
    let elsewhere =
        json!({"type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": []});
    lists.service("shop/elsewhere", elsewhere, json!({}), &[]);
    Case {
        lists,
        findings: &[],
        answers: &[
            ("shop/headless", 0, NOT_SERVED),
            ("shop/internal", 0, NOT_SERVED),
            ("shop/elsewhere", 0, NOT_SERVED),
        ],
    }
}

#[test]
fn a_service_without_findings_is_named_where_its_address_is_shown() {
    let lists = an_address_of_another_load_balancer().lists;
    lists.run("show --ip 100.64.200.9").prints("service edge/nat");
    lists
        .run("explain --service edge/nut")
        .says("did you mean `edge/nat`?")
        .exits(1);
    let json = one_family_is_missing()
        .lists
        .run("explain --service shop/half -o json")
        .json();
    assert_eq!(json["kind"], "ServiceExplanation");
    assert_eq!(
        (&json["refused"], &json["recorded"]),
        (&json!(true), &json!(["198.51.100.129"]))
    );
    assert_eq!(json["families"][1]["reason"], "has-other-family");
    let wide = requests_that_cannot_be_met()
        .lists
        .run("explain --service shop/off -o wide");
    wide.prints("STEP").prints("it is disabled");
}
