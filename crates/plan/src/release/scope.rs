//! The scope of a release. Each kind of name in the request narrows it.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_check::index::Index;
use calipam_check::{Finding, Subject};
use calipam_model::IpNet;

use super::Request;
use crate::basis::handles::clean;
use crate::basis::sound_records;

pub(super) struct Scope {
    addresses: HashSet<IpAddr>,
    /// The clean IDs of the named handles.
    handles: HashSet<String>,
    /// The part of the cluster, with the same meaning as in a check.
    part: calipam_check::Scope,
}

impl Scope {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            addresses: request.addresses.iter().copied().collect(),
            handles: request.handles.iter().map(|id| clean(id).to_owned()).collect(),
            part: request.scope.clone(),
        }
    }

    /// Returns true if a check of the same nodes, pools and namespace shows the finding, and no named address or handle
    /// excludes it.
    pub(super) fn has(&self, finding: &Finding, index: &Index<'_>) -> bool {
        self.part.has(finding)
            && match &finding.subject {
                Subject::Address(address) => self.is_named(*address, index),
                Subject::Handle(id) => {
                    self.addresses.is_empty() && (self.handles.is_empty() || self.handles.contains(clean(id)))
                }
                _ => true,
            }
    }

    /// Returns true if an address is in scope, judged by its records in blocks.
    pub(super) fn has_address(&self, address: IpAddr, index: &Index<'_>) -> bool {
        let calipam_check::Scope { nodes, namespace, .. } = &self.part;
        if !self.is_named(address, index) || !self.part.has_network(address.into()) {
            return false;
        }

        if !nodes.is_empty() && !is_of_nodes(address, nodes, index) {
            return false;
        }
        match namespace {
            Some(namespace) => is_of_namespace(address, namespace, index),
            None => true,
        }
    }

    /// Returns true if a block and affinities for it are in scope. Blocks and affinities belong to no namespace.
    pub(super) fn has_block(&self, cidr: IpNet) -> bool {
        self.part.namespace.is_none() && self.part.has_network(cidr)
    }

    /// Returns true if the address is among the named addresses, and its handle among the named handles. If no address
    /// or no handle is named, that condition holds for every address.
    fn is_named(&self, address: IpAddr, index: &Index<'_>) -> bool {
        if !self.addresses.is_empty() && !self.addresses.contains(&address) {
            return false;
        }
        if self.handles.is_empty() {
            return true;
        }
        let mut ids = sound_records(index, address).filter_map(|record| record.attribute.handle());
        ids.any(|id| self.handles.contains(clean(&id.to_string())))
    }
}

/// Returns true if a block has a record of the address that names one of the nodes, or if one of the nodes owns a block
/// with the address.
fn is_of_nodes(address: IpAddr, nodes: &BTreeSet<String>, index: &Index<'_>) -> bool {
    for block in index.blocks_around(address) {
        if block.host().is_some_and(|host| nodes.contains(host)) {
            return true;
        }
        let allocation = block.sound.and_then(|sound| sound.allocation_of(address));
        let recorded_node = allocation.and_then(|allocation| allocation.attribute.get("node"));
        if recorded_node.is_some_and(|node| nodes.contains(&node.to_string())) {
            return true;
        }
    }
    false
}

/// Returns true if a record of the address names an owner in the namespace.
fn is_of_namespace(address: IpAddr, namespace: &str, index: &Index<'_>) -> bool {
    for record in sound_records(index, address) {
        let owners = [Some(record.attribute.owner()), record.attribute.alternate()];
        for owner in owners.into_iter().flatten() {
            if owner.get("namespace").is_some_and(|name| name == *namespace) {
                return true;
            }
        }
    }
    false
}
