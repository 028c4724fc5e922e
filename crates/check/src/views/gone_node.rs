//! The objects that still name a node that does not exist.

use calipam_model::snapshot::Snapshot;
use calipam_model::words::{count, join};

use super::nodes::nodes;

/// The numbers of objects that still name a node that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOfNode {
    /// The addresses that the node holds, in any block.
    pub addresses: usize,
    pub blocks: usize,
    pub affinities: usize,
    pub endpoints: usize,
}

impl LeftOfNode {
    /// Counts the records that name a node: addresses, blocks, affinities and endpoints. `None` if there are none.
    pub(super) fn of(snapshot: &Snapshot, name: &str) -> Option<Self> {
        let view = nodes(snapshot).nodes.into_iter().find(|node| node.node == name);
        let view = view.unwrap_or_default();
        let affinities = snapshot.affinities.iter();
        let endpoints = snapshot.endpoints.iter();
        let remaining = Self {
            addresses: view.addresses as usize,
            blocks: view.blocks as usize,
            affinities: affinities.filter(|stored| stored.value.key.node == name).count(),
            endpoints: endpoints.filter(|stored| stored.value.node() == *name).count(),
        };
        if remaining == Self::default() {
            return None;
        }
        Some(remaining)
    }

    /// True if a release of the node has something to do.
    pub fn is_releasable(&self) -> bool {
        self.addresses + self.blocks + self.affinities > 0
    }

    /// Returns the counts in words, such as `2 addresses and 1 block`, without those that are zero.
    pub(super) fn words(&self) -> String {
        let counts = [
            (self.addresses, "address", "addresses"),
            (self.blocks, "block", "blocks"),
            (self.affinities, "affinity", "affinities"),
            (self.endpoints, "endpoint", "endpoints"),
        ];
        let mut words: Vec<String> = Vec::new();
        for (number, one, many) in counts {
            if number > 0 {
                words.push(count(number, one, many));
            }
        }
        join(&words)
    }
}
