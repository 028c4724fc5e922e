//! Healthy states of features that few clusters use.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;

use crate::cluster::layout::go_time;
use crate::cluster::wire::{Attribute, Tunnel};
use crate::cluster::{Cluster, ClusterSpec};

/// The features.
const ADD: [fn(&mut Cluster); 19] = [
    Cluster::add_machine_on_dotted_network,
    Cluster::add_migrated_machine,
    Cluster::add_bare_cni,
    Cluster::add_windows_vxlan,
    Cluster::add_openstack,
    Cluster::add_pods_of_another_plugin,
    Cluster::add_secondary_network,
    Cluster::add_second_network_of_early_multus,
    Cluster::add_pods_without_network,
    Cluster::add_blocks_of_one_address,
    Cluster::add_node_with_a_long_name,
    Cluster::add_machine_between_two_owners,
    Cluster::add_instance_without_machine,
    Cluster::add_machine_without_persistence,
    Cluster::add_empty_blocks,
    Cluster::add_fast_clock,
    Cluster::turn_load_balancer_controller_off,
    Cluster::add_pods_during_migration,
    Cluster::add_services_of_every_kind,
];

impl Cluster {
    /// Number of [features](Self::add_feature).
    pub const FEATURES: usize = ADD.len();
    /// The feature that turns off the controller for services, so that a service without an address causes no finding.
    pub const LOAD_BALANCER_OFF: usize = 16;

    /// Creates a small healthy cluster with every feature.
    pub fn featured(spec: ClusterSpec) -> Self {
        let mut cluster = Self::small(spec);
        (0..Self::FEATURES).for_each(|feature| cluster.add_feature(feature));
        cluster
    }

    /// Adds a feature. Call this at most once per feature. Needs at least three nodes.
    pub fn add_feature(&mut self, feature: usize) {
        ADD[feature](self);
    }

    /// Adds the address of a stopped machine on a network with a dot in its name.
    fn add_machine_on_dotted_network(&mut self) {
        let block = self.nodes[1].blocks[0];
        self.take_as(block, Attribute::bare("prod.net.vmi.vms.vm-dotted"));
        self.put_machine("vm-dotted", false);
    }

    /// Adds a machine that runs on a node other than the owner of its block.
    fn add_migrated_machine(&mut self) {
        let (blocks, target) = (self.nodes[1].blocks.clone(), self.nodes[2].name.clone());
        self.start_machine("vm-migrated", &target, &blocks);
    }

    /// Adds containers of bare CNI whose IDs are not hexadecimal, on networks with various names.
    fn add_bare_cni(&mut self) {
        let (node, block) = (self.nodes[2].name.clone(), self.nodes[2].blocks[0]);
        for network in ["nomad", "lb-net", "prod.net"] {
            let container = format!("t{:08}-{}", self.next_pod, network.replace('.', "-"));
            self.add_container(network, &container, &node, block);
        }
    }

    /// Adds a container without a pod, as a call of the CNI plugin does.
    pub(in crate::cluster) fn add_container(
        &mut self,
        network: &str,
        container: &str,
        node: &str,
        block: IpNet,
    ) -> IpAddr {
        let since = go_time(self.holder(node).since);
        let handle = format!("{network}.{container}");
        let attribute = Attribute::new(&handle, [("node", node), ("timestamp", since.as_str())]);
        let address = self.take_as(block, attribute);
        self.put_foreign("cni", node, [container, "eth0"], self.next_pod, &[address]);
        address
    }

    /// Adds a Windows node whose VXLAN address is an ordinal that Windows reserves in its block.
    fn add_windows_vxlan(&mut self) {
        let (name, block) = self.add_windows();
        let address = self.block_mut(block).address(1);
        self.set_tunnel(&name, Tunnel::Vxlan, &address.to_string());
    }

    /// Adds OpenStack ports. Neutron assigns their addresses and may share them, and the compute node is not a Calico
    /// node.
    fn add_openstack(&mut self) {
        let shared: IpAddr = [192, 168, 250, 1].into();
        let free = self.spec.block_v4(self.spec.max_nodes(), 3).addr();
        let thing = self.next_pod;
        self.put_foreign("openstack", "compute-1", ["port-one", "eth0"], thing, &[shared, free]);
        self.put_foreign("openstack", "compute-2", ["port-two", "eth0"], thing, &[shared]);
    }

    /// Stores a Kubernetes node without Calico.
    pub(in crate::cluster) fn put_foreign_node(&mut self) {
        let node = json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}, "spec": {},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.251.1"}]}});
        self.put_kubernetes_only("nodes//fargate-1", node);
    }

    /// Adds a pod on a Kubernetes node without Calico.
    fn add_pods_of_another_plugin(&mut self) {
        self.put_foreign_node();
        self.put_running_pod("pods/hybrid/hybrid-1", "fargate-1", [192, 168, 251, 2].into());
    }

    /// Adds a pod with a flannel address on a Calico node, as during a migration from flannel. Such a migration needs
    /// Kubernetes as the datastore.
    fn add_pods_during_migration(&mut self) {
        let node = self.nodes[0].name.clone();
        let path = "pods/flannel/flannel-1".to_owned();
        self.put_running_pod(&path, &node, [192, 168, 253, 2].into());
        self.kubernetes_only.only_in_kubernetes_datastore.insert(path);
    }

    /// Adds a pod with Calico as a secondary network under Multus. Its status has the other plugin's address.
    fn add_secondary_network(&mut self) {
        let pod = self.add_pod_on(1);
        let status = json!([
            {"name": "cilium", "default": true, "ips": ["192.168.252.3"]},
            {"name": "default/calico", "interface": "net1", "ips": pod.all_addresses()},
        ]);
        let patch = json!({
            "metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": status.to_string()}},
            "status": {"podIP": "192.168.252.3", "podIPs": [{"ip": "192.168.252.3"}]},
        });
        self.patch_object(&pod.endpoint, patch);
    }

    /// Adds a pod that requested an address without IPAM. Only its pod object shows the request.
    pub(in crate::cluster) fn add_bypassing_pod(&mut self) -> IpAddr {
        let pod = self.victim();
        let address = self.spare_block().addr();
        self.add_address(&pod.endpoint, address);
        let annotations = json!({"cni.projectcalico.org/ipAddrsNoIpam": json!([address]).to_string()});
        self.patch_object(&pod.endpoint, json!({"metadata": {"annotations": annotations}}));
        address
    }
}
