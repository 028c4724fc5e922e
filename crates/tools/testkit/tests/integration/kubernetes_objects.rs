//! Compares objects field by field with the examples in `docs/calico-ipam.md` (2.4 to 2.8, 2.11, 2.12).

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, KubeCluster, KubeObject};
use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

const FLAVOURS: [Flavour; 2] = [Flavour::Classic, Flavour::Native];

fn object<'c>(cluster: &'c KubeCluster, path: &str) -> &'c Value {
    let found = cluster.objects.iter().find(|object| object.path() == path);
    &found.unwrap_or_else(|| panic!("there is no {path}")).json
}

fn one_pod(flavour: Flavour) -> KubeCluster {
    Cluster::plain(ClusterSpec::new(1).v4_only(), 1, 1).kubernetes(flavour)
}

const LABELS: &str = r#"{"projectcalico.org/affinity-type":"host","projectcalico.org/hostname-hash":"A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA","projectcalico.org/ip-version":"4"}"#;

#[test]
fn affinities_and_handles() {
    for (flavour, deleted) in [
        (Flavour::Classic, json!("false")),
        (Flavour::Native, json!(false)),
    ] {
        let cluster = one_pod(flavour);
        let affinity = object(&cluster, "blockaffinities/node-1-10-244-1-0-26");
        assert_eq!(
            affinity["spec"],
            json!({"cidr": "10.244.1.0/26", "deleted": deleted, "node": "node-1", "state": "confirmed", "type": "host"})
        );
        assert_eq!(
            affinity["metadata"]["labels"],
            serde_json::from_str::<Value>(LABELS).unwrap()
        );
        let handle = object(&cluster, "ipamhandles/ipip-tunnel-addr-node-1");
        let spec =
            json!({"block": {"10.244.1.0/26": 1}, "deleted": false, "handleID": "ipip-tunnel-addr-node-1"});
        assert_eq!(handle["spec"], spec);
        let annotation =
            |object: &Value| object["metadata"]["annotations"]["projectcalico.org/metadata"].clone();
        let expected = match flavour {
            Flavour::Classic => [json!(format!(r#"{{"labels":{LABELS}}}"#)), json!("{}")],
            Flavour::Native => [Value::Null, Value::Null],
        };
        assert_eq!([annotation(affinity), annotation(handle)], expected);
    }
}

/// A deletion takes two steps. The first step sets these marks.
#[test]
fn marks_of_deletion() {
    for (flavour, marked) in [(Flavour::Classic, json!("true")), (Flavour::Native, json!(true))] {
        let mut cluster = Cluster::plain(ClusterSpec::new(1), 1, 1);
        for fault in [
            Fault::HalfDeletedAffinity,
            Fault::HalfDeletedBlock,
            Fault::HalfDeletedHandle,
        ] {
            cluster.inject(fault, 1);
        }
        let kubernetes = cluster.kubernetes(flavour);
        let marks = |plural: &str, mark: &Value| {
            let own = kubernetes.objects.iter().filter(|o| o.plural == plural);
            own.filter(|o| o.json["spec"]["deleted"] == *mark).count()
        };
        let found = [
            marks("blockaffinities", &marked),
            marks("ipamblocks", &json!(true)),
            marks("ipamhandles", &json!(true)),
        ];
        assert_eq!(found, [1, 1, 1], "{flavour:?}");
    }
}

#[test]
fn blocks() {
    for flavour in FLAVOURS {
        let cluster = one_pod(flavour);
        let block = object(&cluster, "ipamblocks/10-244-1-0-26");
        assert_eq!(
            (&block["kind"], &block["apiVersion"]),
            (&"IPAMBlock".into(), &flavour.api_version().into())
        );
        let spec = block["spec"].as_object().unwrap();
        let fields: Vec<&str> = spec.keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "affinity",
                "affinityClaimTime",
                "allocations",
                "attributes",
                "cidr",
                "deleted",
                "sequenceNumber",
                "sequenceNumberForAllocation",
                "strictAffinity",
                "unallocated"
            ]
        );
        assert_eq!(
            (&spec["affinity"], &spec["strictAffinity"]),
            (&"host:node-1".into(), &false.into())
        );
        assert_eq!(
            spec["allocations"].as_array().unwrap()[..5],
            [json!(0), json!(1), json!(2), json!(3), Value::Null]
        );
        let ipip = json!({"handle_id": "ipip-tunnel-addr-node-1", "secondary": {"node": "node-1", "type": "ipipTunnelAddress"}});
        assert_eq!(spec["attributes"][1], ipip);
        assert!(spec["sequenceNumber"].as_u64().unwrap() > 1 << 53);
    }
}

#[test]
fn data_of_old_versions_is_converted_to_the_current_form() {
    let cluster = Cluster::small(ClusterSpec::new(1)).kubernetes(Flavour::Classic);
    for block in cluster.objects.iter().filter(|o| o.plural == "ipamblocks") {
        let text = block.json["spec"].to_string();
        assert!(
            !text.contains("hostAffinity") && !text.contains("affinity_claim_time"),
            "{text}"
        );
        assert!(
            !block.json["spec"]["attributes"].to_string().contains("null"),
            "{text}"
        );
        for field in [
            "allocations",
            "attributes",
            "cidr",
            "strictAffinity",
            "unallocated",
            "sequenceNumber",
        ] {
            assert!(block.json["spec"].get(field).is_some(), "{field}: {text}");
        }
    }
    let balancer = object(
        &cluster,
        "ipamhandles/lb-gjq1raooynaqtwk3dc76lcu6rh4tdxlldonlkny5xk",
    );
    assert_eq!(
        balancer["spec"]["handleID"],
        "lb-gJQ1RAoOYNAQTWk3dC76lcU6rH4TdxLLDONLknY5xk"
    );
}

#[test]
fn pods_and_nodes() {
    let cluster = Cluster::plain(ClusterSpec::new(1), 1, 1);
    let kubernetes = cluster.kubernetes(Flavour::Native);
    let node = object(&kubernetes, "nodes/node-1");
    let annotations = node["metadata"]["annotations"].as_object().unwrap();
    let names: Vec<&str> = annotations
        .keys()
        .map(|name| name.strip_prefix("projectcalico.org/").unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "IPv4Address",
            "IPv4IPIPTunnelAddr",
            "IPv4VXLANTunnelAddr",
            "IPv4WireguardInterfaceAddr",
            "IPv6VXLANTunnelAddr",
            "IPv6WireguardInterfaceAddr",
            "WireguardPublicKey"
        ]
    );
    assert_eq!(annotations["projectcalico.org/IPv4IPIPTunnelAddr"], "10.244.1.1");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-1");

    let pod = &kubernetes
        .objects
        .iter()
        .find(|o| o.plural == "pods")
        .unwrap()
        .json;
    let annotation =
        |name: &str| pod["metadata"]["annotations"][format!("cni.projectcalico.org/{name}")].clone();
    assert_eq!(annotation("podIP"), "10.244.1.3/32");
    assert_eq!(annotation("podIPs"), "10.244.1.3/32,fd00:10:244::1:2/128");
    assert_eq!(annotation("containerID").as_str().unwrap().len(), 64);
    assert_eq!(pod["status"]["podIP"], "10.244.1.3");
    assert_eq!(
        pod["status"]["podIPs"],
        json!([{"ip": "10.244.1.3"}, {"ip": "fd00:10:244::1:2"}])
    );
    assert_eq!(
        (&pod["status"]["phase"], &pod["spec"]["nodeName"]),
        (&"Running".into(), &"node-1".into())
    );
    assert!(
        !pod["metadata"]["labels"]
            .to_string()
            .contains("projectcalico.org")
    );
}

#[test]
fn settings_and_resources() {
    let spec = |flavour, path: &str| object(&one_pod(flavour), path)["spec"].clone();
    let classic = json!({"autoAllocateBlocks": true, "ipCooldownSeconds": 30, "kubeVirtVMAddressPersistence": "Enabled",
        "strictAffinity": false});
    let mut native = classic.clone();
    native["maxBlocksPerHost"] = 0.into();
    assert_eq!(spec(Flavour::Classic, "ipamconfigs/default"), classic);
    assert_eq!(spec(Flavour::Native, "ipamconfigurations/default"), native);
    for flavour in FLAVOURS {
        let cluster = one_pod(flavour);
        assert_eq!(
            spec(flavour, "clusterinformations/default")["clusterType"],
            "k8s,bgp,kdd"
        );
        assert_eq!(
            spec(flavour, "ippools/default-ipv4-ippool")["cidr"],
            "10.244.0.0/16"
        );
        assert_eq!(
            spec(flavour, "ipreservations/infra")["reservedCIDRs"],
            json!(["10.244.0.0/32"])
        );
        // The left-out keys are the second copy of the settings, and a tier, which IPAM does not use.
        let keys: Vec<&str> = cluster
            .left_out
            .iter()
            .filter_map(|key| key.rsplit('/').nth(1))
            .collect();
        assert_eq!(keys, ["ipamconfigurations", "tiers"]);
    }
}

#[test]
fn machines_services_and_other_orchestrators() {
    let cluster = Cluster::small(ClusterSpec::new(1)).kubernetes(Flavour::Classic);
    let service = object(&cluster, "services/default/web");
    assert_eq!(
        service["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "172.16.4.48", "ipMode": "VIP"}])
    );
    let paths: Vec<String> = cluster.objects.iter().map(KubeObject::path).collect();
    let machines: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.strip_prefix("virtualmachine"))
        .collect();
    assert_eq!(
        machines,
        [
            "instances/vms/vm-1",
            "instances/vms/vm-2",
            "s/vms/vm-1",
            "s/vms/vm-2",
            "s/vms/vm-3"
        ]
    );
    let launchers: Vec<&Value> = cluster
        .objects
        .iter()
        .filter(|o| o.name().starts_with("virt-launcher-"))
        .map(|o| &o.json)
        .collect();
    let names: Vec<&Value> = launchers
        .iter()
        .map(|pod| &pod["metadata"]["ownerReferences"][0]["name"])
        .collect();
    assert_eq!(names.len(), 3);
    assert!(names.contains(&&json!("vm-2")));
    let target = |pod: &&&Value| {
        pod["metadata"]["labels"]
            .get("kubevirt.io/migrationJobUID")
            .is_some()
    };
    assert_eq!(launchers.iter().filter(target).count(), 1);
    assert_eq!(
        paths
            .iter()
            .filter(|path| path.starts_with("pods/libnetwork/"))
            .count(),
        2
    );
}

#[test]
fn keys_that_name_no_object_are_left_out() {
    let mut cluster = Cluster::with_configuration(ClusterSpec::new(1));
    let healthy = cluster.kubernetes(Flavour::Classic);
    for key in [
        "/calico/ipam/v2/assignment/ipv6/block/10.244.1.0-26",
        "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-66",
        "/calico/ipam/v2/@/node-1/ipv4/block/10.244.1.0-26",
        "/calico/ipam/v2/handle/a/b",
        "/calico/ipam/v2/host/node-1",
        "/registry/pods/default/a",
    ] {
        let mut broken = cluster.clone();
        broken.put_raw(key, BLOCK);
        let made = broken.kubernetes(Flavour::Classic);
        assert_eq!(made.left_out.len(), healthy.left_out.len() + 1, "{key}");
        assert!(made.left_out.contains(&key.to_owned()), "{key}");
    }
    let affinity = "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.244.1.0-26";
    cluster.put_raw("/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26", BLOCK);
    cluster.put_raw(affinity, r#"{"state":"confirmed"}"#);
    cluster.put_raw("/calico/ipam/v2/handle/a.b", r#"{"block":{}}"#);
    let made = cluster.kubernetes(Flavour::Classic);
    for path in [
        "ipamblocks/10-244-1-0-26",
        "blockaffinities/load-balancer-10-244-1-0-26",
        "ipamhandles/a.b",
    ] {
        object(&made, path);
    }
}

/// The value of an empty block.
const BLOCK: &str = r#"{"cidr":"10.244.1.0/26","allocations":[],"unallocated":[],"attributes":[]}"#;
