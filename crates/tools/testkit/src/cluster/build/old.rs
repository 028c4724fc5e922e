//! Adds data from earlier versions of Calico that current versions still read (facts 1.3.1, 1.3.3, 1.4, 4.1).

use ipnet::IpNet;

use crate::cluster::wire::{Attribute, Era, Tunnel, key};
use crate::cluster::{Cluster, Pod};

impl Cluster {
    /// Adds nodes whose blocks were written by earlier versions.
    pub(super) fn add_old_writers(&mut self) {
        for (era, affinity) in [(Era::Numbered, None), (Era::Unnumbered, Some("{}")), (Era::Legacy, Some(""))]
        {
            let node = self.add_node();
            self.add_pod_on(node);
            let (name, block) = (self.nodes[node].name.clone(), self.nodes[node].blocks[0]);
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
