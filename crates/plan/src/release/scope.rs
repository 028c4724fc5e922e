//! The scope of a release. Each kind of name in the request narrows it.

use std::collections::HashSet;
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
        let has_node = |name: &str| nodes.contains(name);
        let is_of_nodes = || {
            index.blocks_around(address).any(|block| {
                let recorded = block.sound.and_then(|sound| sound.allocation_of(address));
                let recorded = recorded.and_then(|record| record.attribute.get("node")?.to_string().into());
                recorded.is_some_and(|node: String| has_node(&node)) || block.host().is_some_and(has_node)
            })
        };
        let is_of_namespace = |wanted: &str| {
            sound_records(index, address).any(|record| {
                let owners = [Some(record.attribute.owner()), record.attribute.alternate()];
                owners
                    .into_iter()
                    .flatten()
                    .any(|owner| owner.get("namespace").is_some_and(|name| name == *wanted))
            })
        };
        self.is_named(address, index)
            && self.part.has_network(address.into())
            && (nodes.is_empty() || is_of_nodes())
            && namespace.as_deref().is_none_or(is_of_namespace)
    }

    /// Returns true if a block and affinities for it are in scope. Blocks and affinities belong to no namespace.
    pub(super) fn has_block(&self, cidr: IpNet) -> bool {
        self.part.namespace.is_none() && self.part.has_network(cidr)
    }

    /// Returns true if the address is among the named addresses, and its handle among the named handles. If no address
    /// or no handle is named, that condition holds for every address.
    fn is_named(&self, address: IpAddr, index: &Index<'_>) -> bool {
        let is_under = || {
            let mut ids = sound_records(index, address).filter_map(|record| record.attribute.handle());
            ids.any(|id| self.handles.contains(clean(&id.to_string())))
        };
        (self.addresses.is_empty() || self.addresses.contains(&address))
            && (self.handles.is_empty() || is_under())
    }
}
