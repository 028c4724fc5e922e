//! Faults that only a cluster in Kubernetes can have: in objects' labels and names, and in services, machines and pod
//! states.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};

use crate::cluster::build::service_record;
use crate::cluster::wire::{Pool, key};
use crate::cluster::{Cluster, Form, Pod};
use crate::kube::form::{HOSTNAME_HASH, affinity_name, hostname_hash};

/// Patches the affinity object of a healthy node.
fn change_affinity(cluster: &mut Cluster, patch: Value) -> (String, IpNet) {
    let (node, block, _) = cluster.victim_block();
    cluster.patch_object(&key::affinity("host", &node, block), patch);
    (node, block)
}

pub(super) fn labels_missing(cluster: &mut Cluster) {
    let bare = json!({"metadata": {"labels": null, "annotations": null}});
    let (node, block) = change_affinity(cluster, bare);
    cluster.expect_in(&Form::IN_KUBERNETES, "affinity-labels", format!("{node}/{block}"));
}

/// Removes the labels of all affinities of a node, as if its calico-node had not started since the upgrade.
pub(super) fn labels_of_none(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    for block in info.blocks {
        let bare = json!({"metadata": {"labels": null, "annotations": null}});
        cluster.patch_object(&key::affinity("host", &info.name, block), bare);
        let subject = format!("{}/{block}", info.name);
        cluster.expect_as_in(&Form::IN_KUBERNETES, "affinity-labels", subject, "info");
    }
}

pub(super) fn labels_of_other(cluster: &mut Cluster) {
    let labels = json!({HOSTNAME_HASH: hostname_hash("another-node")});
    let (node, block) = change_affinity(cluster, json!({"metadata": {"labels": labels}}));
    cluster.expect_in(&Form::IN_KUBERNETES, "affinity-labels", format!("{node}/{block}"));
}

/// Sets `deleted` to an invalid string. The undecodable affinity still protects its block from findings.
pub(super) fn deleted_text(cluster: &mut Cluster) {
    let (node, block) = change_affinity(cluster, json!({"spec": {"deleted": "perhaps"}}));
    let path = format!("blockaffinities/{}", affinity_name(&node, block));
    cluster.expect_in(&Form::IN_KUBERNETES, "undecodable-object", path);
}

pub(super) fn misnamed(cluster: &mut Cluster) {
    let name = format!("renamed-{}", cluster.next_spare);
    change_affinity(cluster, json!({"metadata": {"name": name}}));
    let (path, field) = (format!("blockaffinities/{name}"), "metadata.name");
    cluster.expect_detail_in(&Form::IN_KUBERNETES, "undecodable-object", path, field);
}

/// Adds two handles whose IDs differ only in case. Object names are in lower case, so when Calico looks for the second
/// handle, it finds the object of the first one, and changes its counts without an error. In etcd, where keys contain
/// the full IDs, the second handle is missing.
pub(super) fn case_collision(cluster: &mut Cluster) {
    let (first, second) = (cluster.victim(), cluster.victim());
    let large = format!("Net.{}", first.handle.rsplit('.').next().unwrap_or_default().to_uppercase());
    let small = large.to_lowercase();
    for (pod, id) in [(&first, &large), (&second, &small)] {
        for (address, block) in &pod.addresses {
            cluster.record_mut(*address, *block).handle = Some(id.clone());
            cluster.count(&pod.handle, *block, -1);
            cluster.count(&large, *block, 1);
        }
    }
    cluster.expect_in(&Form::IN_KUBERNETES, "handle-case-collision", &small);
    cluster.expect("missing-handle", small);
    cluster.expect_as_in(&Form::ALL, "handle-count", large, "info");
}

/// Adds a pod whose object has the given status. The pod's endpoint in etcd does not change.
fn change_status(cluster: &mut Cluster, status: Value) -> Pod {
    let pod = cluster.victim();
    cluster.patch_object(&pod.endpoint, json!({ "status": status }));
    pod
}

pub(super) fn pod_finished(cluster: &mut Cluster, status: Value) {
    let pod = change_status(cluster, status);
    cluster.expect_leaked_in(&Form::IN_KUBERNETES, &pod, "pod-finished");
    // In etcd, the endpoint still has these addresses.
    let endpoint = cluster.endpoint_mut(&pod.endpoint).subject();
    cluster.expect_detail_in(&[Form::EtcdWithKubernetes], "endpoint-without-pod", endpoint, "finished");
}

pub(super) fn pod_disagreement(cluster: &mut Cluster) {
    let other = cluster.foreign_block().addr();
    let pod = change_status(cluster, json!({"podIP": other, "podIPs": [{"ip": other}]}));
    let subject = format!("{}/{}", pod.name.namespace, pod.name.pod);
    cluster.expect_in(&Form::WITH_PODS, "pod-address-disagreement", subject);
}

/// Adds a pod between two sandboxes: it has no endpoint, and its status contains its former address, which another pod
/// now has.
pub(super) fn between_sandboxes(cluster: &mut Cluster) {
    let other = cluster.victim();
    let pod = cluster.victim();
    for (address, block) in pod.addresses.clone() {
        cluster.free(address, block);
    }
    let status = json!({"podIP": other.address(), "podIPs": [{"ip": other.address()}],
        "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}, {"type": "Ready", "status": "False"}]});
    let annotations = json!({"cni.projectcalico.org/containerID": "",
        "cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""});
    cluster
        .put_pod_without_endpoint(&pod, json!({"metadata": {"annotations": annotations}, "status": status}));
    let subject = format!("{}/{}", pod.name.namespace, pod.name.pod);
    cluster.expect_in(&[Form::EtcdWithKubernetes], "pod-without-endpoint", subject);
}

/// Removes the address from a pod object. The pod keeps its allocation, but the data in etcd does not show the pod.
pub(super) fn without_address(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let none = json!({"metadata": {"annotations": null},
        "status": {"phase": "Pending", "podIP": null, "podIPs": null, "conditions": null}});
    cluster.put_pod_without_endpoint(&pod, none);
    cluster.expect_leaked_in(&[Form::Etcd], &pod, "no-owner");
}

pub(super) fn pod_gone(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.leave_object_out(&pod.endpoint);
    let endpoint = cluster.endpoint_mut(&pod.endpoint).subject();
    cluster.expect_detail_in(&[Form::EtcdWithKubernetes], "endpoint-without-pod", endpoint, "gone");
    cluster.expect_leaked_in(&Form::IN_KUBERNETES, &pod, "no-owner");
}

/// Moves a pod object to another node. The sandbox ID in the handle and the annotation still identifies the pod as the
/// recorded one.
pub(super) fn on_other_node(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let node = cluster.nodes[0].name.clone();
    cluster.patch_object(&pod.endpoint, json!({"spec": {"nodeName": node}}));
    let endpoint = cluster.endpoint_mut(&pod.endpoint).subject();
    cluster.expect_in(&[Form::EtcdWithKubernetes], "endpoint-node-mismatch", endpoint);
    for (address, _) in &pod.addresses {
        cluster.expect_in(&Form::WITH_PODS, "wrong-node-recorded", address);
    }
}

/// Adds a service with `recorded` addresses in its own pool. Its ingress contains only the first `named` of them.
fn victim_service(cluster: &mut Cluster, recorded: usize, named: usize) -> (String, IpNet, Vec<IpAddr>) {
    let (pool, cidr) = cluster.extra_pool();
    let block = cluster.put_service_block(&pool, cidr, 28, 1);
    let name = format!("service-{pool}");
    // The hash does not matter, since the record contains the service's name.
    let record = service_record(&format!("lb-{}", hostname_hash(&name)), "default", &name);
    let addresses: Vec<IpAddr> = (0..recorded).map(|_| cluster.take_as(block, record.clone())).collect();
    cluster.put_service("default", &name, &addresses[..named]);
    (name, block, addresses)
}

pub(super) fn service_gone(cluster: &mut Cluster) {
    let (name, _, addresses) = victim_service(cluster, 1, 1);
    cluster.remove_service("default", &name);
    cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", addresses[0], "service-gone");
}

pub(super) fn service_extra(cluster: &mut Cluster) {
    let (_, _, addresses) = victim_service(cluster, 2, 1);
    cluster.expect_in(&Form::WITH_PODS, "service-address-extra", addresses[1]);
}

pub(super) fn service_without_address(cluster: &mut Cluster) {
    let (name, ..) = victim_service(cluster, 0, 0);
    cluster.expect_in(&Form::WITH_PODS, "service-without-address", format!("default/{name}"));
}

pub(super) fn service_unrecorded(cluster: &mut Cluster) {
    let (_, block, addresses) = victim_service(cluster, 1, 1);
    cluster.free(addresses[0], block);
    cluster.expect_in(&Form::WITH_PODS, "unallocated-in-use", addresses[0]);
}

pub(super) fn orphan_instance(cluster: &mut Cluster) {
    let block = cluster.host().blocks[0];
    let machine = format!("vm-lost-{}", cluster.next_pod);
    let address = cluster.take_for_lost_machine(block);
    cluster.put_orphan_instance("vms", &machine);
    cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", address, "vm-gone");
}

pub(super) fn machine_gone(cluster: &mut Cluster) {
    let block = cluster.host().blocks[0];
    let address = cluster.take_for_lost_machine(block);
    cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", address, "vm-gone");
}

/// Adds a pool that covers the address of a service that is not a load balancer.
pub(super) fn pool_over_services(cluster: &mut Cluster) {
    // The API server of tests assigns service addresses only from this range.
    let number = cluster.next_pool as u8;
    let (pool, _) = cluster.extra_pool();
    let cidr = IpNet::from(Ipv4Net::new_assert([10, 96, number, 0].into(), 24));
    cluster.put_pool(&pool, Pool::new(cidr, 28));
    let address = IpAddr::from([10, 96, number, 10]);
    let spec = json!({"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
        "ports": [{"port": 443, "protocol": "TCP"}]});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "spec": spec, "status": {"loadBalancer": {}}});
    cluster.put_kubernetes_only("services", "default", &format!("internal-{pool}"), service);
    cluster.expect_in(&Form::WITH_PODS, "pool-overlaps-services", cidr);
}

/// Replaces the cluster with one that uses host-local, which assigns addresses from the nodes' ranges. These ranges are
/// not in etcd. Two pods are recorded without a time, as `upgrade-ipam` records them.
pub(super) fn host_local(cluster: &mut Cluster) {
    *cluster = Cluster::with_configuration(cluster.spec);
    for first in [true, false] {
        let node = cluster.add_node();
        let info = cluster.nodes[node].clone();
        let range = |block: &IpNet| {
            let prefix = if block.addr().is_ipv4() { 24 } else { 112 };
            IpNet::new(block.addr(), prefix).expect("a prefix of the family").trunc()
        };
        let ranges: Vec<IpNet> = info.blocks.iter().map(range).collect();
        let patch = json!({"spec": {"podCIDR": ranges[0], "podCIDRs": ranges}});
        cluster.patch_object(&key::node(&info.name), patch);
        for number in 0..3 {
            let pod = cluster.add_pod_on(node);
            for (address, block) in &pod.addresses {
                if first && number < 2 {
                    let record = cluster.record_mut(*address, *block);
                    record.owner.as_mut().expect("attributes").remove("timestamp");
                } else {
                    cluster.free(*address, *block);
                    cluster.expect_in(&Form::IN_ETCD, "unallocated-in-use", address);
                }
            }
        }
    }
    cluster.expect_as_in(&Form::IN_KUBERNETES, "pods-without-calico-ipam", "default", "warning");
}
