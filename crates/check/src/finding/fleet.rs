//! How findings of a fleet are known.

use std::fmt;

use calipam_model::IpNet;
use serde::Serialize;

use super::owner::is_zero;
use crate::names::list;

/// Evidence about what other clusters of a fleet have as well.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ElsewhereEvidence {
    /// The name of the pool, or who uses the address, in the cluster of the finding.
    pub here: String,
    /// The first of the others.
    pub others: Vec<Elsewhere>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub further: usize,
}

impl ElsewhereEvidence {
    /// The others in one phrase.
    pub(crate) fn list(&self, name: impl Fn(&Elsewhere) -> String) -> String {
        let mut names: Vec<String> = self.others.iter().map(name).collect();
        // Only their number counts here: the list names the first few.
        names.resize(names.len() + self.further, String::new());
        list(names)
    }
}

/// Something in another cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Elsewhere {
    /// The name of the cluster in the fleet.
    pub cluster: String,
    pub kind: ElsewhereKind,
    /// The pool, node or service, or who uses the address.
    pub name: String,
    /// Where it lies.
    pub cidr: IpNet,
    /// Of pools: how many addresses of what both share are in use in the cluster of the finding, and in the other one.
    #[serde(flatten)]
    pub in_use: Option<SharedUse>,
}

/// How many addresses of a range are in use on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedUse {
    #[serde(rename = "inUseHere")]
    pub here: u64,
    #[serde(rename = "inUseThere")]
    pub there: u64,
}

/// What another cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ElsewhereKind {
    Pool,
    Node,
    Tunnel,
    Service,
    /// A range of services.
    Services,
    /// Whoever uses an address.
    User,
    /// Who has a record of an address that is leaked.
    Leaked,
}

impl fmt::Display for ElsewhereKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Evidence about a cluster that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UnreadableEvidence {
    pub reason: String,
}
