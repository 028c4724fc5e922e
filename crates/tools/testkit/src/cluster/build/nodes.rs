//! Adds nodes with their blocks and tunnels.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::cluster::wire::{Attribute, Tunnel, key, resource};
use crate::cluster::{Cluster, NodeInfo};

impl Cluster {
    /// Adds a Linux node with a block of each family and every kind of tunnel; returns its index in [`Cluster::nodes`].
    pub fn add_node(&mut self) -> usize {
        let name = format!("node-{}", self.next_node);
        let info = self.add_node_named(&name, "linux", self.spec.dual_stack);
        for tunnel in Tunnel::ALL {
            if let Some(block) = info.block_for(tunnel) {
                self.add_tunnel(&name, tunnel, block);
            }
        }
        self.nodes.len() - 1
    }

    /// Adds a node without tunnels. It has a block of IPv4 and, if asked, one of IPv6.
    pub(super) fn add_node_named(&mut self, name: &str, system: &str, has_v6: bool) -> NodeInfo {
        let number = self.next_node;
        assert!(number <= self.spec.max_nodes(), "no room for node {number}; ask for a wide cluster");
        self.next_node += 1;
        let mut blocks = vec![self.spec.block_v4(number, 0)];
        if has_v6 {
            blocks.push(self.spec.block_v6(number, 0));
        }
        for block in &blocks {
            self.claim(*block, name);
        }
        self.put_node(number, name, system);
        let info = NodeInfo { name: name.to_owned(), number, blocks };
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
        let labels: Value = labels.into_iter().map(|(name, value)| (name, json!(value))).collect();
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
        let mut node = resource("Node", metadata, spec);
        node["status"] = json!({});
        self.put_json(key::node(name), node);
    }

    /// Assigns an address to a tunnel and writes it to the node.
    pub(in crate::cluster) fn add_tunnel(&mut self, node: &str, tunnel: Tunnel, block: IpNet) -> IpAddr {
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
