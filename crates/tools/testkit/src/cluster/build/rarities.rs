//! Adds healthy nodes, blocks, machines and settings that few clusters have.

use ipnet::{IpNet, Ipv6Net};
use serde_json::json;

use crate::cluster::Cluster;
use crate::cluster::layout::{go_time, part};
use crate::cluster::wire::{Attribute, Tunnel, key};

impl Cluster {
    /// Adds pools with blocks of one address.
    pub(super) fn add_blocks_of_one_address(&mut self) {
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
            let blocks: Vec<IpNet> =
                cidr.subnets(single).expect("the longest prefix").skip(1).take(3).collect();
            for block in blocks {
                self.claim(block, &node);
                self.add_pod(&node, &[block]);
            }
        }
    }

    /// Adds a node whose affinities have a hash in their names, since the names of the node and the block together are
    /// too long.
    pub(super) fn add_node_with_a_long_name(&mut self) {
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
    pub(super) fn add_machine_between_two_owners(&mut self) {
        let (block, target) = (self.nodes[1].blocks[0], self.nodes[2].name.clone());
        let pod = self.machine_pod("vm-swapped", &target);
        let mut attribute = self.machine_record("vm-swapped", &pod);
        attribute.alternate = attribute.owner.take();
        let address = self.take_as(block, attribute);
        self.put_endpoint(&pod, &[address]);
        self.put_machine("vm-swapped", true);
    }

    /// Adds a KubeVirt instance without a machine. Its pod is currently missing.
    pub(super) fn add_instance_without_machine(&mut self) {
        let block = self.nodes[1].blocks[0];
        let pod = self.machine_pod("vmi-alone", "nowhere");
        let mut attribute = self.machine_record("vmi-alone", &pod);
        // The pod owned the address until it ended.
        attribute.owner = None;
        self.take_as(block, attribute);
        self.put_kubernetes_only("virtualmachineinstances/vms/vmi-alone", json!({"spec": {}}));
    }

    /// Adds a machine that does not keep its address. The address belongs to its pod, as for any pod.
    pub(super) fn add_machine_without_persistence(&mut self) {
        let (node, block) = (self.nodes[2].name.clone(), self.nodes[2].blocks[0]);
        let pod = self.machine_pod("vm-plain", &node);
        self.start(&pod, &pod.attribute(), &[block]);
        self.put_machine("vm-plain", true);
    }

    /// Adds two blocks without assigned addresses to a node. One block is free, and the other is partly reserved.
    pub(super) fn add_empty_blocks(&mut self) {
        let (node, number) = (self.nodes[2].name.clone(), self.nodes[2].number);
        let blocks = [self.spec.block_v4(number, 1), self.spec.block_v4(number, 3)];
        blocks.iter().for_each(|block| self.claim(*block, &node));
        self.put_reservation("quarter", 10, &[format!("{}/28", blocks[1].addr())]);
    }

    /// Adds the address of a pod that has no endpoint yet. The clock of the node that recorded the address is half a
    /// minute fast.
    pub(super) fn add_fast_clock(&mut self) {
        let (node, block) = (self.nodes[0].name.clone(), self.nodes[0].blocks[0]);
        let holder = self.holder(&node);
        let later =
            self.spec.now.saturating_add(jiff::SignedDuration::from_secs(30)).expect("a time in this era");
        let mut attribute: Attribute = holder.attribute();
        attribute.set("timestamp", &go_time(later));
        self.take_as(block, attribute);
    }

    /// Adds services that Calico does not serve, and one with an address of each family.
    pub(super) fn add_services_of_every_kind(&mut self) {
        let (_, cidr) = self.extra_pool();
        let mut pools = vec![("services", cidr, 28)];
        if self.spec.dual_stack {
            let cidr = Ipv6Net::new_assert("fd00:10:246::".parse().expect("an address"), 112).into();
            pools.push(("services-ipv6", cidr, 124));
        }
        let handle = "lb-bothFamiliesHaveOneHandleWhichIsAHash";
        let entries = [("service", "both"), ("namespace", "default"), ("type", "LoadBalancer")];
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
            ("of-metallb", "metallb.universe.tf/metallb", json!([{"ip": free, "ipMode": "VIP"}])),
            ("behind-a-name", "service.k8s.aws/nlb", json!([{"hostname": "lb-1.example.com"}])),
            ("of-a-cloud", "service.k8s.aws/nlb", json!([{"ip": "203.0.113.9", "ipMode": "VIP"}])),
        ] {
            let spec = json!({"type": "LoadBalancer", "ports": ports, "loadBalancerClass": class});
            let service = json!({"spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
            self.put_kubernetes_only(&format!("services/default/{name}"), service);
        }
        let external = json!({"status": {"loadBalancer": {}},
            "spec": {"type": "ClusterIP", "ports": ports, "externalIPs": [free]}});
        self.put_kubernetes_only("services/default/external", external);
    }

    /// Turns off the controller for services. One service waits for an address from elsewhere.
    pub(super) fn turn_load_balancer_controller_off(&mut self) {
        let key = key::resource("kubecontrollersconfigurations", "default");
        let value = String::from_utf8(self.remove(&key).value()).expect("JSON is text");
        let without = value.replace(r#""loadBalancer":{"assignIPs":"AllServices"},"#, "");
        assert_ne!(without, value, "the controller was on");
        self.put_raw(key, without);
        self.put_service("default", "by-hand", &[]);
    }
}
