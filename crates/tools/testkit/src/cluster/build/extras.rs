//! Features of healthy clusters, which a check must not report: of current ones, of earlier versions of Calico that
//! current versions still read (facts 1.3.1, 1.3.3, 1.4, 4.1), and KubeVirt's virtual machines (facts 2.14, 4.1), where
//! the address belongs to the machine and not to its pod.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::SignedDuration;
use serde_json::json;

use super::pods::{Holder, networks};
use super::service_record;
use crate::cluster::layout::{PodName, go_time, hash, part};
use crate::cluster::wire::key::{self, FOREIGN_NAMESPACE};
use crate::cluster::wire::{Attribute, Era, Tunnel, resource};
use crate::cluster::{Cluster, ClusterSpec, NodeInfo, Pod};

impl Cluster {
    /// Adds one of each feature. Needs at least two nodes.
    pub(in crate::cluster) fn add_extras(&mut self) {
        self.add_borrower();
        self.add_cooling();
        self.add_young();
        self.add_fixed();
        self.add_other_orchestrators();
        self.add_former_windows();
        self.add_renamed_node();
        self.add_pools();
        self.add_load_balancer();
        self.add_machines();
        self.add_old_writers();
        self.add_leftovers();
    }

    /// Adds features that the documentation's cluster does not have. They include an old handle with an address of each
    /// family, a record with only the sandbox, and a node with two tunnel addresses swapped.
    pub(super) fn add_rarities(&mut self) {
        let node = self.add_node();
        let name = self.nodes[node].name.clone();
        let blocks = self.nodes[node].blocks.clone();
        self.add_legacy_pod(&name, &blocks);
        self.add_container_pod(&name, blocks[0]);
        let tunnels = [Tunnel::Ipip, Tunnel::Vxlan];
        let [ipip, vxlan] = tunnels.map(|tunnel| self.tunnel(&name, tunnel).expect("every node has it"));
        self.set_tunnel(&name, Tunnel::Ipip, &vxlan.to_string());
        self.set_tunnel(&name, Tunnel::Vxlan, &ipip.to_string());
    }

    /// Adds a pod on the second node with an address from a block of the first node.
    fn add_borrower(&mut self) -> Pod {
        let lender = self.nodes[0].blocks.clone();
        let borrower = self.nodes[1].name.clone();
        self.add_pod(&borrower, &lender[..1])
    }

    /// Adds cooling addresses: several that share the record of their pod, and a single one.
    fn add_cooling(&mut self) {
        let node = self.nodes[0].name.clone();
        let block = self.nodes[0].blocks[0];
        self.add_cooling_addresses(&node, block, 2, 10);
        self.add_cooling_addresses(&node, block, 1, 10);
        // A block may contain nothing but cooling addresses.
        let block = self.spec.block_v4(self.nodes[0].number, 1);
        self.claim(block, &node);
        self.add_cooling_addresses(&node, block, 1, 5);
    }

    /// Adds addresses of a pod that were released some seconds ago.
    fn add_cooling_addresses(&mut self, node: &str, block: IpNet, count: i64, seconds: i64) {
        let holder = self.holder(node);
        let gone: Vec<_> = (0..count).map(|_| self.take(block, &holder)).collect();
        let released = self.spec.seconds_ago(seconds);
        self.block_mut(block).cool(&gone, &released);
        self.count(&holder.handle(), block, -count);
    }

    /// Adds allocations that are 20 seconds old and have no endpoints yet. They are the newest objects of the cluster,
    /// so that a file without its own time appears almost current. Needs at least two nodes.
    pub fn add_young(&mut self) {
        let node = self.nodes[1].name.clone();
        let blocks = self.nodes[1].blocks.clone();
        let holder = self.holder(&node);
        let since = self
            .spec
            .now
            .checked_sub(SignedDuration::from_secs(20))
            .expect("a time in this era");
        let holder = Holder { since, ..holder };
        for block in blocks {
            let address = self.take(block, &holder);
            self.young.push(address);
        }
    }

    /// Adds a pod with two requested addresses and a floating one that IPAM does not track.
    fn add_fixed(&mut self) {
        let node = self.nodes[0].name.clone();
        let block = self.nodes[0].blocks[0];
        let holder = self.holder(&node);
        let first = self.take(block, &holder);
        let mut later = holder.attribute();
        let time = holder
            .since
            .saturating_add(SignedDuration::from_millis(3))
            .expect("a time in this era");
        later.set("timestamp", &go_time(time));
        let second = self.take_as(block, later);
        self.put_endpoint(&holder, &[first, second]);
        self.json_mut(&holder.endpoint_key())["spec"]["ipNATs"] =
            json!([{"internalIP": first, "externalIP": "203.0.113.7"}]);
    }

    /// Adds endpoints of plain CNI and of Docker.
    fn add_other_orchestrators(&mut self) {
        let node = self.nodes[2].name.clone();
        let block = self.nodes[2].blocks[0];
        let holder = self.holder(&node);
        let address = self.take_as(block, holder.attribute_of(&holder.handle()));
        self.put_foreign("cni", &node, [&holder.container, "eth0"], 5, &[address]);

        let address = self.take_as(block, Attribute::default());
        self.put_foreign(
            "libnetwork",
            &node,
            ["libnetwork", &holder.container[..40]],
            5,
            &[address],
        );
    }

    /// Stores an endpoint of an orchestrator other than Kubernetes. Its metadata is derived from `thing`.
    pub(super) fn put_foreign(
        &mut self,
        orchestrator: &str,
        node: &str,
        [workload, interface]: [&str; 2],
        thing: u64,
        addresses: &[IpAddr],
    ) {
        let name = key::endpoint_name(node, orchestrator, workload, interface);
        let mut metadata = self.spec.metadata(&name, &mut self.spec.rng(thing));
        metadata["namespace"] = FOREIGN_NAMESPACE.into();
        // All containers of Docker are one workload.
        let field = if orchestrator == "libnetwork" {
            "workload"
        } else {
            "containerID"
        };
        let spec = json!({
            "orchestrator": orchestrator,
            field: workload,
            "node": node,
            "endpoint": interface,
            "ipNetworks": networks(addresses),
            "profiles": [],
            "interfaceName": "cali0a1b2c3d4e5",
            "mac": "ee:ee:ee:ee:ee:ee",
        });
        self.put_json(
            key::endpoint(FOREIGN_NAMESPACE, &name),
            resource("WorkloadEndpoint", metadata, spec),
        );
    }

    /// Adds a Linux node that ran Windows before under the same name. Its block still has the reserved ordinals, without a
    /// handle object. It runs no pods; a pod of another node has borrowed an address.
    fn add_former_windows(&mut self) {
        let node = self.add_node_with_reserved("linux", self.spec.dual_stack);
        self.add_tunnels(&node);
        let borrower = self.nodes[0].name.clone();
        self.add_pod(&borrower, &node.blocks[..1]);
    }

    /// Adds a Windows node without pods, which needs strict affinity.
    pub(in crate::cluster) fn add_windows(&mut self) -> (String, IpNet) {
        let node = self.add_node_with_reserved("windows", false);
        (node.name, node.blocks[0])
    }

    /// Adds a node without tunnels, whose IPv4 block has the ordinals that Windows reserves.
    fn add_node_with_reserved(&mut self, system: &str, has_v6: bool) -> NodeInfo {
        let name = format!("win-{}", self.next_node);
        let node = self.add_node_named(&name, system, has_v6);
        self.block_mut(node.blocks[0]).reserve_for_windows();
        node
    }

    /// Adds a node with another name in Kubernetes, and with a tunnel address that includes a mask.
    fn add_renamed_node(&mut self) {
        let node = self.add_node();
        self.add_pod_on(node);
        let name = self.nodes[node].name.clone();
        let kubernetes = "ip-192-168-0-9.eu-west-1.compute.internal";
        self.json_mut(&key::node(&name))["spec"]["orchRefs"][0]["nodeName"] = kubernetes.into();
        let address = self.tunnel(&name, Tunnel::Wireguard).expect("every node has it");
        self.set_tunnel(&name, Tunnel::Wireguard, &format!("{address}/32"));
    }

    /// Adds pools of every kind: disabled, for some nodes, for some namespaces, and for requests by name.
    fn add_pools(&mut self) {
        let node = self.nodes[0].name.clone();
        self.json_mut(&key::node(&node))["metadata"]["labels"]["rack"] = "a".into();
        for (kind, change) in [
            ("rack", json!({"nodeSelector": "rack == 'a' && !has(spare)"})),
            ("old", json!({"disabled": true})),
            // Tunnels belong to no namespace, so Calico does not use such a pool for them.
            (
                "team",
                json!({"namespaceSelector": "team == \"shop\"", "allowedUses": ["Workload"]}),
            ),
            ("manual", json!({"assignmentMode": "Manual"})),
        ] {
            let (_, cidr) = self.extra_pool();
            self.put_pool(&format!("{kind}-ippool"), cidr, 28, &change);
            if matches!(kind, "rack" | "old") {
                let block = part(cidr, 28, 0);
                self.claim(block, &node);
                self.add_pod(&node, &[block]);
            }
            if kind == "old" {
                // The node has released the block while an address was in use.
                let block = part(cidr, 28, 1);
                self.put_block(block, Some(format!("host:{node}")));
                self.add_pod(&node, &[block]);
                let stored = self.block_mut(block);
                (stored.affinity, stored.claim_time) = (None, None);
            }
        }
    }

    /// Creates a cluster that uses Calico IPAM only for services; pods and tunnels use host-local.
    pub fn with_services_only(spec: ClusterSpec) -> Self {
        let mut cluster = Self::plain(spec, 2, 3);
        let ipam = [
            "/calico/ipam/v2/host/",
            "/calico/ipam/v2/handle/",
            "/calico/ipam/v2/assignment/",
        ];
        ipam.iter().for_each(|prefix| cluster.remove_prefix(prefix));
        cluster.add_load_balancer();
        cluster
    }

    /// Adds services of type LoadBalancer, which exist only in Kubernetes.
    fn add_load_balancer(&mut self) {
        let (_, cidr) = self.extra_pool();
        let block = self.put_service_block("loadbalancer-ippool", cidr, 28, 3);
        let handles = [
            ("web", "default", "lb-gJQ1RAoOYNAQTWk3dC76lcU6rH4TdxLLDONLknY5xk"),
            ("front", "shop", "lb-4o2uYxJ7dHVqZ0bJr2nM1cPsKxWgTf9eLhR5vQaI3B"),
        ];
        for (service, namespace, handle) in handles {
            let address = self.take_as(block, service_record(handle, namespace, service));
            self.put_service(namespace, service, &[address]);
        }
    }

    /// Adds leftovers of old versions, and objects of other programs.
    fn add_leftovers(&mut self) {
        let node = self.nodes[0].name.clone();
        self.put_raw(format!("/calico/ipam/v2/host/{node}"), "");
        let policy = self.spec.metadata("knp.default.web", &mut self.spec.rng(6));
        let spec = json!({"selector": "app == 'web' && tier < 'x'", "types": ["Ingress"]});
        let key = key::resource("networkpolicies", "default/knp.default.web");
        self.put_json(key, resource("NetworkPolicy", policy, spec));
        // Up to Calico 3.32, a release by handle leaves a sequence number for a free ordinal.
        let block = self.nodes[2].blocks[0];
        let stored = self.block_mut(block);
        let free = stored.unallocated[0].to_string();
        stored.sequences.insert(free, stored.sequence - 1);
    }

    /// Adds a running, a migrating and a stopped machine.
    pub(super) fn add_machines(&mut self) {
        let node = self.nodes[1].name.clone();
        let block = self.nodes[1].blocks[0];
        let target = self.nodes[2].name.clone();
        self.start_machine("vm-1", &node, &[block]);

        let source = self.machine_pod("vm-2", &node);
        let destination = self.machine_pod("vm-2", &target);
        let mut attribute = self.machine_record("vm-2", &source);
        let mut other = self
            .machine_record("vm-2", &destination)
            .owner
            .unwrap_or_default();
        let migration = self.spec.rng(9).uuid();
        other.insert("vmim-uid".to_owned(), migration.clone());
        attribute.alternate = Some(other);
        let address = self.take_as(block, attribute);
        for pod in [&source, &destination] {
            self.put_endpoint(pod, &[address]);
        }
        let target = json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": migration}}});
        self.patch_object(&destination.endpoint_key(), target);
        self.put_machine("vm-2", true);

        self.take_as(block, Attribute::bare(&machine_handle("vm-3")));
        self.put_machine("vm-3", false);
    }

    /// Adds a running machine with one address from each block.
    pub(super) fn start_machine(&mut self, machine: &str, node: &str, blocks: &[IpNet]) {
        let pod = self.machine_pod(machine, node);
        self.start(&pod, &self.machine_record(machine, &pod), blocks);
        self.put_machine(machine, true);
    }

    pub(super) fn machine_pod(&mut self, machine: &str, node: &str) -> Holder {
        let holder = self.holder(node);
        let pod = format!("virt-launcher-{machine}-{}", &holder.container[..5]);
        let generate = String::new();
        Holder {
            name: PodName {
                namespace: "vms",
                pod,
                generate,
                app: "virt-launcher",
            },
            ..holder
        }
    }

    pub(super) fn machine_record(&self, machine: &str, pod: &Holder) -> Attribute {
        let mut attribute = Attribute {
            handle: Some(machine_handle(machine)),
            ..pod.attribute()
        };
        let mut rng = self.spec.rng(hash(0, machine));
        attribute.set("vmi-name", machine);
        attribute.set("vm-uid", &rng.uuid());
        attribute.set("vmi-uid", &rng.uuid());
        attribute
    }

    /// Adds nodes whose blocks were written by earlier versions.
    pub(super) fn add_old_writers(&mut self) {
        for (era, affinity) in [
            (Era::Numbered, None),
            (Era::Unnumbered, Some("{}")),
            (Era::Legacy, Some("")),
        ] {
            let node = self.add_node();
            self.add_pod_on(node);
            let name = self.nodes[node].name.clone();
            let block = self.nodes[node].blocks[0];
            if era == Era::Legacy {
                self.make_anonymous(&name, block);
            }
            self.add_legacy_pod(&name, &[block]);
            self.add_upgraded_pod(&name, block);
            self.block_mut(block).era = era;
            if let Some(value) = affinity {
                self.put_raw(key::affinity("host", &name, block), value);
            }
        }
        self.add_oldest();
    }

    /// Adds a pod with the handle `<namespace>.<pod>` and no attributes, as the CNI plugin of Calico 2.x records it.
    pub(in crate::cluster) fn add_legacy_pod(&mut self, node: &str, blocks: &[IpNet]) -> Pod {
        let holder = self.holder(node);
        let handle = format!("{}.{}", holder.name.namespace, holder.name.pod);
        self.start(&holder, &Attribute::bare(&handle), blocks)
    }

    /// Adds a pod whose record has no timestamp, as after an upgrade from host-local.
    fn add_upgraded_pod(&mut self, node: &str, block: IpNet) {
        let holder = self.holder(node);
        self.start(&holder, &holder.attribute_without_time(), &[block]);
    }

    /// Adds a pod whose record contains only the sandbox, as the CNI plugin before 3.6 writes it.
    pub(in crate::cluster) fn add_container_pod(&mut self, node: &str, block: IpNet) -> Pod {
        let holder = self.holder(node);
        self.start(&holder, &Attribute::bare(&holder.handle()), &[block])
    }

    /// Empties the record of the node's IP-in-IP address, as versions before 3.6 wrote it.
    fn make_anonymous(&mut self, node: &str, block: IpNet) {
        let address = self.tunnel(node, Tunnel::Ipip).expect("the node has the tunnel");
        *self.record_mut(address, block) = Attribute::default();
        self.count(&Tunnel::Ipip.handle(node), block, -1);
    }

    /// Adds a block with the owner field of the first versions in addition to the current one.
    fn add_oldest(&mut self) {
        let node = self.nodes[0].name.clone();
        let block = self.spec.block_v4(self.nodes[0].number, 2);
        self.claim(block, &node);
        self.add_pod(&node, &[block]);
        self.put_host_affinity(block, &node);
    }

    /// Adds the owner field of Calico's first versions to a block.
    pub(in crate::cluster) fn put_host_affinity(&mut self, block: IpNet, node: &str) {
        self.json_mut(&key::block(block))["hostAffinity"] = node.into();
    }
}

pub(in crate::cluster) fn machine_handle(machine: &str) -> String {
    format!("k8s-pod-network.vmi.vms.{machine}")
}
