//! The users of an address in findings.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::config::NotServed;
use calipam_model::node::TunnelKind;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::is_zero;
use super::no_address::RefusalEvidence;
use crate::claim::Claim;

/// Serializes owners as if they were not shared.
pub(crate) fn shared<S: Serializer>(owners: &[Arc<OwnerEvidence>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(owners.iter().map(Arc::as_ref))
}

/// Serializes an owner as if it were not shared.
pub(crate) fn one_shared<S: Serializer>(
    owner: &Arc<OwnerEvidence>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    owner.serialize(serializer)
}

/// The kind of an address's user. The order is alphabetical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    #[default]
    Endpoint,
    Node,
    Pod,
    Service,
    Tunnel,
}

calipam_model::display_serialized!(OwnerKind);

/// An owner's address, or the field that contains the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerField {
    /// An address of an endpoint, pod or service.
    Address(IpAddr),
    /// The field in a node object that contains the address of the tunnel of this kind.
    Tunnel(TunnelKind),
}

impl fmt::Display for OwnerField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Tunnel(kind) => f.write_str(kind.field()),
        }
    }
}

calipam_model::serialize_displayed!(OwnerField);

/// The state of a pod that is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    Gone,
    Finished,
}

/// The reason why a LoadBalancer service has no address, according to the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAddress {
    /// No enabled pool serves LoadBalancers.
    NoPool,
    /// All pools for LoadBalancers are in Manual mode, and the service names none.
    PoolsManual,
    /// The controller cannot read an annotation of the service.
    #[serde(rename = "unreadable-request")]
    Unreadable,
    /// The controller assigns and releases addresses again and again.
    NeverSettles,
    /// IPAM refuses the address, or the controller does not ask for it: see the refusals.
    Refused,
    #[serde(untagged)]
    NotServed(NotServed),
}

impl fmt::Display for NoAddress {
    /// Writes the reason as a clause of a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool => f.write_str("no enabled pool allows the use LoadBalancer"),
            Self::PoolsManual => f.write_str(
                "the pools for load balancers are Manual: a service has to name one in the annotation projectcalico.org/ipv4pools or ipv6pools",
            ),
            Self::Unreadable => f.write_str("the controller cannot read what the service asks for"),
            Self::NeverSettles => f.write_str(
                "the controller assigns and releases its address again and again, since what the service names does not include it",
            ),
            Self::Refused => f.write_str("the controller does not get the address"),
            Self::NotServed(why) => why.fmt(f),
        }
    }
}

/// The user of an address, with the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerEvidence {
    pub kind: OwnerKind,
    /// `namespace/name`; for a node or a tunnel, the node's name.
    pub name: String,
    /// The owner's node; empty for a service.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The pod as `namespace/pod`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The ID of the pod's sandbox.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// The annotation with which the pod has the address without IPAM, as `floatingIPs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotation: Option<&'static str>,
    /// The time when a pod finished, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The pod's state, if the owner is an endpoint that should no longer exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_state: Option<PodState>,
    /// The reason why a service has no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<NoAddress>,
    /// The reasons why a service lacks addresses, by family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalEvidence>,
    /// The owner's addresses; for a tunnel, the field that contains its address; for a node that lacks tunnel
    /// addresses, the fields that should contain them. A finding about one address lists only the first
    /// [`LISTED_FIELDS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<OwnerField>,
    /// The number of addresses that `fields` does not list.
    #[serde(rename = "furtherFields", skip_serializing_if = "is_zero")]
    pub further_fields: usize,
}

/// The maximum number of an owner's addresses in a finding about one of them. A pod whose annotation names thousands of
/// addresses can have a finding for each.
pub(crate) const LISTED_FIELDS: usize = 16;

impl OwnerEvidence {
    /// Creates an owner with only a kind and a name.
    pub fn new(kind: OwnerKind, name: String) -> Self {
        Self {
            kind,
            name,
            ..Self::default()
        }
    }

    /// Sets the owner's `count` addresses, of which up to `most` are listed.
    pub(crate) fn naming(self, addresses: impl Iterator<Item = IpAddr>, count: usize, most: usize) -> Self {
        let fields: Vec<OwnerField> = addresses.take(most).map(OwnerField::Address).collect();
        Self {
            further_fields: count.saturating_sub(fields.len()),
            fields,
            ..self
        }
    }

    /// True if the claim names this tunnel, container or pod. False for claims of other kinds.
    pub(crate) fn is_named_by(&self, claim: &Claim<'_>) -> bool {
        match claim {
            Claim::Tunnel { node, .. } => self.kind == OwnerKind::Tunnel && self.node == *node,
            Claim::Container(id) => self.container_id == *id,
            claim => claim
                .pod()
                .is_some_and(|(namespace, pod)| self.pod == format!("{namespace}/{pod}")),
        }
    }

    /// The owner's listed addresses; empty for a tunnel, which lists a field instead.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.fields.iter().filter_map(|field| match field {
            OwnerField::Address(address) => Some(*address),
            OwnerField::Tunnel(_) => None,
        })
    }
}
