//! Helpers for this crate's tests: clusters made of a few hand-written entries.

use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, RESOURCE_PREFIX};
use calipam_model::names::endpoint_name;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_testkit::values;
use serde_json::{Value, json};

use crate::{Options, check};

/// A snapshot with one pool, one node and the objects that a test adds.
pub(crate) struct Cluster(pub Snapshot);

impl Cluster {
    pub(crate) fn new() -> Self {
        let mut snapshot = Snapshot {
            taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
            ..Snapshot::default()
        };
        snapshot.mark_read([
            Source::Blocks,
            Source::Endpoints,
            Source::Nodes,
            Source::Pools,
            Source::Handles,
        ]);
        let mut cluster = Self(snapshot);
        cluster.resource(
            "ippools/default",
            json!({"cidr": "10.244.0.0/16", "blockSize": 30}),
        );
        cluster.resource(
            "nodes/node-1",
            json!({"bgp": {"ipv4IPIPTunnelAddr": "10.244.1.0"}}),
        );
        cluster
    }

    pub(crate) fn put(&mut self, path: &str, value: Value) -> &mut Self {
        self.0.add_entry(path.as_bytes(), value.to_string().as_bytes(), 7);
        self
    }

    pub(crate) fn resource(&mut self, name: &str, spec: Value) -> &mut Self {
        self.put(&format!("{RESOURCE_PREFIX}{name}"), json!({"spec": spec}))
    }

    /// Replaces all pools by one.
    pub(crate) fn only_pool(&mut self, name: &str, spec: Value) -> &mut Self {
        self.0.pools.clear();
        self.resource(&format!("ippools/{name}"), spec)
    }

    /// Adds a block with a record, or null, for each of its first addresses; the others are free.
    pub(crate) fn block(
        &mut self,
        cidr: &str,
        owner: impl Into<Value>,
        records: impl IntoIterator<Item = Value>,
    ) -> &mut Self {
        self.put(&values::block_key(cidr), values::block(cidr, owner, records))
    }

    /// Adds an affinity of a holder such as `host/node-1`.
    pub(crate) fn affinity(&mut self, holder: &str, cidr: &str, value: Value) -> &mut Self {
        self.put(&values::affinity_key(holder, cidr), value)
    }

    pub(crate) fn handle(&mut self, id: &str, blocks: Value) -> &mut Self {
        self.put(
            &format!("{HANDLE_PREFIX}{id}"),
            json!({"block": blocks, "deleted": false}),
        )
    }

    /// Sets the allocator's configuration.
    pub(crate) fn config(&mut self, value: Value) -> &mut Self {
        self.put("/calico/ipam/v2/config", value)
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
        report
            .findings
            .iter()
            .filter(about)
            .map(|f| format!("{} {}", f.code, f.subject))
            .collect()
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
