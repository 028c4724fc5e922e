//! What cannot be compared: neither the same nor different, and never gone.

use std::collections::BTreeSet;
use std::fmt;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::regions::Region;

/// Where something is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Old,
    New,
    Both,
}

impl Side {
    /// The side or sides of two on which something is so; `None` for neither.
    pub(crate) fn of(old: bool, new: bool) -> Option<Self> {
        match (old, new) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Old),
            (false, true) => Some(Self::New),
            (false, false) => None,
        }
    }
}

/// What was not compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uncompared {
    /// A kind of object, which was not read.
    Source(Source),
    /// A block that cannot be decoded or is corrupt, with all its addresses.
    Block(IpNet),
    /// Another object that cannot be decoded, by its etcd path.
    Object(String),
}

impl Uncompared {
    /// True for what is there and may differ, but cannot be decoded.
    pub fn is_undecodable(&self) -> bool {
        !matches!(self, Self::Source(_))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Block(_) => "block",
            Self::Object(_) => "object",
        }
    }
}

impl fmt::Display for Uncompared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(source) => source.fmt(f),
            Self::Block(cidr) => cidr.fmt(f),
            Self::Object(path) => f.write_str(path),
        }
    }
}

/// What was not compared, and on which side it is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotCompared {
    pub what: Uncompared,
    pub side: Side,
}

impl Serialize for NotCompared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("NotCompared", 3)?;
        object.serialize_field("kind", self.what.kind())?;
        object.serialize_field("name", &format_args!("{}", self.what))?;
        object.serialize_field("side", &self.side)?;
        object.end()
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

/// Sources that were read on one side only. What neither has is missing in both alike.
pub(crate) fn sources(old: &Snapshot, new: &Snapshot) -> Vec<NotCompared> {
    let uneven = |source: Source| match (old.has_read(source), new.has_read(source)) {
        (false, true) => Some(NotCompared { what: Uncompared::Source(source), side: Side::Old }),
        (true, false) => Some(NotCompared { what: Uncompared::Source(source), side: Side::New }),
        _ => None,
    };
    COMPARED.into_iter().filter_map(uneven).collect()
}

/// Blocks that cannot be compared.
pub(crate) fn blocks(regions: &[Region<'_>], scope: &Scope) -> Vec<NotCompared> {
    let unreadable = regions.iter().flat_map(Region::unreadable);
    unreadable
        .filter(|(cidr, _)| scope.has_network(*cidr))
        .map(|(cidr, side)| NotCompared { what: Uncompared::Block(cidr), side })
        .collect()
}

/// Objects other than blocks that are stored and cannot be decoded, as a whole or in part.
#[derive(Debug)]
pub(crate) struct Hidden {
    old: BTreeSet<Key>,
    new: BTreeSet<Key>,
}

impl Hidden {
    pub(super) fn new(old: &Snapshot, new: &Snapshot) -> Self {
        Self { old: of(old), new: of(new) }
    }

    /// True if nothing can be said about an object.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.old.contains(key) || self.new.contains(key)
    }

    /// True if nothing is hidden: the usual case, which spares building keys.
    pub(super) fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    pub(super) fn listed(&self, scope: &Scope) -> Vec<NotCompared> {
        let concerns = |key: &&Key| match key {
            Key::Affinity(key) => scope.has_network(key.cidr) && scope.has_node(&key.node),
            Key::Node(name) => scope.networks.is_empty() && scope.has_node(name),
            // Which addresses these concern is not known.
            _ => true,
        };
        let side = |key: &Key| Side::of(self.old.contains(key), self.new.contains(key));
        let keys: BTreeSet<&Key> = self.old.union(&self.new).filter(concerns).collect();
        keys.into_iter()
            .filter_map(|key| {
                Some(NotCompared { what: Uncompared::Object(key.to_string()), side: side(key)? })
            })
            .collect()
    }
}

fn of(snapshot: &Snapshot) -> BTreeSet<Key> {
    // An object of which one field cannot be decoded would seem to have lost it.
    let keys = snapshot.defects.iter().filter_map(|defect| defect.key.clone());
    keys.filter(|key| {
        // Blocks are listed with their addresses; who uses addresses is not compared.
        !matches!(key, Key::Block(_) | Key::Endpoint { .. } | Key::Pod { .. } | Key::Service { .. })
    })
    .collect()
}
