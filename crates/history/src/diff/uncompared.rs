//! Objects that cannot be compared. It is unknown whether they have changed or are gone.

use std::collections::BTreeSet;

use calipam_check::Scope;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use serde::Serialize;

use super::regions::Region;

/// The snapshot in which an object could not be read: the old one, the new one, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Old,
    New,
    Both,
}

/// The kind of an object that cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncompared {
    /// A source that was read in only one of the snapshots.
    Source,
    /// A block that cannot be decoded or is corrupt, and all its addresses.
    Block,
    /// Another object that cannot be decoded, by its etcd path.
    Object,
}

/// An object that was not compared, and the snapshot in which it could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    pub kind: Uncompared,
    pub name: String,
    pub side: Side,
}

impl NotCompared {
    /// Creates an object that cannot be compared; `None` if it is on neither side.
    fn new(kind: Uncompared, name: impl ToString, [old, new]: [bool; 2]) -> Option<Self> {
        let side = match (old, new) {
            (true, true) => Side::Both,
            (true, false) => Side::Old,
            (false, true) => Side::New,
            (false, false) => return None,
        };
        Some(Self {
            kind,
            name: name.to_string(),
            side,
        })
    }
}

const COMPARED: [Source; 10] = [
    Source::Blocks,
    Source::Affinities,
    Source::Handles,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::ClusterInformation,
    Source::KubeControllersConfiguration,
    Source::IpamConfig,
    Source::IpamConfiguration,
];

/// Returns the sources that were read in only one of the snapshots.
pub(crate) fn sources(old: &Snapshot, new: &Snapshot) -> Vec<NotCompared> {
    let mut not_compared = Vec::new();
    for source in COMPARED {
        let is_in_old = old.has_read(source);
        let is_in_new = new.has_read(source);
        if is_in_old != is_in_new {
            let sides = [!is_in_old, !is_in_new];
            not_compared.extend(NotCompared::new(Uncompared::Source, source, sides));
        }
    }
    not_compared
}

/// Returns the blocks that cannot be compared.
pub(crate) fn blocks(regions: &[Region<'_>], scope: &Scope) -> Vec<NotCompared> {
    let mut not_compared = Vec::new();
    for (cidr, sides) in regions.iter().flat_map(Region::unreadable) {
        if scope.has_network(cidr) {
            not_compared.extend(NotCompared::new(Uncompared::Block, cidr, sides));
        }
    }
    not_compared
}

/// Stored objects of which at least a part cannot be decoded. Blocks and users of addresses are not included.
#[derive(Debug)]
pub(crate) struct Hidden {
    old: BTreeSet<Key>,
    new: BTreeSet<Key>,
}

impl Hidden {
    pub(super) fn new(old: &Snapshot, new: &Snapshot) -> Self {
        Self {
            old: hidden_keys(old),
            new: hidden_keys(new),
        }
    }

    /// True if the object cannot be compared.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.old.contains(key) || self.new.contains(key)
    }

    /// True if nothing is hidden. This is the usual case, in which callers need not build keys for [`Self::has`].
    pub(super) fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    /// Lists the objects in scope that cannot be compared.
    pub(super) fn listed(&self, scope: &Scope) -> Vec<NotCompared> {
        let mut listed = Vec::new();
        for key in self.old.union(&self.new) {
            if may_be_in_scope(key, scope) {
                let sides = [self.old.contains(key), self.new.contains(key)];
                listed.extend(NotCompared::new(Uncompared::Object, key, sides));
            }
        }
        listed
    }
}

/// True if the object with this key may be in the scope.
fn may_be_in_scope(key: &Key, scope: &Scope) -> bool {
    match key {
        Key::Affinity(key) => scope.has_network(key.cidr) && scope.has_node(&key.node),
        Key::Node(name) => scope.networks.is_empty() && scope.has_node(name),
        // The addresses of these objects are unknown.
        _ => true,
    }
}

/// Returns the keys of a snapshot's objects that cannot be compared. An object with an undecodable field is one of them,
/// since it would otherwise seem to have lost the field.
fn hidden_keys(snapshot: &Snapshot) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for key in snapshot.defects.iter().filter_map(|defect| defect.key.as_ref()) {
        // [`blocks`] lists blocks, and users of addresses are not compared.
        let is_listed_elsewhere = matches!(
            key,
            Key::Block(_) | Key::Endpoint { .. } | Key::Pod { .. } | Key::Service { .. }
        );
        if !is_listed_elsewhere {
            keys.insert(key.clone());
        }
    }
    keys
}
