//! Explains why a pod, or a node's next pod, does or does not get an address.

use std::net::IpAddr;

use calipam_assign::{Answer, Family, NotKnown, Outlook, Reason, Refused};
use calipam_model::node::Node;
use calipam_model::pod::{Pod, evidence};
use calipam_model::snapshot::Snapshot;
use calipam_model::text::Text;
use calipam_model::words::joined;

use crate::names::short;
use crate::needs::Needs;
use crate::rules::without_address::{PodAnswer, answer_for_pod, name_of_pod};
use crate::{Context, Options};

/// The explanation for a pod, or for a node's next pod.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// `namespace/name`; `None` for the next pod.
    pub pod: Option<String>,
    /// The node; empty for a pod that is not bound to a node.
    pub node: String,
    pub state: RequestState,
    /// The allocator's answers, IPv4 first.
    pub families: Vec<FamilyAnswer>,
}

/// The state of a pod's request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// The pod asks IPAM for addresses.
    Asks,
    /// The pod has these addresses.
    Has(Vec<IpAddr>),
    NotBound,
    HostNetwork,
    Finished,
    /// An annotation names addresses that bypass IPAM.
    BypassesIpam,
    /// Calico does not know the pod's node.
    NoNode,
    /// The pod names a pool that does not exist.
    UnknownPool(String),
    /// An object that the allocator needs was not read, or cannot be decoded.
    NotKnown,
    /// Some pools serve only certain namespaces, and the labels of the pod's namespace were not read.
    NamespacesNotRead,
}

/// The allocator's answer for a family.
#[derive(Clone, Debug)]
pub struct FamilyAnswer {
    pub family: Family,
    /// True if pods have addresses of the family, if no pod has any address, or if this pod names pools or addresses.
    pub is_needed: bool,
    pub answer: Answer,
    /// The holder of the requested address, if it is taken.
    pub holder: Option<String>,
    /// The namespace selector of the address's pool, if the pool does not serve all namespaces.
    pub namespaces: Option<String>,
}

impl FamilyAnswer {
    fn refused(&self) -> Option<&Refused> {
        self.answer.outcome.as_ref().err()
    }

    /// Returns the reason why there is no address, with the holder of the requested address.
    fn why(&self) -> Option<String> {
        let reason = &self.refused()?.reason;
        Some(self.holder.as_ref().map_or(reason.to_string(), |holder| format!("{reason} by {holder}")))
    }
}

impl Explanation {
    /// Returns IPAM's refusal, if there is one. Prefers the refusal of a family that is needed.
    pub fn refusal(&self) -> Option<&Refused> {
        let (needed, others): (Vec<_>, Vec<_>) = self.families.iter().partition(|family| family.is_needed);
        needed.into_iter().chain(others).find_map(FamilyAnswer::refused)
    }

    /// Returns true if IPAM refuses an address to the pod, or to the node's next pod.
    pub fn is_refused(&self) -> bool {
        let needed = self.families.iter().filter(|family| family.is_needed);
        needed.into_iter().any(|family| family.refused().is_some())
            || matches!(self.state, RequestState::NoNode | RequestState::UnknownPool(_))
    }

    /// Returns the answer in one sentence.
    pub fn sentence(&self) -> String {
        let who = self.pod.as_deref().map_or_else(|| "the next pod".to_owned(), short);
        let node = short(&self.node);
        match &self.state {
            RequestState::Has(addresses) => {
                format!("{who} has {} on {node}", joined(addresses, ", "))
            }
            RequestState::NotBound => {
                format!("{who} is not scheduled to a node yet: it gets an address only after that")
            }
            RequestState::HostNetwork => format!("{who} uses its node's network, so it needs no address"),
            RequestState::Finished => format!("{who} has finished, so it needs no address"),
            RequestState::BypassesIpam => format!("{who} names its addresses itself: IPAM is not used"),
            RequestState::NoNode => format!("{who} gets no address: Calico does not know node {node}"),
            RequestState::UnknownPool(pool) => {
                let pool = short(pool);
                format!("{who} gets no address on {node}: it asks for the pool {pool}, which does not exist")
            }
            RequestState::NotKnown => {
                format!("it is not known which address {who} gets on {node}: the data is incomplete")
            }
            RequestState::NamespacesNotRead => format!(
                "it is not known which address {who} gets on {node}: pools select namespaces, which were not read"
            ),
            RequestState::Asks => self.answers(&who, &node),
        }
    }

    fn answers(&self, who: &str, node: &str) -> String {
        let refused = |is_needed: bool| {
            let families = self.families.iter().filter(move |family| family.is_needed == is_needed);
            families.filter_map(|family| Some((family.family, family.why()?)))
        };
        let mut parts: Vec<String> = Vec::new();
        for (family, why) in refused(true) {
            parts.push(format!("{who} gets no {family} address on {node}: {why}"));
        }
        if parts.is_empty() {
            let given = self.families.iter().filter_map(|family| family.answer.outcome.as_ref().ok());
            let given = joined(given.map(|given| given.address), ", ");
            let only: Vec<&str> =
                self.families.iter().filter_map(|family| family.namespaces.as_deref()).collect();
            let only = match (self.pod.is_some(), only.is_empty()) {
                (false, false) => format!(", if its namespace has the labels {}", only.join(", ")),
                _ => String::new(),
            };
            parts.push(match (self.pod.is_some(), given.is_empty()) {
                (_, true) => format!("no pool serves {who} on {node}"),
                (true, false) => format!("IPAM can assign {given} to {who} on {node}"),
                (false, false) => format!("{who} on {node} gets {given}{only}"),
            });
        }
        for (family, why) in refused(false) {
            parts.push(format!("if it asks for an {family} address, it gets none: {why}"));
        }
        parts.join("; ")
    }
}

/// Explains the addresses of a node's next pod; `None` if there is no such node.
pub fn explain_node(snapshot: &Snapshot, name: &str) -> Option<Explanation> {
    let context = Context::new(snapshot, &Options::default());
    let node = context.index.node(name)?;
    Some(explain(&context, None, &node.name, Some(node)))
}

/// Explains a pod's addresses; `None` if there is no such pod.
pub fn explain_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<Explanation> {
    let context = Context::new(snapshot, &Options::default());
    let position = context.index.pod(Text::new(namespace).as_ref(), Text::new(name).as_ref())?;
    let pod = &snapshot.pods[position as usize].value;
    let on = context.index.calico_node(pod.node());
    let node = context.index.node(&on);
    let addresses: Vec<IpAddr> = pod.addresses().collect();
    let bypasses = pod.evidence().iter().any(|(_, by)| by & evidence::NO_IPAM != 0);
    let state = if pod.finished {
        RequestState::Finished
    } else if pod.host_network {
        RequestState::HostNetwork
    } else if !addresses.is_empty() {
        RequestState::Has(addresses)
    } else if bypasses {
        RequestState::BypassesIpam
    } else if on.is_empty() {
        RequestState::NotBound
    } else if node.is_none() && !context.index.node_exists(&on) {
        RequestState::NoNode
    } else {
        return Some(explain(&context, Some(pod), &on, node));
    };
    Some(Explanation { pod: Some(name_of_pod(pod)), node: on, state, families: Vec::new() })
}

fn explain(context: &Context<'_>, pod: Option<&Pod>, on: &str, node: Option<&Node>) -> Explanation {
    let mut explained = Explanation {
        pod: pod.map(name_of_pod),
        node: on.to_owned(),
        state: RequestState::NotKnown,
        families: Vec::new(),
    };
    let (Some(outlook), Some(node)) = (Outlook::new(context.snapshot), node) else { return explained };
    explained.state = RequestState::Asks;
    let needs = Needs::new(context);
    for family in Family::BOTH.into_iter().filter(|family| needs.matters(*family)) {
        let asked = pod.map_or(PodAnswer::AsAny, |pod| answer_for_pod(&outlook, pod, &node.name, family));
        let answer = match asked {
            PodAnswer::Asked(answer) => *answer,
            PodAnswer::AsAny => {
                let in_namespace = |pod: &Pod| outlook.next_in(&pod.namespace().to_string(), node, family);
                match pod.map_or_else(|| Ok(outlook.next_of_any(node, family)), in_namespace) {
                    Ok(answer) => answer,
                    Err(NotKnown) => {
                        explained.state = RequestState::NamespacesNotRead;
                        continue;
                    }
                }
            }
            PodAnswer::NotAsked => continue,
            PodAnswer::UnknownPool(pool) => {
                explained.state = RequestState::UnknownPool(pool);
                continue;
            }
        };
        let holder = match answer.outcome.as_ref().err().map(|refused| &refused.reason) {
            Some(Reason::Taken(address)) => holder_of(context.snapshot, *address),
            _ => None,
        };
        let is_needed = needs.is_needed(family) || pod.is_some_and(|pod| pod.request.is_some());
        let given = answer.outcome.as_ref().ok().map(|given| given.address);
        let pool = context.snapshot.pools.iter().map(|stored| &stored.value).find(|pool| {
            given.is_some_and(|given| pool.cidr.contains(&given)) && !pool.namespace_selector.is_empty()
        });
        let namespaces = pool.map(|pool| pool.namespace_selector.clone());
        explained.families.push(FamilyAnswer { family, is_needed, answer, holder, namespaces });
    }
    explained
}

/// Returns an address's holder: the owner in its record, or else a user.
fn holder_of(snapshot: &Snapshot, address: IpAddr) -> Option<String> {
    let view = super::address(snapshot, address);
    let recorded = view.blocks.into_iter().find_map(|block| block.recorded_owner);
    recorded.or_else(|| view.owners.first().map(|owner| owner.name.clone()))
}
