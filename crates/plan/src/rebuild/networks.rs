//! The network in the handle of a pod, `<network>.<container ID>`. The CNI plugin takes it from its configuration,
//! which is not in the datastore, but other handles of the node contain it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use calipam_check::claim::Claim;
use calipam_model::text::TextRef;

use crate::basis::Basis;
use crate::basis::handles::clean;

/// The networks in the handles of the cluster.
#[derive(Default)]
pub(super) struct Networks {
    /// Networks of stored handles, by container ID.
    by_container: HashMap<String, String>,
    /// The number of records that name each network, by node.
    record_counts_by_node: HashMap<String, BTreeMap<String, usize>>,
    /// The number of records that name each network, in all blocks.
    record_counts: BTreeMap<String, usize>,
    /// The number of stored handles that name each network.
    handle_counts: BTreeMap<String, usize>,
}

impl Networks {
    /// Collects the networks that stored handles name for `containers`, and counts how often handles and records name
    /// each network, in all and on each of `nodes`.
    pub(super) fn new(basis: &Basis<'_>, containers: &BTreeSet<String>, nodes: &BTreeSet<String>) -> Self {
        let mut networks = Self::default();
        if !containers.is_empty() {
            networks.add_handles(basis, containers);
            networks.add_records(basis, nodes);
        }
        networks
    }

    /// Adds the networks in the IDs of stored handles.
    fn add_handles(&mut self, basis: &Basis<'_>, containers: &BTreeSet<String>) {
        let wanted: HashSet<&str> = containers.iter().map(String::as_str).collect();
        for handle in &basis.snapshot.handles {
            if handle.value.is_deleted() {
                continue;
            }
            let id = handle.value.id().cut_at_carriage_return().to_string();
            let Some((network, container)) = id.rsplit_once('.') else {
                continue;
            };
            if wanted.contains(container) {
                self.by_container.insert(container.to_owned(), network.to_owned());
            }
            if matches!(Claim::of_handle(&id), Claim::Container(_)) {
                // Most handles name one of a few networks, so a name is copied only once.
                if let Some(count) = self.handle_counts.get_mut(network) {
                    *count += 1;
                } else {
                    self.handle_counts.insert(network.to_owned(), 1);
                }
            }
        }
    }

    /// Adds the networks in the handles of allocations in blocks. A record without a node is one of the node that owns
    /// the block.
    fn add_records(&mut self, basis: &Basis<'_>, nodes: &BTreeSet<String>) {
        for block in &basis.context.index.blocks {
            let Some(block) = block.sound else {
                continue;
            };
            let owner = block.host();
            for record in block.attributes() {
                let Some(network) = record.clean_handle().and_then(network_of) else {
                    continue;
                };
                let node = record.get("node").map(|node| node.to_string());
                if let Some(node) = node.as_deref().or(owner).filter(|node| nodes.contains(*node)) {
                    let counts_of_node = self.record_counts_by_node.entry(node.to_owned());
                    *counts_of_node.or_default().entry(network.clone()).or_default() += 1;
                }
                *self.record_counts.entry(network).or_default() += 1;
            }
        }
    }

    /// Returns the network of a container: from its own handle, or else the most frequent one in records of the node,
    /// in all records, or in all stored handles.
    pub(super) fn most_likely(&self, container: &str, node: &str) -> Option<String> {
        if let Some(network) = self.by_container.get(container) {
            return Some(network.clone());
        }
        let most_frequent = |counts: &BTreeMap<String, usize>| {
            let (network, _) = counts.iter().max_by_key(|(_, count)| **count)?;
            Some(network.clone())
        };
        let on_node = self.record_counts_by_node.get(node).and_then(most_frequent);
        on_node
            .or_else(|| most_frequent(&self.record_counts))
            .or_else(|| most_frequent(&self.handle_counts))
    }
}

/// Returns the network in the handle of a container.
fn network_of(handle: TextRef<'_>) -> Option<String> {
    let handle = handle.to_string();
    let id = clean(&handle);
    if !matches!(Claim::of_handle(id), Claim::Container(_)) {
        return None;
    }
    let (network, _) = id.rsplit_once('.')?;
    if network.is_empty() {
        return None;
    }
    Some(network.to_owned())
}
