//! etcd keys (facts 1.1).

use ipnet::IpNet;

/// The prefix of v3 API resources.
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// The key of the allocator's configuration.
pub const IPAM_CONFIG: &str = "/calico/ipam/v2/config";

fn family(net: IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ipv4",
        IpNet::V6(_) => "ipv6",
    }
}

fn dashed(net: IpNet) -> String {
    net.to_string().replacen('/', "-", 1)
}

pub fn block(net: IpNet) -> String {
    format!("/calico/ipam/v2/assignment/{}/block/{}", family(net), dashed(net))
}

/// The key of an affinity; `kind` is `host`, `virtual` or, for faults, any other string.
pub fn affinity(kind: &str, holder: &str, net: IpNet) -> String {
    format!(
        "/calico/ipam/v2/{kind}/{holder}/{}/block/{}",
        family(net),
        dashed(net)
    )
}

pub fn handle(id: &str) -> String {
    format!("/calico/ipam/v2/handle/{id}")
}

/// The key of a cluster-scoped resource; `plural` is in lower case.
pub fn resource(plural: &str, name: &str) -> String {
    format!("{RESOURCES}/{plural}/{name}")
}

pub fn node(name: &str) -> String {
    resource("nodes", name)
}

pub fn pool(name: &str) -> String {
    resource("ippools", name)
}

/// The namespace of all endpoints of orchestrators other than Kubernetes.
pub const FOREIGN_NAMESPACE: &str = "libnetwork";

/// The prefix of the keys of workload endpoints.
pub const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

pub fn endpoint(namespace: &str, name: &str) -> String {
    format!("{ENDPOINTS}{namespace}/{name}")
}

/// The name of a workload endpoint: four segments with their dashes doubled (facts 1.10).
pub fn endpoint_name(node: &str, orchestrator: &str, workload: &str, interface: &str) -> String {
    [node, orchestrator, workload, interface]
        .map(|segment| segment.replace('-', "--"))
        .join("-")
}
