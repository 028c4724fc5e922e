//! Builds healthy clusters, piece by piece.

mod extras;
mod features;
mod pods;

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::layout::{ALONE, ClusterSpec, hash, part};
use super::wire::{self, Attribute, Block, Tunnel, key, merge};
use super::{Cluster, NodeInfo, Object};

pub(super) use self::extras::machine_handle;
pub(super) use self::pods::networks;
pub(crate) use self::pods::{Holder, endpoint_of};

/// The GUID of a generated cluster.
const GUID: &str = "0f0e1d2c3b4a59687786951423324150";

/// The owner record of a service's address.
pub(super) fn service_record(handle: &str, namespace: &str, service: &str) -> Attribute {
    let entries = [
        ("service", service),
        ("namespace", namespace),
        ("type", "LoadBalancer"),
        ("timestamp", "2026-05-01 10:12:00.5 +0000 UTC"),
    ];
    Attribute::new(handle, entries)
}

impl Cluster {
    /// Creates a small healthy cluster with everything that a check must not report.
    pub fn small(spec: ClusterSpec) -> Self {
        let mut cluster = Self::plain(spec, 4, 5);
        cluster.add_extras();
        cluster.add_rarities();
        cluster
    }

    /// Creates a healthy cluster of `nodes` nodes with `pods` pods each.
    pub fn plain(spec: ClusterSpec, nodes: u32, pods: usize) -> Self {
        let mut cluster = Self::with_configuration(spec);
        for _ in 0..nodes {
            let node = cluster.add_node();
            for _ in 0..pods {
                cluster.add_pod_on(node);
            }
        }
        cluster
    }

    /// Creates a cluster without nodes: pools, configuration and cluster information.
    pub fn with_configuration(spec: ClusterSpec) -> Self {
        let mut cluster = Self::bare(spec);
        cluster.add_default_pools();
        cluster.put_configuration();
        cluster
    }

    /// Creates an empty cluster.
    pub(super) fn bare(spec: ClusterSpec) -> Self {
        Self {
            spec,
            next_node: 1,
            next_pod: 1,
            ..Self::default()
        }
    }

    /// Sets a field of the cluster information.
    pub fn set_information(&mut self, field: &str, value: impl Into<Value>) {
        self.json_mut(&key::resource("clusterinformations", "default"))["spec"][field] = value.into();
    }

    fn put_configuration(&mut self) {
        let guid = match self.spec.place {
            ALONE => GUID.to_owned(),
            place => format!("{place:08x}{}", &GUID[8..]),
        };
        let information = json!({"clusterGUID": guid, "clusterType": "k8s,bgp", "calicoVersion": "v3.32.1",
            "datastoreReady": true});
        self.put_resource("ClusterInformation", "default", 1, information);
        let mut rng = self.spec.rng(1);
        // The first numbers are those of the cluster information.
        self.spec.metadata("default", &mut rng);
        let metadata = self.spec.metadata("default", &mut rng);
        self.put_raw(
            key::resource("kubecontrollersconfigurations", "default"),
            wire::kube_controllers(&metadata, "15m0s"),
        );
        self.put_raw(
            key::resource("tiers", "default"),
            r#"{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}}"#,
        );
        self.put_json(key::IPAM_CONFIG, json!({}));
        self.put_resource("IPAMConfiguration", "default", 2, json!({}));
        let cooldown = (self.spec.cooldown_seconds > 0).then_some(self.spec.cooldown_seconds);
        self.change_settings(&json!({"strictAffinity": false, "autoAllocateBlocks": true,
            "kubeVirtVMAddressPersistence": "Enabled", "ipCooldownSeconds": cooldown}));
    }

    /// Changes settings of the allocator, and of the resource that mirrors them.
    pub fn change_settings(&mut self, change: &Value) {
        merge(self.json_mut(key::IPAM_CONFIG), &wire::ipam_config(change));
        merge(&mut self.mirrored_settings()["spec"], change);
    }

    /// The resource IPAMConfiguration.
    pub(super) fn mirrored_settings(&mut self) -> &mut Value {
        self.json_mut(&key::resource("ipamconfigurations", "default"))
    }

    /// Stores a cluster-scoped resource. Its metadata is derived from `thing`.
    pub(super) fn put_resource(&mut self, kind: &str, name: &str, thing: u64, spec: Value) {
        let metadata = self.spec.metadata(name, &mut self.spec.rng(thing));
        let plural = format!("{}s", kind.to_lowercase());
        self.put_json(key::resource(&plural, name), wire::resource(kind, metadata, spec));
    }

    /// Adds an empty block with a confirmed affinity.
    pub(super) fn claim(&mut self, net: IpNet, node: &str) {
        self.put_block(net, Some(format!("host:{node}")));
        self.put_affinity("host", node, net, "confirmed");
    }

    /// Adds an empty block without an affinity object.
    pub(super) fn put_block(&mut self, net: IpNet, owner: Option<String>) {
        let spec = self.spec;
        let thing = u128::from_be_bytes(match net.network() {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        });
        let age = 30 * 86_400 + spec.rng(thing as u64).below(86_400) as i64;
        let nanoseconds = spec.now.as_nanosecond() - i128::from(age) * 1_000_000_000;
        let claimed = owner.is_some().then(|| spec.seconds_ago(age));
        let block = Block::new(net, owner, claimed, nanoseconds as u64);
        self.put(key::block(net), Object::Block(block));
    }

    /// Adds a pool for services, and its block with this number. Returns the block.
    pub(super) fn put_service_block(&mut self, pool: &str, cidr: IpNet, prefix: u8, number: usize) -> IpNet {
        self.put_pool(
            pool,
            cidr,
            prefix,
            &json!({"allowedUses": ["LoadBalancer"], "ipipMode": "Never"}),
        );
        let block = part(cidr, prefix, number);
        self.put_block(block, Some("virtual:load-balancer".to_owned()));
        self.put_affinity("virtual", "load-balancer", block, "confirmed");
        block
    }

    /// Adds an affinity object.
    pub(super) fn put_affinity(&mut self, kind: &str, holder: &str, net: IpNet, state: &str) {
        self.put_raw(key::affinity(kind, holder, net), wire::affinity(state));
    }

    /// Returns a block of the default pool that nothing else uses.
    pub(super) fn spare_block(&mut self) -> IpNet {
        self.host_blocks += 1;
        self.next_spare += 1;
        self.spec.spare_block_v4(self.next_spare - 1)
    }

    /// Stores a reservation, and the pools that all nodes use, one for each family.
    pub(super) fn add_default_pools(&mut self) {
        let v4 = self.spec.pool_v4();
        let v6 = self.spec.pool_v6();
        self.put_pool("default-ipv4-ippool", v4, 26, &json!({}));
        let mut reserved = vec![format!("{}/32", v4.addr())];
        if self.spec.dual_stack {
            self.put_pool("default-ipv6-ippool", v6, 122, &json!({"vxlanMode": "Always"}));
            reserved.push(format!("{}/120", v6.addr()));
        }
        self.put_reservation("infra", 3, &reserved);
    }

    /// Stores a reservation. Its metadata is derived from `thing`.
    pub(super) fn put_reservation(&mut self, name: &str, thing: u64, cidrs: &[String]) {
        self.put_resource("IPReservation", name, thing, json!({ "reservedCIDRs": cidrs }));
    }

    /// Stores a pool for pods and tunnels of all nodes, with the defaults of current clients and a change of them.
    pub(super) fn put_pool(&mut self, name: &str, cidr: IpNet, block_size: u8, change: &Value) {
        let ipip_mode = if cidr.addr().is_ipv4() { "Always" } else { "Never" };
        let mut pool = json!({"cidr": cidr, "vxlanMode": "Never", "ipipMode": ipip_mode, "natOutgoing": true,
            "blockSize": block_size, "nodeSelector": "all()", "allowedUses": ["Workload", "Tunnel"],
            "assignmentMode": "Automatic"});
        merge(&mut pool, change);
        self.put_resource("IPPool", name, hash(4, name), pool);
    }

    /// Adds an extra pool, and returns its CIDR.
    pub(super) fn add_extra_pool(&mut self, block_size: u8, change: &Value) -> IpNet {
        let (name, cidr) = self.extra_pool();
        self.put_pool(&name, cidr, block_size, change);
        cidr
    }

    /// Returns a name and a CIDR for an extra pool.
    pub(super) fn extra_pool(&mut self) -> (String, IpNet) {
        let number = self.next_pool;
        self.next_pool += 1;
        (format!("extra-{number}"), self.spec.extra_pool(number))
    }

    /// Adds a Linux node with a block of each family and every kind of tunnel; returns its index in [`Cluster::nodes`].
    pub fn add_node(&mut self) -> usize {
        let name = format!("node-{}", self.next_node);
        let info = self.add_node_named(&name, "linux", self.spec.dual_stack);
        self.add_tunnels(&info);
        self.nodes.len() - 1
    }

    /// Adds all tunnels of a node for which it has blocks.
    fn add_tunnels(&mut self, node: &NodeInfo) {
        for tunnel in Tunnel::ALL {
            if let Some(block) = node.block_for(tunnel) {
                self.add_tunnel(&node.name, tunnel, block);
            }
        }
    }

    /// Adds a node without tunnels. It has a block of IPv4 and, if asked, one of IPv6.
    fn add_node_named(&mut self, name: &str, system: &str, has_v6: bool) -> NodeInfo {
        let number = self.next_node;
        assert!(
            number <= self.spec.max_nodes(),
            "no room for node {number}; ask for a wide cluster"
        );
        self.next_node += 1;
        let mut blocks = vec![self.spec.block_v4(number, 0)];
        if has_v6 {
            blocks.push(self.spec.block_v6(number, 0));
        }
        for block in &blocks {
            self.claim(*block, name);
        }
        self.put_node(number, name, system);
        let info = NodeInfo {
            name: name.to_owned(),
            number,
            blocks,
        };
        self.nodes.push(info.clone());
        info
    }

    fn put_node(&mut self, number: u32, name: &str, system: &str) {
        let mut rng = self.spec.rng(0x6e6f_6465 << 32 | u64::from(number));
        // A label has at most 63 characters, and a name may have more.
        let hostname = name.get(..63).unwrap_or(name).trim_end_matches(['-', '.']);
        let labels = [
            ("beta.kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", system),
            ("kubernetes.io/arch", "amd64"),
            ("kubernetes.io/hostname", hostname),
            ("kubernetes.io/os", system),
        ];
        let labels: Value = labels
            .into_iter()
            .map(|(name, value)| (name, json!(value)))
            .collect();
        let mut metadata = self.spec.metadata(name, &mut rng);
        metadata["annotations"] = json!({"projectcalico.org/kube-labels": labels.to_string()});
        metadata["labels"] = labels;
        let address = format!("192.168.{}.{}", number >> 8, number & 255);
        let masked = format!("{address}/16");
        let addresses = json!([
            {"address": masked, "type": "CalicoNodeIP"},
            {"address": address, "type": "InternalIP"},
        ]);
        let spec = json!({"bgp": {"ipv4Address": masked}, "addresses": addresses,
            "orchRefs": [{"nodeName": name, "orchestrator": "k8s"}]});
        let mut node = wire::resource("Node", metadata, spec);
        node["status"] = json!({});
        self.put_json(key::node(name), node);
    }

    /// Assigns an address to a tunnel and writes it to the node.
    pub(super) fn add_tunnel(&mut self, node: &str, tunnel: Tunnel, block: IpNet) -> IpAddr {
        let entries = [("node", node), ("type", tunnel.attribute())];
        let address = self.take_as(block, Attribute::new(&tunnel.handle(node), entries));
        self.set_tunnel(node, tunnel, &address.to_string());
        if matches!(tunnel, Tunnel::Wireguard) {
            self.json_mut(&key::node(node))["status"] =
                json!({"wireguardPublicKey": "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="});
        }
        address
    }
}
