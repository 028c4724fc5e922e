//! Nodes that lack a kind of tunnel address that other nodes have.

use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::snapshot::DatastoreKind;
use serde_json::{Value, json};

use super::structure_tests::findings;
use crate::Code;
use crate::test_cluster::Cluster;

/// A cluster in which node-1 has the tunnel `tunnel`, and node-2 is described by `node` and `labels`. Both have a block
/// in a pool with the settings `pool`.
fn cluster(tunnel: Value, node: Value, labels: Value, pool: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.0.nodes.clear();
    cluster
        .only_pool("default", pool)
        .resource("nodes/node-1", tunnel);
    let mut value = node;
    value["metadata"] = json!({"labels": labels});
    cluster.put(&format!("{RESOURCE_PREFIX}nodes/node-2"), value);
    cluster.block("10.244.9.0/30", "host:node-1", []);
    cluster.block("10.244.9.4/30", "host:node-2", []);
    cluster
}

fn missing(cluster: &Cluster) -> Vec<String> {
    let found = findings(cluster)
        .into_iter()
        .filter(|finding| finding.code == Code::TunnelAddressMissing);
    found.map(|finding| finding.message()).collect()
}

fn says(fields: &str) -> Vec<String> {
    vec![format!(
        "node-2 lacks a tunnel address of a kind that other nodes have: {fields}"
    )]
}

#[test]
fn a_node_needs_the_tunnel_of_a_pool_that_selects_it() {
    let vxlan = || json!({"ipv4VXLANTunnelAddr": "10.244.9.0"});
    let pool = |settings: Value| {
        let mut pool = json!({"cidr": "10.244.0.0/16", "blockSize": 30});
        pool.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        pool
    };
    let judged = |settings: Value| missing(&cluster(vxlan(), json!({}), json!({}), pool(settings)));
    let field = "spec.ipv4VXLANTunnelAddr";
    assert_eq!(judged(json!({"vxlanMode": "Always"})), says(field));
    assert_eq!(judged(json!({"vxlanMode": "CrossSubnet"})), says(field));
    for other in [
        json!({"vxlanMode": "Never"}),
        json!({"ipipMode": "Always"}),
        json!({"vxlanMode": "Always", "disabled": true}),
        json!({"vxlanMode": "Always", "allowedUses": ["Workload"]}),
        json!({"vxlanMode": "Always", "nodeSelector": "rack == 'a'"}),
    ] {
        assert_eq!(judged(other.clone()), [""; 0], "{other}");
    }
    let always = || pool(json!({"vxlanMode": "Always"}));
    let windows = json!({"kubernetes.io/os": "windows"});
    assert_eq!(
        missing(&cluster(vxlan(), json!({}), windows, always())),
        [""; 0],
        "Windows has none"
    );
    assert_eq!(
        missing(&cluster(json!({}), json!({}), json!({}), always())),
        [""; 0],
        "nobody has one"
    );
    let broken = json!({"spec": {"ipv4VXLANTunnelAddr": "10.244.9.x"}});
    assert_eq!(
        missing(&cluster(vxlan(), broken, json!({}), always())),
        [""; 0],
        "it is not known"
    );
    let mut without_block = cluster(vxlan(), json!({}), json!({}), always());
    without_block.0.blocks.pop();
    assert_eq!(missing(&without_block), [""; 0], "Calico may not run there yet");
    let mut kubernetes = cluster(vxlan(), json!({}), json!({}), always());
    kubernetes.0.datastore = DatastoreKind::Kubernetes;
    assert_eq!(missing(&kubernetes), says(field));
}

#[test]
fn a_key_of_wireguard_needs_an_address_of_its_family() {
    let peer =
        json!({"wireguard": {"interfaceIPv4Address": "10.244.9.0", "interfaceIPv6Address": "fd00::1"}});
    let both = json!({"status": {"wireguardPublicKey": "jlkV", "wireguardPublicKeyV6": "YooZ"}});
    let v4 = json!({"cidr": "10.244.0.0/16", "blockSize": 30});
    let judged = |key: Value| missing(&cluster(peer.clone(), key, json!({}), v4.clone()));
    assert_eq!(judged(both.clone()), says("spec.wireguard.interfaceIPv4Address"));
    assert_eq!(judged(json!({})), [""; 0], "WireGuard is off there");
    let mut two = cluster(peer.clone(), both, json!({}), v4.clone());
    two.resource("ippools/six", json!({"cidr": "fd00::/64", "blockSize": 122}));
    assert_eq!(
        missing(&two),
        says("spec.wireguard.interfaceIPv4Address"),
        "it has no block of IPv6"
    );
    two.block("fd00::4/126", "host:node-2", []);
    let fields = "spec.wireguard.interfaceIPv4Address and spec.wireguard.interfaceIPv6Address";
    assert_eq!(missing(&two), says(fields));
}

/// Both nodes need two kinds of tunnels, and node-2 lacks one. Its other address is in a pool that closes.
#[test]
fn the_reason_can_be_another_tunnel_of_the_node() {
    let message = |status: Value| {
        let v4 = json!({"cidr": "10.244.0.0/16", "blockSize": 30, "vxlanMode": "Always"});
        let both = json!({"ipv4VXLANTunnelAddr": "10.244.9.0", "ipv6VXLANTunnelAddr": "fd00::"});
        let node = json!({"spec": {"ipv6VXLANTunnelAddr": "fd00::4"}});
        let mut cluster = cluster(both, node, json!({}), v4);
        let v6 = json!({"cidr": "fd00::/64", "blockSize": 126, "vxlanMode": "Always"});
        cluster.put(
            &format!("{RESOURCE_PREFIX}ippools/six"),
            json!({"spec": v6, "status": status}),
        );
        let record = json!({"handle_id": "vxlan-v6-tunnel-addr-node-2",
            "secondary": {"node": "node-2", "type": "vxlanV6TunnelAddress"}});
        cluster.block("fd00::4/126", "host:node-2", [record]);
        cluster.handle("vxlan-v6-tunnel-addr-node-2", json!({"fd00::4/126": 1}));
        cluster.config(json!({"auto_allocate_blocks": true}));
        cluster.0.mark_read(calipam_model::snapshot::ALLOCATION_SOURCES);
        missing(&cluster)
    };
    let lacks = says("spec.ipv4VXLANTunnelAddr").remove(0);
    assert_eq!(message(json!({})), [lacks.as_str()]);
    let closed = json!({"conditions": [{"type": "Allocatable", "status": "False"}]});
    let reason = "calico-node does not assign it, since it fails at the node's VXLAN (IPv6) tunnel: no pool is enabled";
    assert_eq!(message(closed), [format!("{lacks}; {reason}")]);
}
