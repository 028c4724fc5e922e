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
    containers: HashMap<String, String>,
    /// The number of records that name each network, by node.
    nodes: HashMap<String, BTreeMap<String, usize>>,
    /// The number of records that name each network, in all blocks.
    all: BTreeMap<String, usize>,
    /// The number of stored handles that name each network.
    stored: BTreeMap<String, usize>,
}

impl Networks {
    /// Looks up the networks of some containers and nodes in one pass over the stored handles and one over the blocks.
    pub(super) fn new(basis: &Basis<'_>, containers: &BTreeSet<String>, nodes: &BTreeSet<String>) -> Self {
        let mut networks = Self::default();
        if containers.is_empty() {
            return networks;
        }

        let wanted: HashSet<&str> = containers.iter().map(String::as_str).collect();
        for handle in basis.snapshot.handles.iter().filter(|h| !h.value.is_deleted()) {
            let id = handle.value.id().cut_at_carriage_return().to_string();
            let Some((network, container)) = id.rsplit_once('.') else {
                continue;
            };
            if wanted.contains(container) {
                networks
                    .containers
                    .insert(container.to_owned(), network.to_owned());
            }
            if matches!(Claim::of_handle(&id), Claim::Container(_)) {
                match networks.stored.get_mut(network) {
                    Some(count) => *count += 1,
                    None => drop(networks.stored.insert(network.to_owned(), 1)),
                }
            }
        }

        for block in basis.context.index.blocks.iter().filter_map(|b| b.sound) {
            let owner = block.host();
            for record in block.attributes() {
                let Some(network) = record.clean_handle().and_then(network_of) else {
                    continue;
                };
                let node = record.get("node").map(|node| node.to_string());
                if let Some(node) = node.as_deref().or(owner).filter(|node| nodes.contains(*node)) {
                    let of_node = networks.nodes.entry(node.to_owned()).or_default();
                    *of_node.entry(network.clone()).or_default() += 1;
                }
                *networks.all.entry(network).or_default() += 1;
            }
        }

        networks
    }

    /// Returns the network of a container: from its own handle, or else the most frequent one in records of the node,
    /// in all records, or in all stored handles.
    pub(super) fn of(&self, container: &str, node: &str) -> Option<String> {
        if let Some(network) = self.containers.get(container) {
            return Some(network.clone());
        }
        let most_frequent = |counts: &BTreeMap<String, usize>| {
            let (network, _) = counts.iter().max_by_key(|(_, count)| **count)?;
            Some(network.clone())
        };
        let on_node = self.nodes.get(node).and_then(most_frequent);
        on_node
            .or_else(|| most_frequent(&self.all))
            .or_else(|| most_frequent(&self.stored))
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
