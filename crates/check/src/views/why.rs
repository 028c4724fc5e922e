//! Explains why a pod, or a node's next pod, does or does not get an address.

use std::net::IpAddr;

use calipam_assign::{Answer, Family, NextAddress, Reason, Refused, TunnelAnswer, TunnelPools};
use calipam_model::node::Node;
use calipam_model::pod::{Pod, evidence};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Snapshot;
use calipam_model::text::Text;
use calipam_model::words::joined;

use super::gone_node::LeftOfNode;
use crate::answers::{Answers, Kinds, families_of, shows_configuration};
use crate::names::{name_of_pod, short};
use crate::{Context, Finding, Severity, Subject};

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
    /// The families in which pools could serve the pod, but for which the nodes' CNI configuration does not ask.
    pub unasked: Vec<Family>,
    /// True if the pod has addresses, but Calico's annotation with them is blank.
    pub is_blank: bool,
    /// Critical findings about the pod's addresses: no record has one, or others use it, too.
    pub critical: Vec<Finding>,
    /// True if the pod has waited, although IPAM can assign an address to it.
    pub waits_in_vain: bool,
    /// The node's tunnel addresses, and what calico-node does with them next. Empty for a pod.
    pub tunnels: Vec<TunnelAnswer>,
}

/// The state of a pod's request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// The pod asks IPAM for addresses.
    Asks,
    /// The pod has these addresses.
    Has(Vec<IpAddr>),
    /// The node does not exist, but records still name it.
    NodeGone(LeftOfNode),
    NotBound,
    HostNetwork,
    Finished,
    /// The pod is being deleted. It keeps these addresses until its containers have ended, and gets no others.
    Leaving(Vec<IpAddr>),
    /// An annotation names these addresses, which bypass IPAM.
    BypassesIpam(Vec<IpAddr>),
    /// An object that the allocator needs was not read, or cannot be decoded.
    NotKnown,
    /// Some pools serve only certain namespaces, and the labels of the pod's namespace were not read.
    NamespacesNotRead,
    /// The datastore is not the one in which the cluster's Calico keeps its data.
    Elsewhere,
}

/// The allocator's answer for a family.
#[derive(Clone, Debug)]
pub struct FamilyAnswer {
    pub family: Family,
    /// True if the pod is known to ask for the family.
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
        match &self.holder {
            Some(holder) => Some(format!("{reason} by {holder}")),
            None => Some(reason.to_string()),
        }
    }
}

impl Explanation {
    /// Returns IPAM's refusal, if there is one. Prefers the refusal of a family that is needed.
    pub fn refusal(&self) -> Option<&Refused> {
        let (needed, others): (Vec<_>, Vec<_>) = self.families.iter().partition(|family| family.is_needed);
        needed.into_iter().chain(others).find_map(FamilyAnswer::refused)
    }

    /// Returns the refusal of the first attempt, if the kubelet's next attempt gets an address.
    pub fn first_refusal(&self) -> Option<&Refused> {
        self.families
            .iter()
            .find_map(|family| family.answer.first.as_ref())
    }

    /// Returns the refusal of one of the node's tunnels, if there is one.
    pub fn tunnel_refusal(&self) -> Option<&Refused> {
        self.tunnels.iter().find_map(|tunnel| tunnel.next.refused())
    }

    /// Returns true if IPAM refuses an address to the pod, or to the node's next pod.
    pub fn refuses_pod(&self) -> bool {
        let mut needed = self.families.iter().filter(|family| family.is_needed);
        needed.any(|family| family.refused().is_some())
    }

    /// Returns true if IPAM refuses an address to the pod, or to the node's next pod or one of its tunnels.
    pub fn is_refused(&self) -> bool {
        self.refuses_pod() || self.tunnel_refusal().is_some()
    }

    /// Returns true if there is no address because the node does not exist.
    pub fn is_of_gone_node(&self) -> bool {
        matches!(self.state, RequestState::NodeGone(_))
    }

    /// Returns the answer in one sentence: what a pod or the next pod on a node has, gets, or does not get, and why.
    pub fn sentence(&self) -> String {
        let who = match &self.pod {
            Some(pod) => short(pod),
            None => "the next pod".to_owned(),
        };
        let node = short(&self.node);
        match &self.state {
            RequestState::Has(addresses) => {
                let mut parts = vec![format!("{who} has {} on {node}", joined(addresses, ", "))];
                parts.extend(self.critical.iter().map(Finding::message));
                if self.is_blank {
                    parts.push(BLANK.to_owned());
                }
                parts.extend(self.unasked());
                parts.join("; ")
            }
            RequestState::NodeGone(remaining) => format!(
                "{node} does not exist, so no pod starts there; its records remain: {}",
                remaining.words()
            ),
            RequestState::NotBound => {
                format!("{who} is not scheduled to a node yet: it gets an address only after that")
            }
            RequestState::HostNetwork => format!("{who} uses its node's network, so it needs no address"),
            RequestState::Finished => format!("{who} has finished, so it needs no address"),
            RequestState::Leaving(addresses) if addresses.is_empty() => {
                format!("{who} is being deleted, so it gets no address")
            }
            RequestState::Leaving(addresses) => format!(
                "{who} is being deleted: it keeps {} on {node} until its containers have ended",
                joined(addresses, ", ")
            ),
            RequestState::BypassesIpam(_) => format!("{who} names its addresses itself: IPAM is not used"),
            RequestState::NotKnown => {
                format!("it is not known which address {who} gets on {node}: the data is incomplete")
            }
            RequestState::NamespacesNotRead => format!(
                "it is not known which address {who} gets on {node}: pools select namespaces, which were not read"
            ),
            RequestState::Elsewhere => format!(
                "it is not known which address {who} gets on {node}: the cluster's Calico keeps its data in another datastore"
            ),
            RequestState::Asks => self.answers(&who, &node),
        }
    }

    /// Describes the answers to a pod's or a node's requests in one sentence: first what is needed, then what is not.
    fn answers(&self, who: &str, node: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        for answer in &self.families {
            if answer.is_needed
                && let Some(why) = answer.why()
            {
                parts.push(format!(
                    "{who} gets no {} address on {node}: {why}",
                    answer.family
                ));
            }
        }
        if parts.is_empty() {
            parts.push(self.given_in_words(who, node));
        }
        for answer in &self.families {
            if !answer.is_needed
                && let Some(why) = answer.why()
            {
                parts.push(format!(
                    "if it asks for an {} address, it gets none: {why}",
                    answer.family
                ));
            }
        }
        if !self.refuses_pod() {
            parts.extend(self.unasked());
        }
        parts.join("; ")
    }

    /// Sentences about the families that the nodes' CNI configuration does not ask for.
    fn unasked(&self) -> impl Iterator<Item = String> {
        self.unasked.iter().map(|family| {
            format!(
                "no {family} address: no pod here has one, so the nodes' CNI configuration does not ask for it (assign_{})",
                family.name()
            )
        })
    }

    /// Describes the addresses that are given, and the conditions of that: a second attempt, or labels of the
    /// namespace.
    fn given_in_words(&self, who: &str, node: &str) -> String {
        let mut given: Vec<IpAddr> = Vec::new();
        for family in &self.families {
            if let Ok(assigned) = &family.answer.outcome {
                given.push(assigned.address);
            }
        }
        let addresses = joined(given, ", ");
        if addresses.is_empty() {
            return format!("no pool serves {who} on {node}");
        }
        if self.first_refusal().is_some() {
            return format!(
                "the first attempt fails, since Calico has to clean up; the kubelet's next one gets {addresses} for {who} on {node}"
            );
        }
        if self.pod.is_some() {
            return format!("IPAM can assign {addresses} to {who} on {node}");
        }

        let families = self.families.iter();
        let labels: Vec<&str> = families
            .filter_map(|family| family.namespaces.as_deref())
            .collect();
        let mut sentence = format!("{who} on {node} gets {addresses}");
        if !labels.is_empty() {
            sentence.push_str(&format!(
                ", if its namespace has the labels {}",
                labels.join(", ")
            ));
        }
        sentence
    }
}

/// The consequence of a blank annotation, which another pod's DEL can leave.
const BLANK: &str =
    "Calico's annotation with it is blank, so the pod loses its network as soon as it is deleted";

/// The subject of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking<'r> {
    /// The next pod of this node.
    Node(&'r str),
    /// The pod with this namespace and name.
    Pod(&'r str, &'r str),
}

/// Explains why a pod, or a node's next pod, does or does not get an address, as if the cluster had the blocks,
/// affinities, pools and configuration of `changed`. `None` if there is no such node or pod.
pub fn explain(context: &Context<'_>, changed: &Snapshot, asking: Asking<'_>) -> Option<Explanation> {
    match asking {
        Asking::Node(name) => explain_node(context, changed, name),
        Asking::Pod(namespace, name) => explain_pod(context, changed, namespace, name),
    }
}

/// Explains the answers to the next pod on a node, and to the node's tunnels. Of a node that does not exist, explains
/// what is left; `None` if nothing is.
fn explain_node(context: &Context<'_>, changed: &Snapshot, name: &str) -> Option<Explanation> {
    let Some(node) = context.index.node(name) else {
        if context.index.node_exists(name) {
            return None;
        }
        let remaining = LeftOfNode::of(context.snapshot, name)?;
        return Some(Explanation::new(None, name, RequestState::NodeGone(remaining)));
    };
    let Some(answers) = Answers::on(context, changed) else {
        return Some(Explanation::new(None, name, RequestState::NotKnown));
    };
    let mut explained = Explanation::new(None, name, RequestState::Asks);
    let kind = answers.next_kind(&Kinds::new(&answers), node);
    for family in Family::BOTH {
        if !kind.families[family as usize] {
            continue;
        }
        let pools = kind.pools[family as usize].as_slice();
        let mut answer = if !pools.is_empty() {
            answers.outlook.next(&NextAddress::new(&node.name, family, pools))
        } else if let Some(namespace) = &kind.namespace {
            answers.outlook.next_in_some(namespace, node, family)
        } else {
            answers.outlook.next_of_any(node, family)
        };
        // If Calico refuses all pods of the cluster, that is the reason.
        if let Some(refused) = answers.outlook.cluster_refusal() {
            answer.outcome = Err(refused);
        }
        explained.add_answer(&answers, family, answer);
    }
    explained.note_unasked(&answers, &kind.families);
    // Where another IPAM serves pods, tunnels have its addresses.
    if context.index.host_local_pods == 0 {
        explained.tunnels = answers.outlook.tunnels(node, &TunnelPools::new(changed));
    }
    Some(explained)
}

/// Explains whether a pod has or gets addresses, and why; `None` if there is no such pod.
fn explain_pod(
    context: &Context<'_>,
    changed: &Snapshot,
    namespace: &str,
    name: &str,
) -> Option<Explanation> {
    let position = context
        .index
        .pod(Text::new(namespace).as_ref(), Text::new(name).as_ref())?;
    let pod = &context.snapshot.pods[position as usize].value;
    let node = context.index.calico_node(pod.node());
    let is_leaving = pod.deleting && (pod.leaving_since.is_some() || !pod.finished);
    let state = if is_leaving && !pod.host_network {
        RequestState::Leaving(addresses_of(pod))
    } else if pod.finished {
        RequestState::Finished
    } else if pod.host_network {
        RequestState::HostNetwork
    } else if let Some(explained) = explain_served(context, changed, pod, &node) {
        return Some(explained);
    } else if node.is_empty() {
        RequestState::NotBound
    } else if crate::index::keeps_data_elsewhere(context.snapshot) {
        RequestState::Elsewhere
    } else {
        return Some(explain_waiting(context, changed, pod, &node));
    };
    Some(Explanation::new(Some(pod), &node, state))
}

/// Returns the addresses that a pod has; empty if it has none. Includes those that [`Pod::addresses`] leaves out:
/// addresses that bypass IPAM, and those in the status of a pod whose annotation from Calico is blank.
fn addresses_of(pod: &Pod) -> Vec<IpAddr> {
    let owned: Vec<IpAddr> = pod.addresses().collect();
    if !owned.is_empty() {
        return owned;
    }
    let in_status: Vec<IpAddr> = pod.named_by(evidence::STATUS).collect();
    if !in_status.is_empty() {
        return in_status;
    }
    // The plugin writes its annotation before the kubelet writes the status.
    pod.named_by(evidence::CNI).collect()
}

/// Explains a pod that has addresses, with critical findings about them; `None` if it has none or still waits.
fn explain_served(context: &Context<'_>, changed: &Snapshot, pod: &Pod, node: &str) -> Option<Explanation> {
    let addresses = addresses_of(pod);
    if addresses.is_empty() || pod.waits() {
        return None;
    }

    let families = families_of(addresses.iter().copied());
    let critical = critical_findings(context, &addresses);
    let mut explained = Explanation::new(Some(pod), node, RequestState::Has(addresses));
    explained.is_blank = pod.has_blank_annotation();
    explained.critical = critical;
    if let Some(answers) = Answers::on(context, changed)
        && answers.has_configured_families(pod)
    {
        explained.note_unasked(&answers, &families);
    }
    Some(explained)
}

/// The critical findings about these addresses.
fn critical_findings(context: &Context<'_>, addresses: &[IpAddr]) -> Vec<Finding> {
    let mut findings = context.check().findings;
    findings.retain(|finding| {
        let is_about_address = match &finding.subject {
            Subject::Address(address) => addresses.contains(address),
            _ => false,
        };
        is_about_address && finding.severity == Severity::Critical
    });
    findings
}

/// Explains the answers that a pod without addresses gets on its node, or why they are not known. A pod that names its
/// addresses without IPAM gets those.
fn explain_waiting(context: &Context<'_>, changed: &Snapshot, pod: &Pod, on: &str) -> Explanation {
    let Some(answers) = Answers::on(context, changed) else {
        return Explanation::new(Some(pod), on, RequestState::NotKnown);
    };
    let node = context.index.node(on);
    let is_undecodable = node.is_none() && context.index.node_is_broken(on);
    if is_undecodable {
        return Explanation::new(Some(pod), on, RequestState::NotKnown);
    }
    if answers.refusals(pod, on).is_err() && answers.depends_on_namespace(pod, node) {
        return Explanation::new(Some(pod), on, RequestState::NamespacesNotRead);
    }

    let family_answers = answers.with_add(pod, on, |add| answers.outlook.add(add));
    if bypasses_ipam(pod) && family_answers.iter().all(|(_, answer)| answer.outcome.is_ok()) {
        let addresses = family_answers
            .iter()
            .filter_map(|(_, answer)| Some(answer.outcome.as_ref().ok()?.address));
        return Explanation::new(Some(pod), on, RequestState::BypassesIpam(addresses.collect()));
    }

    let mut explained = Explanation::new(Some(pod), on, RequestState::Asks);
    explained.waits_in_vain = pod.waits();
    let mut asked_families = [false; 2];
    for (family, answer) in family_answers {
        asked_families[family as usize] = true;
        explained.add_answer(&answers, family, answer);
    }
    if answers.has_configured_families(pod) {
        explained.note_unasked(&answers, &asked_families);
    }
    explained
}

/// Returns true if a pod names its addresses without IPAM.
fn bypasses_ipam(pod: &Pod) -> bool {
    match &pod.request {
        Some(request) => !request.annotations.no_ipam.is_empty(),
        None => false,
    }
}

impl Explanation {
    /// Creates an explanation without answers.
    fn new(pod: Option<&Pod>, node: &str, state: RequestState) -> Self {
        Self {
            pod: pod.map(name_of_pod),
            node: node.to_owned(),
            state,
            families: Vec::new(),
            unasked: Vec::new(),
            is_blank: false,
            critical: Vec::new(),
            waits_in_vain: false,
            tunnels: Vec::new(),
        }
    }

    /// Adds the answer for a family that is asked for, with the holder of the address that it names, and the namespaces
    /// that the pool serves.
    fn add_answer(&mut self, answers: &Answers<'_, '_>, family: Family, answer: Answer) {
        let snapshot = answers.context.snapshot;
        let mut holder = None;
        let mut namespaces = None;
        match &answer.outcome {
            Ok(given) => {
                let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
                let is_selective =
                    |pool: &&Pool| pool.cidr.contains(&given.address) && pool.selects_namespaces();
                let pool = pools.find(is_selective);
                namespaces = pool.map(|pool| pool.namespace_selector.clone());
            }
            Err(refused) => {
                if let Reason::Taken(address) = &refused.reason {
                    holder = holder_of(snapshot, *address);
                }
            }
        }
        self.families.push(FamilyAnswer {
            family,
            is_needed: true,
            answer,
            holder,
            namespaces,
        });
    }

    /// Notes the families for which an enabled pool would give pods addresses, but which neither this request nor the
    /// configuration asks for.
    fn note_unasked(&mut self, answers: &Answers<'_, '_>, families: &[bool; 2]) {
        let pools = &answers.context.snapshot.pools;
        let mut unasked = Vec::new();
        for family in Family::BOTH {
            let is_asked_for = families[family as usize] || answers.configurations.is_asked_for(family);
            if is_asked_for {
                continue;
            }
            let has_pool = pools.iter().map(|stored| &stored.value).any(|pool| {
                Family::of(pool.cidr) == family && pool.is_enabled() && pool.allows(PoolUse::Workload)
            });
            if has_pool {
                unasked.push(family);
            }
        }
        self.unasked = unasked;
    }
}

impl Answers<'_, '_> {
    /// True if the nodes' CNI configuration decides which families a pod's addresses have. False if an annotation of
    /// the pod or its namespace decides, or the pod's virtual machine.
    fn has_configured_families(&self, pod: &Pod) -> bool {
        let namespace = self.outlook.namespace(&pod.namespace().to_string());
        let namespace_decides = namespace.is_some_and(|namespace| !namespace.annotations.families.is_empty());
        // A pod shows the configuration if nothing of its own decides.
        !namespace_decides && shows_configuration(pod)
    }

    /// True if the answer for a pod depends on the labels of its namespace, which were not read.
    fn depends_on_namespace(&self, pod: &Pod, node: Option<&Node>) -> bool {
        let Some(node) = node else {
            return false;
        };
        let namespace = pod.namespace().to_string();
        if self.outlook.namespace(&namespace).is_some() {
            return false;
        }

        // If the answer is not known for pods of any namespace either, other data is missing.
        let is_unknown_in = |family| self.outlook.refusal_in(&namespace, node, family).is_err();
        let is_known_in_general = |family| self.outlook.refusal(node, family, &[]).is_ok();
        Family::BOTH.into_iter().any(is_unknown_in) && Family::BOTH.into_iter().all(is_known_in_general)
    }
}

/// Returns an address's holder: the owner in its record, or else a user.
fn holder_of(snapshot: &Snapshot, address: IpAddr) -> Option<String> {
    let view = super::address(snapshot, address);
    let recorded = view.blocks.into_iter().find_map(|block| block.recorded_owner);
    recorded.or_else(|| view.owners.first().map(|owner| owner.name.clone()))
}
