//! Faults that only a cluster in Kubernetes can have: in objects' labels and names, and in services, machines and pod
//! states.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};

use crate::cluster::build::{machine_handle, service_record};
use crate::cluster::wire::{Attribute, key};
use crate::cluster::{Cluster, Form, Pod};
use crate::kube::form::{affinity_name, hostname_hash};

/// Patches the affinity object of a healthy node.
fn change_affinity(cluster: &mut Cluster, patch: Value) -> Pod {
    let pod = cluster.victim_block();
    cluster.patch_object(&pod.affinity(), patch);
    pod
}

/// Changes the metadata of an affinity so that its labels are wrong.
pub(super) fn labels(cluster: &mut Cluster, metadata: Value) {
    let pod = change_affinity(cluster, json!({"metadata": metadata}));
    let subject = format!("{}/{}", pod.node, pod.block());
    cluster.expect_in(&Form::IN_KUBERNETES, "affinity-labels", subject);
}

/// Removes the labels of all affinities of a node, as if its calico-node had not started since the upgrade.
pub(super) fn labels_of_none(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    for block in info.blocks {
        cluster.patch_object(
            &key::affinity("host", &info.name, block),
            json!({ "metadata": unlabelled() }),
        );
        let subject = format!("{}/{block}", info.name);
        cluster.expect_as(&Form::IN_KUBERNETES, "affinity-labels", subject, "info");
    }
}

/// The metadata of affinities before Calico 3.31.
pub(super) fn unlabelled() -> Value {
    json!({"labels": null, "annotations": null})
}

/// Sets `deleted` to an invalid string. The undecodable affinity still protects its block from findings.
pub(super) fn deleted_text(cluster: &mut Cluster) {
    let pod = change_affinity(cluster, json!({"spec": {"deleted": "perhaps"}}));
    let path = format!("blockaffinities/{}", affinity_name(&pod.node, pod.block()));
    cluster.expect_in(&Form::IN_KUBERNETES, "undecodable-object", path);
}

pub(super) fn misnamed(cluster: &mut Cluster) {
    let name = format!("renamed-{}", cluster.next_spare);
    change_affinity(cluster, json!({"metadata": {"name": name}}));
    let path = format!("blockaffinities/{name}");
    let field = "metadata.name";
    cluster.expect_detail_in(&Form::IN_KUBERNETES, "undecodable-object", path, field);
}

/// Adds two handles whose IDs differ only in case. Object names are in lower case, so when Calico looks for the second
/// handle, it finds the object of the first one, and changes its counts without an error. In etcd, where keys contain
/// the full IDs, the second handle is missing.
pub(super) fn case_collision(cluster: &mut Cluster) {
    let first = cluster.victim();
    let second = cluster.victim();
    let large = format!(
        "Net.{}",
        first.handle.rsplit('.').next().unwrap_or_default().to_uppercase()
    );
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
    cluster.expect_as(&Form::ALL, "handle-count", large, "info");
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
    let forms = [Form::EtcdWithKubernetes];
    cluster.expect_detail_in(&forms, "endpoint-without-pod", pod.subject(), "finished");
}

pub(super) fn pod_disagreement(cluster: &mut Cluster) {
    let other = cluster.foreign_block().addr();
    let pod = change_status(cluster, json!({"podIP": other, "podIPs": [{"ip": other}]}));
    cluster.expect_in(&Form::WITH_PODS, "pod-address-disagreement", pod.path());
}

/// Adds a pod between two sandboxes: it has no endpoint, and its status contains its former address, which another pod
/// now has.
pub(super) fn between_sandboxes(cluster: &mut Cluster) {
    let other = cluster.victim();
    let pod = cluster.victim();
    cluster.free_pod(&pod);
    let status = json!({"podIP": other.address(), "podIPs": [{"ip": other.address()}],
        "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}, {"type": "Ready", "status": "False"}]});
    let annotations = json!({"cni.projectcalico.org/containerID": "",
        "cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""});
    let patch = json!({"metadata": {"annotations": annotations}, "status": status});
    cluster.put_pod_without_endpoint(&pod, patch);
    cluster.expect_in(&[Form::EtcdWithKubernetes], "pod-without-endpoint", pod.path());
}

/// Removes the address from a pod object. The pod keeps its allocation, but the data in etcd does not show the pod.
pub(super) fn without_address(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let none = json!({"metadata": {"annotations": null},
        "status": {"phase": "Pending", "podIP": null, "podIPs": null, "conditions": null}});
    cluster.put_pod_without_endpoint(&pod, none);
    cluster.waiting.push(pod.path());
    cluster.expect_leaked_in(&[Form::Etcd], &pod, "no-owner");
}

pub(super) fn pod_gone(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.leave_object_out(&pod.endpoint);
    cluster.expect_detail_in(
        &[Form::EtcdWithKubernetes],
        "endpoint-without-pod",
        pod.subject(),
        "gone",
    );
    cluster.expect_leaked_in(&Form::IN_KUBERNETES, &pod, "no-owner");
}

/// Moves a pod object to another node. The sandbox ID in the handle and the annotation still identifies the pod as the
/// recorded one.
pub(super) fn on_other_node(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let node = cluster.nodes[0].name.clone();
    cluster.patch_object(&pod.endpoint, json!({"spec": {"nodeName": node}}));
    cluster.expect_in(
        &[Form::EtcdWithKubernetes],
        "endpoint-node-mismatch",
        pod.subject(),
    );
    for (address, _) in &pod.addresses {
        cluster.expect_in(&Form::WITH_PODS, "wrong-node-recorded", address);
    }
}

/// Records addresses of a service in its own pool. If the service exists, its ingress contains the first `named` of them.
fn victim_service(
    cluster: &mut Cluster,
    recorded: usize,
    named: Option<usize>,
) -> (String, IpNet, Vec<IpAddr>) {
    let (pool, cidr) = cluster.extra_pool();
    let block = cluster.put_service_block(&pool, cidr, 28, 1);
    let name = format!("service-{pool}");
    // The hash does not matter, since the record contains the service's name.
    let record = service_record(&format!("lb-{}", hostname_hash(&name)), "default", &name);
    let addresses: Vec<IpAddr> = (0..recorded)
        .map(|_| cluster.take_as(block, record.clone()))
        .collect();
    if let Some(named) = named {
        cluster.put_service("default", &name, &addresses[..named]);
    }
    (name, block, addresses)
}

pub(super) fn service_gone(cluster: &mut Cluster) {
    let (_, _, addresses) = victim_service(cluster, 1, None);
    cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", addresses[0], "service-gone");
}

pub(super) fn service_extra(cluster: &mut Cluster) {
    let (_, _, addresses) = victim_service(cluster, 2, Some(1));
    cluster.expect_in(&Form::WITH_PODS, "service-address-extra", addresses[1]);
}

pub(super) fn service_without_address(cluster: &mut Cluster) {
    let (name, ..) = victim_service(cluster, 0, Some(0));
    cluster.expect_in(
        &Form::WITH_PODS,
        "service-without-address",
        format!("default/{name}"),
    );
}

pub(super) fn service_unrecorded(cluster: &mut Cluster) {
    let (_, block, addresses) = victim_service(cluster, 1, Some(1));
    cluster.free(addresses[0], block);
    cluster.expect_in(&Form::WITH_PODS, "unallocated-in-use", addresses[0]);
}

/// Adds the address of a virtual machine that is gone. Returns the machine's name.
pub(super) fn machine_gone(cluster: &mut Cluster) -> String {
    let block = cluster.host().blocks[0];
    let machine = format!("vm-lost-{}", cluster.next_pod);
    cluster.next_pod += 1;
    let address = cluster.take_as(block, Attribute::bare(&machine_handle(&machine)));
    cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", address, "vm-gone");
    machine
}

pub(super) fn orphan_instance(cluster: &mut Cluster) {
    let machine = machine_gone(cluster);
    cluster.put_instance(&machine);
}

/// Adds a pool that covers the address of a service that is not a load balancer.
pub(super) fn pool_over_services(cluster: &mut Cluster) {
    // The API server of tests assigns service addresses only from this range.
    let number = cluster.next_pool as u8;
    let (pool, _) = cluster.extra_pool();
    let cidr = IpNet::from(Ipv4Net::new_assert([10, 96, number, 0].into(), 24));
    cluster.put_pool(&pool, cidr, 28, &json!({}));
    let address = IpAddr::from([10, 96, number, 10]);
    let spec = json!({"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
        "ports": [{"port": 443, "protocol": "TCP"}]});
    let service = json!({"spec": spec, "status": {"loadBalancer": {}}});
    cluster.put_kubernetes_only(&format!("services/default/internal-{pool}"), service);
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
            IpNet::new(block.addr(), prefix)
                .expect("a prefix of the family")
                .trunc()
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
    cluster.expect_as(
        &Form::IN_KUBERNETES,
        "pods-without-calico-ipam",
        "default",
        "warning",
    );
}
