//! Many blocks of other nodes, in the form and size that Calico gives them: 13 KB with 50 addresses.

use etcd_client::TxnOp;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::kube::{Flavour, create_in_etcd};
use crate::servers::{Etcd, KubeApiserver, ServerError};

/// A block of which the first addresses are taken.
#[derive(Clone, Copy, Debug)]
pub struct TakenBlock {
    pub cidr: IpNet,
    pub taken: usize,
}

impl TakenBlock {
    fn name(&self) -> String {
        self.cidr.to_string().replace(['.', ':', '/'], "-")
    }

    fn size(&self) -> usize {
        1 << (self.cidr.max_prefix_len() - self.cidr.prefix_len())
    }

    /// As etcd has it.
    fn value(&self) -> Value {
        let name = self.name();
        let node = format!("node-{name}.eu-west-1.compute.internal");
        let record = |ordinal: usize| {
            let handle = format!("k8s-pod-network.{:0>64}", format!("{}{ordinal:03}", name.replace('-', "")));
            json!({"handle_id": handle, "secondary": {"namespace": "default", "node": node,
                "pod": format!("web-7d4b9c6f5d-{ordinal:03}"), "timestamp": "2026-05-01 10:00:00.123456789 +0000 UTC"}})
        };
        let allocations: Vec<Option<usize>> =
            (0..self.size()).map(|ordinal| (ordinal < self.taken).then_some(ordinal)).collect();
        json!({"cidr": self.cidr.to_string(), "affinity": format!("host:{node}"), "allocations": allocations,
            "unallocated": Vec::from_iter(self.taken..self.size()),
            "attributes": Vec::from_iter((0..self.taken).map(record)), "deleted": false,
            "sequenceNumber": 1_782_000_000_000_000_000_u64, "sequenceNumberForAllocation": {}})
    }

    /// As Kubernetes has it.
    fn object(&self, flavour: Flavour) -> Value {
        let mut spec = self.value();
        spec["strictAffinity"] = false.into();
        let fields = json!({"f:spec": {".": {}, "f:affinity": {}, "f:allocations": {}, "f:attributes": {}, "f:cidr": {},
            "f:deleted": {}, "f:sequenceNumber": {}, "f:sequenceNumberForAllocation": {}, "f:unallocated": {}}});
        let manager = json!({"manager": "calico-ipam", "operation": "Update", "apiVersion": flavour.api_version(),
            "time": "2026-05-01T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let metadata = json!({"name": self.name(), "uid": format!("{:0>36}", self.name()), "generation": 51,
            "creationTimestamp": "2026-05-01T10:00:00Z", "managedFields": [manager]});
        json!({"apiVersion": flavour.api_version(), "kind": "IPAMBlock", "metadata": metadata, "spec": spec})
    }
}

/// Writes blocks, whatever was there.
pub fn put_blocks(etcd: &Etcd, blocks: &[TakenBlock]) -> Result<(), ServerError> {
    etcd.with_client(async |mut client| {
        for part in blocks.chunks(50) {
            let put = |block: &TakenBlock| {
                let family = if block.cidr.addr().is_ipv4() { 4 } else { 6 };
                let dashed = block.cidr.to_string().replace('/', "-");
                let key = format!("/calico/ipam/v2/assignment/ipv{family}/block/{dashed}");
                TxnOp::put(key, block.value().to_string(), None)
            };
            client.txn(etcd_client::Txn::new().and_then(part.iter().map(put).collect::<Vec<_>>())).await?;
        }
        Ok(())
    })
}

/// The same as objects of Kubernetes.
pub fn put_block_objects(
    server: &KubeApiserver,
    flavour: Flavour,
    blocks: &[TakenBlock],
) -> Result<(), ServerError> {
    let prefix = format!("/registry/{}/ipamblocks/", flavour.group());
    for part in blocks.chunks(500) {
        let objects: Vec<Value> = part.iter().map(|block| block.object(flavour)).collect();
        create_in_etcd(server, &prefix, &objects)?;
    }
    Ok(())
}
