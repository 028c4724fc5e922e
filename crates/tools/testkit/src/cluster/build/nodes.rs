//! Adds nodes with their blocks and tunnels.

use ipnet::IpNet;
use serde_json::json;

use crate::cluster::wire::{Attribute, Metadata, Node, OrchRef, Tunnel, key};
use crate::cluster::{Cluster, NodeInfo, Object};

impl Cluster {
    /// Adds a Linux node with a block of each family and every kind of tunnel; returns its index in [`Cluster::nodes`].
    pub fn add_node(&mut self) -> usize {
        let name = format!("node-{}", self.next_node);
        let blocks = self.add_node_named(&name, "linux", self.spec.dual_stack).blocks;
        for tunnel in Tunnel::ALL {
            let family = blocks.iter().find(|b| b.addr().is_ipv6() == tunnel.is_v6());
            if let Some(block) = family.copied() {
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
        let labels: std::collections::BTreeMap<_, _> =
            labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let copied = serde_json::to_string(&labels).expect("texts serialise");
        let metadata = Metadata {
            labels,
            annotations: [("projectcalico.org/kube-labels".to_owned(), copied)].into(),
            ..self.spec.metadata(name, &mut rng)
        };
        let mut node = Node::new("Node", metadata, Default::default());
        let address = format!("192.168.{}.{}", number >> 8, number & 255);
        node.spec.bgp.ipv4_address = format!("{address}/16");
        node.spec.orch_refs.push(OrchRef { node_name: name.to_owned(), orchestrator: "k8s".to_owned() });
        for (address, kind) in [(format!("{address}/16"), "CalicoNodeIP"), (address, "InternalIP")] {
            let kind = kind.to_owned();
            node.spec.addresses.push(crate::cluster::wire::NodeAddress { address, kind });
        }
        node.status = Some(json!({}));
        self.put(key::node(name), Object::Node(Box::new(node)));
    }

    /// Assigns an address to a tunnel and writes it to the node.
    pub(in crate::cluster) fn add_tunnel(
        &mut self,
        node: &str,
        tunnel: Tunnel,
        block: IpNet,
    ) -> std::net::IpAddr {
        let entries = [("node", node), ("type", tunnel.attribute())];
        let address = self.take_as(block, Attribute::new(&tunnel.handle(node), entries));
        let stored = self.node_mut(node);
        *stored.tunnel_mut(tunnel) = address.to_string();
        if matches!(tunnel, Tunnel::Wireguard) {
            stored.status =
                Some(json!({"wireguardPublicKey": "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="}));
        }
        address
    }
}
