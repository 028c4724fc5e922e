//! Helpers for this crate's tests: clusters made of a few hand-written entries.

use calipam_model::key::{ENDPOINT_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::endpoint_name;
use calipam_model::snapshot::{Snapshot, Source};
use serde_json::{Value, json};

use crate::{Options, check};

/// A snapshot with one pool, one node and the objects that a test adds.
pub(crate) struct Cluster(pub Snapshot);

impl Cluster {
    pub(crate) fn new() -> Self {
        let mut snapshot =
            Snapshot { taken_at: "2026-05-01T12:00:00Z".parse().unwrap(), ..Snapshot::default() };
        snapshot.mark_read([
            Source::Blocks,
            Source::Endpoints,
            Source::Nodes,
            Source::Pools,
            Source::Handles,
        ]);
        let mut cluster = Self(snapshot);
        cluster.resource("ippools/default", json!({"cidr": "10.244.0.0/16", "blockSize": 30}));
        cluster.resource("nodes/node-1", json!({"bgp": {"ipv4IPIPTunnelAddr": "10.244.1.0"}}));
        cluster
    }

    pub(crate) fn put(&mut self, path: &str, value: Value) -> &mut Self {
        self.0.add_entry(path.as_bytes(), value.to_string().as_bytes(), 7);
        self
    }

    pub(crate) fn resource(&mut self, name: &str, spec: Value) -> &mut Self {
        self.put(&format!("{RESOURCE_PREFIX}{name}"), json!({"spec": spec}))
    }

    /// Adds a /30 that `owner` owns, with a record or null for each ordinal.
    pub(crate) fn block(&mut self, cidr: &str, owner: Option<&str>, records: [Value; 4]) -> &mut Self {
        let mut attributes = Vec::new();
        let allocations: Vec<Value> = (records.into_iter())
            .map(|record| {
                if record.is_null() {
                    return record;
                }
                attributes.push(record);
                json!(attributes.len() - 1)
            })
            .collect();
        let free: Vec<usize> = (0..4).filter(|i| allocations[*i].is_null()).collect();
        let key = Key::Block(calipam_model::cidr::parse_cidr(cidr).unwrap());
        let value = json!({"cidr": cidr, "affinity": owner, "allocations": allocations, "unallocated": free, "attributes": attributes});
        self.put(&key.to_string(), value)
    }

    pub(crate) fn endpoint(&mut self, node: &str, pod: &str, addresses: &[&str]) -> &mut Self {
        let name = endpoint_name(node, "k8s", pod, "eth0");
        let spec = json!({"node": node, "orchestrator": "k8s", "pod": pod, "endpoint": "eth0",
            "containerID": format!("{:0>64}", pod.len()), "ipNetworks": addresses});
        self.put(&format!("{ENDPOINT_PREFIX}default/{name}"), json!({"spec": spec}))
    }

    /// The findings about addresses, each as `code subject`.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let report = check(&self.0, &Options::default());
        let about = |f: &&crate::Finding| f.subject.kind() == "address";
        report.findings.iter().filter(about).map(|f| format!("{} {}", f.code, f.subject)).collect()
    }
}

/// An IPIP tunnel's record.
pub(crate) fn tunnel(node: &str) -> Value {
    json!({"handle_id": format!("ipip-tunnel-addr-{node}"), "secondary": {"node": node, "type": "ipipTunnelAddress"}})
}

/// A pod's record, older than the grace period.
pub(crate) fn pod(node: &str, name: &str) -> Value {
    json!({"handle_id": format!("k8s-pod-network.{name}"), "secondary": {"namespace": "default", "node": node, "pod": name, "timestamp": "2026-05-01 10:00:00 +0000 UTC"}})
}
