//! Ranges that no pool can have: special ones, and ranges of the cluster's own nodes and services.

use calipam_check::Places;
use calipam_model::IpNet;
use calipam_model::cidr::{overlap, parse_cidr};
use calipam_model::snapshot::Snapshot;

use crate::refusal::{Refused, Result};

/// Ranges whose addresses no pod can have, each with its purpose.
const SPECIAL: [(&str, &str); 7] = [
    ("0.0.0.0/8", "unspecified addresses"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    ("::/127", "loopback"),
    ("fe80::/10", "link-local addresses"),
    ("ff00::/8", "multicast"),
];

/// Refuses a range that is special, or covers addresses of nodes or services of the cluster.
pub(crate) fn require_free(snapshot: &Snapshot, cidr: IpNet) -> Result<()> {
    let overlaps = |special: &str| parse_cidr(special).is_some_and(|special| overlap(special, cidr));
    if let Some((special, purpose)) = SPECIAL.into_iter().find(|(special, _)| overlaps(special)) {
        return Err(Refused::new(format!(
            "{cidr} overlaps {special}, which is for {purpose}"
        )));
    }
    let Places { nodes, services } = Places::of(snapshot, [cidr]);
    if let Some(place) = nodes.first() {
        return Err(Refused::new(format!(
            "{cidr} covers {place}, a node in this cluster"
        )));
    }
    if let Some(place) = services.first() {
        return Err(Refused::new(format!(
            "{cidr} covers {place}, a service in this cluster"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use calipam_model::node::Node;
    use calipam_model::pool::Reservation;
    use calipam_model::service::Service;
    use calipam_model::snapshot::{Revision, Versioned};

    use super::*;

    fn cluster() -> Snapshot {
        fn stored<T>(value: T) -> Versioned<T> {
            Versioned {
                value,
                revision: Revision::Etcd(1),
            }
        }
        let addresses = BTreeSet::from(["192.0.2.11", "fd00:2::11"].map(|text| text.parse().unwrap()));
        let node = Node {
            name: "worker-1".into(),
            addresses,
            ..Node::default()
        };
        let cluster_ips = ["10.96.0.1", "fd00:96::1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let namespace = "default".into();
        let name = "kubernetes".into();
        let service = Service {
            namespace,
            name,
            is_internal: true,
            cluster_ips,
            ..Service::default()
        };
        Snapshot {
            nodes: vec![stored(node)],
            services: vec![stored(service)],
            ..Snapshot::default()
        }
    }

    fn refusal(snapshot: &Snapshot, cidr: &str) -> String {
        require_free(snapshot, cidr.parse().unwrap())
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn ranges_that_the_cluster_uses_are_not_free() {
        let node = "192.0.2.0/24 covers 192.0.2.11 of worker-1, a node in this cluster";
        assert_eq!(refusal(&cluster(), "192.0.2.0/24"), node);
        let service = "10.96.0.0/16 covers 10.96.0.1 of default/kubernetes, a service in this cluster";
        assert_eq!(refusal(&cluster(), "10.96.0.0/16"), service);
        for taken in [
            "fd00:2::/64",
            "fd00:96::/112",
            "192.0.2.11/32",
            "0.0.0.0/0",
            "::/0",
        ] {
            assert_ne!(refusal(&cluster(), taken), "", "{taken}");
        }
        for free in ["192.0.2.128/25", "10.97.0.0/16", "fd00::/64"] {
            assert_eq!(refusal(&cluster(), free), "", "{free}");
        }
        let mut reserved = cluster();
        let cidrs = vec!["192.0.2.8/29".parse().unwrap()];
        let value = Reservation {
            name: "nodes".into(),
            cidrs,
        };
        reserved.reservations.push(Versioned {
            value,
            revision: Revision::Etcd(1),
        });
        assert_eq!(refusal(&reserved, "192.0.2.0/24"), "");
    }

    #[test]
    fn ranges_for_other_purposes_are_not_free() {
        let loopback = "127.1.0.0/16 overlaps 127.0.0.0/8, which is for loopback";
        assert_eq!(refusal(&Snapshot::default(), "127.1.0.0/16"), loopback);
        for special in [
            "169.254.0.0/16",
            "224.0.0.0/4",
            "239.1.0.0/16",
            "fe80::/64",
            "ff02::/112",
            "0.0.0.0/16",
        ] {
            assert_ne!(refusal(&Snapshot::default(), special), "", "{special}");
        }
        assert_eq!(refusal(&Snapshot::default(), "10.0.0.0/8"), "");
    }
}
