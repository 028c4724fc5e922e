//! Unusual but healthy clusters.

use calipam_testkit::kube::{Flavour, create, install_kubevirt};
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, pod};

/// A healthy state, the path of one of its objects, and the address that is leaked without this object, with the reason.
type State = (fn(&KubeCluster), &'static str, &'static str);

/// Creates clusters that are in all these states, which must have no findings. Then removes an object of each state,
/// which must cause a finding. This proves that the state is checked.
fn assert_healthy(states: &[State]) {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let cluster = KubeCluster::with_nodes(flavour, &["node-1", "node-2"]);
        states.iter().for_each(|(make, ..)| make(&cluster));
        assert_eq!(cluster.findings(), [""; 0], "{flavour:?}");
        for (_, path, _) in states {
            let path = format!("{path}?gracePeriodSeconds=0");
            let deleted = cluster.server.request("DELETE", &path, "").unwrap();
            assert_eq!(deleted.status, 200, "{}", deleted.body);
        }
        let expected: Vec<String> = states
            .iter()
            .map(|(.., leak)| format!("error leaked-address {leak}"))
            .collect();
        assert_eq!(cluster.findings(), expected, "{flavour:?}");
    }
}

#[test]
fn pods_were_restarted_or_finished_while_a_cloud_balances_the_load() {
    assert_healthy(&[
        (
            cloud_balances_the_load,
            "/api/v1/namespaces/default/pods/web-0",
            "10.0.0.1 no-owner",
        ),
        (
            pods_were_restarted_in_place,
            "/api/v1/namespaces/default/pods/right-now",
            "10.0.1.7 no-owner",
        ),
        (
            an_address_was_given_to_the_next_pod,
            "/api/v1/namespaces/default/pods/job-2",
            "10.0.2.5 no-owner",
        ),
    ]);
}

#[test]
fn a_virtual_machine_migrates_while_a_cloud_and_calico_balance_the_load() {
    assert_healthy(&[
        (
            a_virtual_machine_migrates,
            "/apis/kubevirt.io/v1/namespaces/vms/virtualmachines/stopped",
            "10.0.0.3 vm-gone",
        ),
        (
            cloud_and_calico_balance_the_load,
            "/api/v1/namespaces/default/services/of-calico",
            "10.250.0.1 service-gone",
        ),
    ]);
}

/// Adds a service of type LoadBalancer, with the ingress that its controller writes.
fn add_service(cluster: &KubeCluster, name: &str, class: Option<&str>, ingress: Value) {
    let path = "/api/v1/namespaces/default/services";
    let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    if let Some(class) = class {
        spec["loadBalancerClass"] = class.into();
    }
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    create(&cluster.server, path, &[object]).unwrap();
    let got = cluster
        .server
        .request("GET", &format!("{path}/{name}"), "")
        .unwrap();
    let mut object: Value = serde_json::from_str(&got.body).unwrap();
    object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    let set = cluster
        .server
        .request("PUT", &format!("{path}/{name}/status"), &object.to_string())
        .unwrap();
    assert_eq!(set.status, 200, "{}", set.body);
}

/// The load balancer addresses that a cloud assigns to services are not Calico's: an address outside all pools, or a host
/// name.
fn cloud_balances_the_load(cluster: &KubeCluster) {
    for (name, ingress) in [
        ("by-address", json!([{"ip": "203.0.113.7"}])),
        ("by-name", json!([{"hostname": "a1b2.elb.example.com"}])),
        ("not-yet", json!([])),
    ] {
        add_service(cluster, name, None, ingress);
    }
    cluster.add_block(
        "10.0.0.0/26",
        "node-1",
        &[Record::of_pod(1, "default", "web-0", "node-1")],
    );
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.1", 1)]);
}

/// Calico and a cloud both serve load balancers. The class of a service determines which of them is responsible.
fn cloud_and_calico_balance_the_load(cluster: &KubeCluster) {
    let pool = json!({"cidr": "10.250.0.0/24", "blockSize": 26, "allowedUses": ["LoadBalancer"]});
    cluster.add("ippools", "IPPool", "load-balancers", pool);
    let spec = json!({"controllers": {"loadBalancer": {"assignIPs": "AllServices"}}});
    cluster.add(
        "kubecontrollersconfigurations",
        "KubeControllersConfiguration",
        "default",
        spec,
    );
    add_service(
        cluster,
        "of-cloud",
        Some("example.com/cloud"),
        json!([{"ip": "203.0.113.7"}]),
    );
    add_service(
        cluster,
        "of-calico",
        Some("calico"),
        json!([{"ip": "10.250.0.1", "ipMode": "VIP"}]),
    );
    let owner = json!({"type": "LoadBalancer", "namespace": "default", "service": "of-calico"});
    let record = Record::new(1, "lb-6cnkqxpr2hbkrbkfjh0pzv3wkqchbvkf2tn8m3d0", owner);
    cluster.add_block("10.250.0.0/26", "virtual:load-balancer", &[record]);
}

/// Pods were restarted in new sandboxes. One has kept its address. One has another address, and its old address is
/// free. One is between two sandboxes: its status is outdated, and its annotations have no address and still name the
/// old container.
fn pods_were_restarted_in_place(cluster: &KubeCluster) {
    let record = |ordinal, name: &str, container: &str| {
        let handle = format!("k8s-pod-network.{container}");
        Record::new(
            ordinal,
            &handle,
            json!({"namespace": "default", "node": "node-1", "pod": name}),
        )
    };
    let records = [
        record(5, "same-address", "b2"),
        record(6, "new-address", "d4"),
        record(7, "right-now", "e5"),
    ];
    cluster.add_block("10.0.1.0/26", "node-1", &records);
    let sandbox = |name: &str, container: &str, address: &str, number| {
        let mut pod = pod("default", name, "node-1", address, number);
        pod["metadata"]["annotations"] = cni_annotations(container, address);
        pod["status"]["containerStatuses"] = json!([{"name": "c", "image": "i", "imageID": "", "ready": true,
        "restartCount": 3, "containerID": format!("containerd://{container}")}]);
        pod
    };
    let mut right_now = sandbox("right-now", "e4", "10.0.1.7", 2);
    for blank in ["cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs"] {
        right_now["metadata"]["annotations"][blank] = "".into();
    }
    let others = [
        sandbox("same-address", "b2", "10.0.1.5", 3),
        sandbox("new-address", "d4", "10.0.1.6", 4),
    ];
    cluster.add_pods(&others);
    cluster.add_pods(&[right_now]);
}

/// The status of a finished pod keeps its address, even if another pod has it now.
fn an_address_was_given_to_the_next_pod(cluster: &KubeCluster) {
    cluster.add_block(
        "10.0.2.0/26",
        "node-1",
        &[Record::of_pod(5, "default", "job-2", "node-1")],
    );
    let mut before = pod("default", "job-1", "node-1", "10.0.2.5", 5);
    before["status"]["phase"] = "Succeeded".into();
    before["metadata"]["annotations"] = cni_annotations("a1", "10.0.2.5");
    let mut after = pod("default", "job-2", "node-1", "10.0.2.5", 6);
    after["metadata"]["annotations"] = cni_annotations("b2", "10.0.2.5");
    cluster.add_pods(&[before, after]);
}

/// The source and the target of a live migration share the machine's address. Another machine is stopped and keeps its
/// own address.
fn a_virtual_machine_migrates(cluster: &KubeCluster) {
    install_kubevirt(&cluster.server).unwrap();
    cluster.add_namespace("vms");
    let object = |kind: &str, name: &str| json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "vms"}, "spec": {}});
    let at = |plural: &str| format!("/apis/kubevirt.io/v1/namespaces/vms/{plural}");
    let machines = [
        object("VirtualMachine", "vm-1"),
        object("VirtualMachine", "stopped"),
    ];
    create(&cluster.server, &at("virtualmachines"), &machines).unwrap();
    let instance = object("VirtualMachineInstance", "vm-1");
    create(&cluster.server, &at("virtualmachineinstances"), &[instance]).unwrap();

    let side = |node: &str, pod: &str| {
        json!({"namespace": "vms", "node": node, "pod": pod, "timestamp": "2026-05-01 10:12:00 +0000 UTC",
        "vm-uid": "b6b1e547", "vmi-name": "vm-1", "vmi-uid": "0b1f7d1c"})
    };
    let mut moving = Record::new(
        2,
        "k8s-pod-network.vmi.vms.vm-1",
        side("node-1", "virt-launcher-vm-1-aaaaa"),
    );
    let mut target = side("node-2", "virt-launcher-vm-1-bbbbb");
    target["vmim-uid"] = "5c1f".into();
    moving.attribute["alternateOwnerAttrs"] = target;
    // A stopped machine keeps only its handle.
    let mut stopped = Record::new(3, "k8s-pod-network.vmi.vms.stopped", json!({}));
    stopped.attribute.as_object_mut().unwrap().remove("secondary");
    cluster.add_block("10.0.0.0/26", "node-1", &[moving, stopped]);

    let launcher = |name: &str, node: &str, number| {
        let mut pod = pod("vms", name, node, "10.0.0.2", number);
        pod["metadata"]["annotations"] = cni_annotations(name, "10.0.0.2");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "controller": true,
        "kind": "VirtualMachineInstance", "name": "vm-1", "uid": "0b1f7d1c"}]);
        pod
    };
    let mut target = launcher("virt-launcher-vm-1-bbbbb", "node-2", 2);
    target["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": "5c1f"});
    cluster.add_pods(&[launcher("virt-launcher-vm-1-aaaaa", "node-1", 1), target]);
}
