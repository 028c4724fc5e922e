//! Writes many blocks that belong to other nodes. They are as large as Calico's: a block with 50 assigned addresses has
//! 13 KB.

use anyhow::Result;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::cluster::wire::{Attribute, Block, key};
use crate::kube::{Flavour, create_in_etcd, form};
use crate::servers::{Etcd, KubeApiserver};

/// A block whose first addresses are assigned.
#[derive(Clone, Copy, Debug)]
pub struct TakenBlock {
    pub cidr: IpNet,
    pub taken: usize,
}

impl TakenBlock {
    /// The value in etcd.
    fn value(&self) -> Vec<u8> {
        let name = form::block_name(self.cidr);
        let node = format!("node-{name}.eu-west-1.compute.internal");
        let mut block = Block::new(
            self.cidr,
            Some(format!("host:{node}")),
            None,
            1_782_000_000_000_000_000,
        );
        for ordinal in 0..self.taken {
            let handle = format!(
                "k8s-pod-network.{:0>64}",
                format!("{}{ordinal:03}", name.replace('-', ""))
            );
            let pod = format!("web-7d4b9c6f5d-{ordinal:03}");
            let entries = [
                ("namespace", "default"),
                ("node", &node),
                ("pod", &pod),
                ("timestamp", "2026-05-01 10:00:00.123456789 +0000 UTC"),
            ];
            block.allocations[ordinal] = Some(ordinal as i64);
            block.attributes.push(Attribute::new(&handle, entries));
        }
        block.unallocated.drain(..self.taken);
        block.value()
    }

    /// The object in Kubernetes.
    fn object(&self, flavour: Flavour) -> Value {
        let parts = form::block(flavour, self.cidr, &form::object(&self.value()));
        let form::Parts { name, spec, .. } = parts.expect("the schema accepts it");
        let fields = json!({"f:spec": {".": {}, "f:affinity": {}, "f:allocations": {}, "f:attributes": {}, "f:cidr": {},
            "f:deleted": {}, "f:sequenceNumber": {}, "f:sequenceNumberForAllocation": {}, "f:unallocated": {}}});
        let manager = json!({"manager": "calico-ipam", "operation": "Update", "apiVersion": flavour.api_version(),
            "time": "2026-05-01T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let metadata = json!({"name": name, "uid": format!("{name:0>36}"), "generation": 51,
            "creationTimestamp": "2026-05-01T10:00:00Z", "managedFields": [manager]});
        json!({"apiVersion": flavour.api_version(), "kind": "IPAMBlock", "metadata": metadata, "spec": spec})
    }
}

/// Writes blocks and overwrites existing ones.
pub fn put_blocks(etcd: &Etcd, blocks: &[TakenBlock]) -> Result<()> {
    let entries: Vec<_> = blocks
        .iter()
        .map(|block| (key::block(block.cidr), block.value()))
        .collect();
    etcd.put_all(&entries)
}

/// Writes blocks as Kubernetes objects.
pub fn put_block_objects(server: &KubeApiserver, flavour: Flavour, blocks: &[TakenBlock]) -> Result<()> {
    let prefix = format!("/registry/{}/ipamblocks/", flavour.group());
    for part in blocks.chunks(500) {
        let objects: Vec<Value> = part.iter().map(|block| block.object(flavour)).collect();
        create_in_etcd(server, &prefix, &objects)?;
    }
    Ok(())
}
