//! A cluster's addresses, for the comparison with those of other clusters.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::snapshot::{Snapshot, Source};

use super::used::Used;
use crate::finding::ElsewhereKind;
use crate::{Context, Options};

/// The addresses of a cluster's nodes, tunnels, services and pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranges {
    /// `None` if the configuration cannot be decoded, or the cluster was not read.
    pub strict_affinity: Option<bool>,
    /// Addresses of nodes, tunnels and services, ascending.
    pub points: Vec<Point>,
    /// The CIDRs of IP reservations.
    pub reserved: Vec<IpNet>,
    pub used: Used,
}

/// The address of a node, tunnel or service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub address: IpAddr,
    pub kind: ElsewhereKind,
    /// The name of the node or service.
    pub name: String,
}

impl Ranges {
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::in_context(&Context::new(snapshot, &Options::default()))
    }

    /// Collects the cluster's addresses that another cluster's addresses could collide with.
    pub(super) fn in_context(context: &Context<'_>) -> Self {
        let snapshot = context.snapshot;
        let point = |address: IpAddr, kind, name: &str| Point {
            address,
            kind,
            name: name.to_owned(),
        };
        let mut points = Vec::new();
        for node in snapshot.nodes.iter().map(|stored| &stored.value) {
            for address in &node.addresses {
                points.push(point(*address, ElsewhereKind::Node, &node.name));
            }
            for (_, address) in &node.tunnels {
                points.push(point(*address, ElsewhereKind::Tunnel, &node.name));
            }
        }
        for service in snapshot.services.iter().map(|stored| &stored.value) {
            let name = service.full_name();
            for address in &service.ingress {
                points.push(point(*address, ElsewhereKind::Service, &name));
            }
        }
        points.sort();
        points.dedup();

        let mut strict_affinity = None;
        if snapshot.has_read(Source::IpamConfig) {
            let config = snapshot.effective_ipam_config();
            strict_affinity = config.map(|config| config.strict_affinity);
        }
        Self {
            strict_affinity,
            points,
            used: Used::of(context),
            reserved: snapshot.reserved_cidrs().collect(),
        }
    }
}
