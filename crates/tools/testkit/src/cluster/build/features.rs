//! Healthy states of features that few clusters use.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use serde_json::{Value, json};

use crate::cluster::layout::{go_time, part};
use crate::cluster::wire::{Attribute, Tunnel, key, merge};
use crate::cluster::{Cluster, ClusterSpec};

/// The features.
const ADD: [fn(&mut Cluster); 18] = [
    Cluster::add_machine_on_dotted_network,
    Cluster::add_migrated_machine,
    Cluster::add_bare_cni,
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
    pub const LOAD_BALANCER_OFF: usize = 15;

    /// Creates a small healthy cluster with every feature.
    pub fn featured(spec: ClusterSpec) -> Self {
        let mut cluster = Self::small(spec);
        (0..Self::FEATURES).for_each(|feature| cluster.add_feature(feature));
        cluster
    }

    /// Creates a healthy cluster with two Windows nodes, which need strict affinity: one with a pod, and one whose VXLAN
    /// address is an ordinal that Windows reserves in its block.
    pub fn with_windows(spec: ClusterSpec) -> Self {
        let mut cluster = Self::plain(spec, 3, 2);
        cluster.change_settings(&json!({"strictAffinity": true}));
        let (with_pod, block) = cluster.add_windows();
        cluster.add_pod(&with_pod, &[block]);

        let (with_tunnel, block) = cluster.add_windows();
        let address = cluster.block_mut(block).address(1);
        cluster.set_tunnel(&with_tunnel, Tunnel::Vxlan, &address.to_string());
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
        let blocks = self.nodes[1].blocks.clone();
        let target = self.nodes[2].name.clone();
        self.start_machine("vm-migrated", &target, &blocks);
    }

    /// Adds containers of bare CNI whose IDs are not hexadecimal, on networks with various names.
    fn add_bare_cni(&mut self) {
        let node = self.nodes[2].name.clone();
        let block = self.nodes[2].blocks[0];
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
        let attribute = self.holder(node).attribute_of(&format!("{network}.{container}"));
        let address = self.take_as(block, attribute);
        self.put_foreign("cni", node, [container, "eth0"], self.next_pod, &[address]);
        address
    }

    /// Adds OpenStack ports. Neutron assigns their addresses and may share them, and the compute node is not a Calico
    /// node.
    fn add_openstack(&mut self) {
        let shared: IpAddr = [192, 168, 250, 1].into();
        let free = self.spec.block_v4(self.spec.max_nodes(), 3).addr();
        let thing = self.next_pod;
        self.put_foreign(
            "openstack",
            "compute-1",
            ["port-one", "eth0"],
            thing,
            &[shared, free],
        );
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

    /// Adds pools with blocks of one address.
    fn add_blocks_of_one_address(&mut self) {
        let node = self.nodes[0].name.clone();
        let (name, cidr) = self.extra_pool();
        let mut pools = vec![(name, cidr)];
        if self.spec.dual_stack {
            let cidr = Ipv6Net::new_assert("fd00:10:245::".parse().expect("an address"), 64).into();
            pools.push(("single-ipv6".to_owned(), cidr));
        }
        for (name, cidr) in pools {
            let single = cidr.max_prefix_len();
            self.put_pool(&name, cidr, single, &json!({}));
            let blocks: Vec<IpNet> = cidr
                .subnets(single)
                .expect("the longest prefix")
                .skip(1)
                .take(3)
                .collect();
            for block in blocks {
                self.claim(block, &node);
                self.add_pod(&node, &[block]);
            }
        }
    }

    /// Adds a node whose affinities have a hash in their names, since the names of the node and the block together are
    /// too long.
    fn add_node_with_a_long_name(&mut self) {
        let part = "a-part-of-a-name-of-52-letters-as-providers-make-it";
        let name = format!("worker-{}.{}.example.com", self.next_node, [part; 4].join("."));
        let block = self.add_node_named(&name, "linux", false).blocks[0];
        for tunnel in [Tunnel::Ipip, Tunnel::Wireguard] {
            self.add_tunnel(&name, tunnel, block);
        }
        self.add_pod(&name, &[block]);
    }

    /// Adds a machine during a live migration. The source pod no longer exists, but the target pod is not the active
    /// owner of the address yet.
    fn add_machine_between_two_owners(&mut self) {
        let block = self.nodes[1].blocks[0];
        let target = self.nodes[2].name.clone();
        let pod = self.machine_pod("vm-swapped", &target);
        let mut attribute = self.machine_record("vm-swapped", &pod);
        attribute.alternate = attribute.owner.take();
        let address = self.take_as(block, attribute);
        self.put_endpoint(&pod, &[address]);
        self.put_machine("vm-swapped", true);
    }

    /// Adds a KubeVirt instance without a machine. Its pod is currently missing.
    fn add_instance_without_machine(&mut self) {
        let block = self.nodes[1].blocks[0];
        let pod = self.machine_pod("vmi-alone", "nowhere");
        let mut attribute = self.machine_record("vmi-alone", &pod);
        // The pod owned the address until it ended.
        attribute.owner = None;
        self.take_as(block, attribute);
        self.put_kubernetes_only("virtualmachineinstances/vms/vmi-alone", json!({"spec": {}}));
    }

    /// Adds a machine that does not keep its address. The address belongs to its pod, as for any pod.
    fn add_machine_without_persistence(&mut self) {
        let node = self.nodes[2].name.clone();
        let block = self.nodes[2].blocks[0];
        let pod = self.machine_pod("vm-plain", &node);
        self.start(&pod, &pod.attribute(), &[block]);
        self.put_machine("vm-plain", true);
    }

    /// Adds two blocks without assigned addresses to a node. One block is free, and the other is partly reserved.
    fn add_empty_blocks(&mut self) {
        let node = self.nodes[2].name.clone();
        let number = self.nodes[2].number;
        let blocks = [self.spec.block_v4(number, 1), self.spec.block_v4(number, 3)];
        blocks.iter().for_each(|block| self.claim(*block, &node));
        self.put_reservation("quarter", 10, &[format!("{}/28", blocks[1].addr())]);
    }

    /// Adds the address of a pod that has no endpoint yet. The clock of the node that recorded the address is half a
    /// minute fast.
    fn add_fast_clock(&mut self) {
        let node = self.nodes[0].name.clone();
        let block = self.nodes[0].blocks[0];
        let holder = self.holder(&node);
        let later = self
            .spec
            .now
            .saturating_add(jiff::SignedDuration::from_secs(30))
            .expect("a time in this era");
        let mut attribute: Attribute = holder.attribute();
        attribute.set("timestamp", &go_time(later));
        self.take_as(block, attribute);
    }

    /// Adds services that Calico does not serve, and one with an address of each family.
    fn add_services_of_every_kind(&mut self) {
        let (_, cidr) = self.extra_pool();
        let mut pools = vec![("services", cidr, 28)];
        if self.spec.dual_stack {
            let cidr = Ipv6Net::new_assert("fd00:10:246::".parse().expect("an address"), 112).into();
            pools.push(("services-ipv6", cidr, 124));
        }
        let handle = "lb-bothFamiliesHaveOneHandleWhichIsAHash";
        let entries = [
            ("service", "both"),
            ("namespace", "default"),
            ("type", "LoadBalancer"),
        ];
        let mut addresses = Vec::new();
        for (name, cidr, prefix) in pools {
            let block = self.put_service_block(name, cidr, prefix, 0);
            addresses.push(self.take_as(block, Attribute::new(handle, entries)));
        }
        self.put_service("default", "both", &addresses);

        // The first service has another controller and an address from a pool, the second has a hostname, and the third
        // has an address of a cloud provider.
        let free = part(cidr, 28, 3).addr();
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        for (name, class, ingress) in [
            (
                "of-metallb",
                "metallb.universe.tf/metallb",
                json!([{"ip": free, "ipMode": "VIP"}]),
            ),
            (
                "behind-a-name",
                "service.k8s.aws/nlb",
                json!([{"hostname": "lb-1.example.com"}]),
            ),
            (
                "of-a-cloud",
                "service.k8s.aws/nlb",
                json!([{"ip": "203.0.113.9", "ipMode": "VIP"}]),
            ),
        ] {
            let spec = json!({"type": "LoadBalancer", "ports": ports, "loadBalancerClass": class});
            let service = json!({"spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
            self.put_kubernetes_only(&format!("services/default/{name}"), service);
        }
        let external = json!({"status": {"loadBalancer": {}},
            "spec": {"type": "ClusterIP", "ports": ports, "externalIPs": [free]}});
        self.put_kubernetes_only("services/default/external", external);
    }

    /// Turns off the controller for services. One service has an address from elsewhere, and one waits for it.
    fn turn_load_balancer_controller_off(&mut self) {
        let key = key::resource("kubecontrollersconfigurations", "default");
        let value = String::from_utf8(self.remove(&key).value()).expect("JSON is text");
        let without = value.replace(r#""loadBalancer":{"assignIPs":"AllServices"},"#, "");
        assert_ne!(without, value, "the controller was on");
        self.put_raw(key, without);
        self.put_service("default", "of-elsewhere", &[[203, 0, 113, 10].into()]);
        self.put_service("default", "by-hand", &[]);
    }

    /// Stores a running pod without a Calico endpoint, at `pods/<namespace>/<name>`.
    pub(in crate::cluster) fn put_running_pod(&mut self, path: &str, node: &str, address: IpAddr) {
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        self.put_pod_object(path, json!({}), json!({ "nodeName": node }), status);
    }

    fn put_pod_object(&mut self, path: &str, metadata: Value, mut spec: Value, status: Value) {
        spec["containers"] = json!([{"name": "main", "image": "registry.example.com/main:1"}]);
        self.put_kubernetes_only(
            path,
            json!({"metadata": metadata, "spec": spec, "status": status}),
        );
    }

    /// Adds a pod with an address on a second Calico network, which an early Multus recorded under the annotation's old
    /// name. In Kubernetes, a single pod replaces the two endpoints in etcd.
    fn add_second_network_of_early_multus(&mut self) {
        let pod = self.add_pod_on(1);
        let container = pod.handle.rsplit('.').next().unwrap_or_default().to_owned();
        let handle = format!("second-net.{container}");
        let mut record = self.record_mut(pod.address(), pod.block()).clone();
        record.handle = Some(handle);
        let second = self.take_as(pod.block(), record);

        let name = key::endpoint_name(&pod.node, "k8s", &pod.name.pod, "net1");
        let key = key::endpoint(pod.name.namespace, &name);
        let mut endpoint = self.json(&pod.endpoint);
        merge(
            &mut endpoint,
            &json!({"metadata": {"name": name}, "spec": {"endpoint": "net1"}}),
        );
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
    fn add_pods_without_network(&mut self) {
        let running = self.add_pod_on(0);
        let node = running.node.clone();
        let used = running.address();
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
        self.put_pod_object(
            "pods/odd/terminating",
            deleted,
            on_node,
            status("Running", used, "True"),
        );
        let host = json!({"nodeName": node, "hostNetwork": true});
        let status = status("Running", [192, 168, 0, 1].into(), "True");
        self.put_pod_object("pods/odd/host-networked", json!({}), host, status);
    }
}
