//! Adds healthy pods whose object differs from the endpoint.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::wire::{key, merge};

impl Cluster {
    /// Stores a running pod without a Calico endpoint, at `pods/<namespace>/<name>`.
    pub(in crate::cluster) fn put_running_pod(&mut self, path: &str, node: &str, address: IpAddr) {
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        self.put_pod_object(path, json!({}), json!({ "nodeName": node }), status);
    }

    fn put_pod_object(&mut self, path: &str, metadata: Value, mut spec: Value, status: Value) {
        spec["containers"] = json!([{"name": "main", "image": "registry.example.com/main:1"}]);
        self.put_kubernetes_only(path, json!({"metadata": metadata, "spec": spec, "status": status}));
    }

    /// Adds a pod with an address on a second Calico network, which an early Multus recorded under the annotation's old
    /// name. In Kubernetes, a single pod replaces the two endpoints in etcd.
    pub(super) fn add_second_network_of_early_multus(&mut self) {
        let pod = self.add_pod_on(1);
        let container = pod.handle.rsplit('.').next().unwrap_or_default().to_owned();
        let handle = format!("second-net.{container}");
        let mut record = self.record_mut(pod.address(), pod.block()).clone();
        record.handle = Some(handle);
        let second = self.take_as(pod.block(), record);

        let name = key::endpoint_name(&pod.node, "k8s", &pod.name.pod, "net1");
        let key = key::endpoint(pod.name.namespace, &name);
        let mut endpoint = self.json(&pod.endpoint);
        merge(&mut endpoint, &json!({"metadata": {"name": name}, "spec": {"endpoint": "net1"}}));
        self.put_json(key.as_str(), endpoint);
        self.set_addresses(&key, &[second]);
        self.leave_object_out(&key);

        let networks = json!([
            {"name": "k8s-pod-network", "default": true, "ips": pod.all_addresses()},
            {"name": "default/second-net", "interface": "net1", "ips": [second]},
        ]);
        let annotations = json!({"k8s.v1.cni.cncf.io/networks-status": networks.to_string()});
        self.patch_object(&pod.endpoint, json!({"metadata": {"annotations": annotations}}));
    }

    /// Adds pods that have lost their network and whose status still contains an address: either that of another pod,
    /// or a free one.
    pub(super) fn add_pods_without_network(&mut self) {
        let running = self.add_pod_on(0);
        let (node, used) = (running.node.clone(), running.address());
        let free = self.spec.block_v4(self.spec.max_nodes(), 0).addr();
        // The annotations after the CNI plugin has removed a sandbox.
        let blank = json!({"annotations": {"cni.projectcalico.org/containerID": "",
            "cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""}});
        let on_node = json!({ "nodeName": node });
        let status = |phase: &str, address: IpAddr, ready: &str| {
            let conditions = ["PodReadyToStartContainers", "Ready"];
            let conditions = conditions.map(|kind| json!({"type": kind, "status": ready}));
            json!({"phase": phase, "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions})
        };

        // The containers of these pods had run when the node restarted, and the new sandbox does not exist yet.
        for (path, address) in [("pods/odd/restarting-1", used), ("pods/odd/restarting-2", free)] {
            let status = status("Pending", address, "False");
            self.put_pod_object(path, blank.clone(), on_node.clone(), status);
        }
        let done = status("Succeeded", used, "False");
        self.put_pod_object("pods/odd/done", blank.clone(), on_node.clone(), done);
        let mut deleted = blank;
        deleted["deletionTimestamp"] = self.spec.seconds_ago(5).into();
        deleted["deletionGracePeriodSeconds"] = 30.into();
        self.put_pod_object("pods/odd/terminating", deleted, on_node, status("Running", used, "True"));
        let host = json!({"nodeName": node, "hostNetwork": true});
        let status = status("Running", [192, 168, 0, 1].into(), "True");
        self.put_pod_object("pods/odd/host-networked", json!({}), host, status);
    }
}
