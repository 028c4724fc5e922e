//! Evidence of findings about a fleet.

use calipam_model::IpNet;
use serde::Serialize;

use super::is_zero;
use crate::names::list;

/// Evidence about objects in other clusters of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ElsewhereEvidence {
    /// The name of the pool, or the user of the address, in the finding's cluster.
    pub here: String,
    /// The first few objects of other clusters.
    pub others: Vec<Elsewhere>,
    /// The number of further objects, which [`Self::others`] does not list.
    #[serde(skip_serializing_if = "is_zero")]
    pub further: usize,
}

impl ElsewhereEvidence {
    /// Joins the other objects into a phrase.
    pub(crate) fn list(&self, name: impl Fn(&Elsewhere) -> String) -> String {
        let mut names: Vec<String> = self.others.iter().map(name).collect();
        // The phrase names only the first few objects; the others are counted.
        names.resize(names.len() + self.further, String::new());
        list(names)
    }
}

/// An object of another cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Elsewhere {
    /// The name of the cluster in the fleet.
    pub cluster: String,
    pub kind: ElsewhereKind,
    /// The name of the pool, node or service, or the user of the address.
    pub name: String,
    /// The object's CIDR or address.
    pub cidr: IpNet,
    /// The numbers of addresses in use in the range that two pools share; `None` if the object is not a pool.
    #[serde(flatten)]
    pub in_use: Option<SharedUse>,
}

impl Elsewhere {
    /// Creates the evidence for an object of another cluster, before it is known whether its addresses are in use.
    pub(crate) fn new(cluster: &str, kind: ElsewhereKind, name: &str, cidr: IpNet) -> Self {
        Self {
            cluster: cluster.to_owned(),
            kind,
            name: name.to_owned(),
            cidr,
            in_use: None,
        }
    }
}

/// The number of addresses that each of two clusters uses in a shared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedUse {
    #[serde(rename = "inUseHere")]
    pub here: u64,
    #[serde(rename = "inUseThere")]
    pub there: u64,
}

/// The kind of another cluster's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ElsewhereKind {
    Pool,
    Node,
    Tunnel,
    Service,
    /// A service range.
    Services,
    /// A user of an address.
    User,
    /// The recorded owner of a leaked address.
    Leaked,
}

calipam_model::display_serialized!(ElsewhereKind);

/// Evidence about a cluster that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UnreadableEvidence {
    pub reason: String,
}
