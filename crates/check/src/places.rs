use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::cidr_set::CidrSet;
use calipam_model::snapshot::Snapshot;

use crate::finding::Place;

/// Addresses of a cluster's nodes and services, without those that IP reservations exclude.
#[derive(Debug)]
pub struct Places {
    /// The nodes' addresses, ascending.
    pub nodes: Vec<Place>,
    /// The services' addresses, ascending.
    pub services: Vec<Place>,
}

impl Places {
    /// Gathers the addresses of nodes and the cluster IPs of services within `region`, except reserved ones, which
    /// Calico does not assign.
    pub fn of(snapshot: &Snapshot, region: impl IntoIterator<Item = IpNet>) -> Self {
        let region = CidrSet::new(region);
        let reserved = CidrSet::new(snapshot.reserved_cidrs());
        let is_wanted = |address: IpAddr| region.contains(address) && !reserved.contains(address);

        let mut nodes = Vec::new();
        for node in &snapshot.nodes {
            for &address in &node.value.addresses {
                if is_wanted(address) {
                    let name = node.value.name.clone();
                    nodes.push(Place { address, name });
                }
            }
        }
        nodes.sort();

        let mut services = Vec::new();
        for service in &snapshot.services {
            for &address in &service.value.cluster_ips {
                if is_wanted(address) {
                    let name = service.value.full_name();
                    services.push(Place { address, name });
                }
            }
        }
        services.sort();
        Self { nodes, services }
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::pool::PoolUse;
    use calipam_model::service::Service;
    use calipam_model::snapshot::{Revision, Versioned};
    use serde_json::json;

    use crate::test_cluster::Cluster;
    use crate::{Code, Options, check};

    /// A cluster without pools. node-1 has an address of each family, and there is a service that is not a load
    /// balancer.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.0.pools.clear();
        for address in ["192.0.2.11", "fd00:2::11"] {
            cluster.0.nodes[0].value.add_address("InternalIP", address);
        }
        let cluster_ips = ["10.96.0.1", "fd00:96::1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let namespace = "default".into();
        let name = "kubernetes".into();
        let value = Service {
            namespace,
            name,
            is_internal: true,
            cluster_ips,
            ..Service::default()
        };
        cluster.0.services.push(Versioned {
            value,
            revision: Revision::Etcd(1),
        });
        cluster
    }

    fn found(cluster: &Cluster) -> Vec<String> {
        let report = check(&cluster.0, &Options::default());
        let codes = [Code::PoolOverlapsNodes, Code::PoolOverlapsServices];
        let findings = report
            .findings
            .into_iter()
            .filter(|finding| codes.contains(&finding.code));
        findings
            .map(|finding| format!("{} {}", finding.severity, finding.message()))
            .collect()
    }

    #[test]
    fn pools_over_nodes_and_services_are_found_before_the_first_block_too() {
        let mut four = cluster();
        four.resource("ippools/nodes", json!({"cidr": "192.0.2.0/24"}));
        four.resource("ippools/services", json!({"cidr": "10.96.0.0/16"}));
        let v4 = [
            "critical nodes (192.0.2.0/24) covers 192.0.2.11 of node-1",
            "error services (10.96.0.0/16) covers 10.96.0.1 of default/kubernetes",
        ];
        assert_eq!(found(&four), v4);
        four.block("192.0.2.0/30", serde_json::Value::Null, []);
        assert_eq!(found(&four), v4, "with a block");

        let mut six = cluster();
        six.resource("ippools/all", json!({"cidr": "fd00::/16"}));
        let v6 = [
            "critical all (fd00::/16) covers fd00:2::11 of node-1",
            "error all (fd00::/16) covers fd00:96::1 of default/kubernetes",
        ];
        assert_eq!(found(&six), v6);
    }

    #[test]
    fn addresses_that_calico_does_not_assign_to_pods_are_not_found() {
        let with = |spec: serde_json::Value| {
            let mut cluster = cluster();
            cluster.resource("ippools/nodes", spec);
            cluster
        };
        assert_eq!(
            found(&with(json!({"cidr": "192.0.2.0/24", "disabled": true}))),
            [""; 0]
        );
        assert_eq!(found(&with(json!({"cidr": "192.0.2.128/25"}))), [""; 0]);
        let mut services = with(json!({"cidr": "192.0.2.0/24"}));
        services.0.pools[0].value.allowed_uses = vec![PoolUse::LoadBalancer];
        assert_eq!(
            found(&services),
            [""; 0],
            "a service may have the address of a node"
        );
        let mut reserved = with(json!({"cidr": "192.0.2.0/24"}));
        reserved.resource("ipreservations/nodes", json!({"reservedCIDRs": ["192.0.2.8/29"]}));
        assert_eq!(found(&reserved), [""; 0]);
        let mut unread = with(json!({"cidr": "10.96.0.0/16"}));
        unread.0.services.clear();
        assert_eq!(found(&unread), [""; 0]);
    }
}
