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

    pub(super) fn in_context(context: &Context<'_>) -> Self {
        let snapshot = context.snapshot;
        let mut points = Vec::new();
        let mut add = |kind, name: &str, addresses: &mut dyn Iterator<Item = IpAddr>| {
            points.extend(addresses.map(|address| Point {
                address,
                kind,
                name: name.to_owned(),
            }));
        };
        for node in snapshot.nodes.iter().map(|node| &node.value) {
            add(
                ElsewhereKind::Node,
                &node.name,
                &mut node.addresses.iter().copied(),
            );
            add(
                ElsewhereKind::Tunnel,
                &node.name,
                &mut node.tunnels.iter().map(|(_, address)| *address),
            );
        }
        for service in snapshot.services.iter().map(|service| &service.value) {
            add(
                ElsewhereKind::Service,
                &service.full_name(),
                &mut service.ingress.iter().copied(),
            );
        }
        points.sort();
        points.dedup();
        Self {
            strict_affinity: snapshot
                .effective_ipam_config()
                .filter(|_| snapshot.has_read(Source::IpamConfig))
                .map(|config| config.strict_affinity),
            points,
            reserved: snapshot.reserved_cidrs().collect(),
            used: Used::of(context),
        }
    }
}
