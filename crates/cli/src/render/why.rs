//! The output of `explain --pod` and `explain --node`: the answer, the next steps and, in the wide form, the
//! allocator's decisions.

use std::net::IpAddr;

use calipam_assign::{AddressSource, TunnelAnswer, TunnelLack, TunnelStep};
use calipam_check::ClusterIdentity;
use calipam_check::views::{Explanation, FamilyAnswer};
use calipam_model::IpNet;
use calipam_model::node::Node;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_plan::advice::Cure;
use serde::Serialize;

use super::advice::ShownCure;
use super::column::{Column, left};
use super::decisions::{self, Decision};
use super::document::Document;
use super::output::Text;
use super::text::{joined, object_in};
use crate::hints::{self, Reader};

/// The reason why a pod or node will or will not get an address.
#[derive(Serialize)]
pub(crate) struct Why<'a> {
    cluster: ClusterIdentity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
    node: &'a str,
    refused: bool,
    answer: String,
    /// The cures, the fastest first.
    cures: Vec<ShownCure<'a>>,
    /// The cures, and what helps and cannot be tried.
    steps: Vec<String>,
    families: Vec<ShownFamily<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tunnels: Vec<ShownTunnel<'a>>,
    /// Calico's message, of the first attempt if only that fails; empty if it has none.
    #[serde(skip)]
    calico: &'a str,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownFamily<'a> {
    family: &'static str,
    needed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calico: Option<&'a str>,
    /// Calico's message for the first attempt, if the kubelet's next one gets an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt: Option<&'a str>,
    decisions: Vec<Decision>,
}

/// One of a node's tunnel addresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownTunnel<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// The step that calico-node takes.
    next: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calico: Option<&'a str>,
    /// The same in one sentence.
    answer: String,
}

impl<'a> Why<'a> {
    /// Shows the explanation for a pod or a node.
    pub(crate) fn new(snapshot: &Snapshot, explanation: &'a Explanation, cures: &'a [Cure]) -> Self {
        // Decisions only need the node's name.
        let node = Node {
            name: explanation.node.clone(),
            ..Node::default()
        };
        let mut families = Vec::new();
        for family in &explanation.families {
            families.push(ShownFamily::new(snapshot, &node, family));
        }
        Self {
            cluster: ClusterIdentity::of(snapshot),
            pod: explanation.pod.as_deref(),
            node: &explanation.node,
            refused: explanation.is_refused(),
            answer: explanation.sentence(),
            cures: cures.iter().map(ShownCure::new).collect(),
            steps: steps(snapshot, explanation, cures),
            families,
            tunnels: explanation.tunnels.iter().map(ShownTunnel::new).collect(),
            calico: calico_message(explanation),
        }
    }
}

/// Lists the cures that were tried, and then the steps that cannot be tried. After a refusal, each is an alternative.
fn steps(snapshot: &Snapshot, explanation: &Explanation, cures: &[Cure]) -> Vec<String> {
    let mut steps = Vec::new();
    for cure in cures {
        steps.push(hints::cure::sentence(cure, Reader::Operator));
    }
    let has_cures = !cures.is_empty();
    for step in hints::why::steps(snapshot, explanation, has_cures) {
        let is_alternative = explanation.is_refused() && !steps.is_empty();
        if is_alternative {
            steps.push(format!("or {step}"));
        } else {
            steps.push(step);
        }
    }
    steps
}

/// Returns Calico's message for the first attempt that fails; empty if none does.
fn calico_message(explanation: &Explanation) -> &str {
    let refusal = explanation.first_refusal().or_else(|| explanation.refusal());
    match refusal {
        Some(refusal) => &refusal.calico,
        None => "",
    }
}

impl<'a> ShownFamily<'a> {
    /// Shows the allocator's answer for one family to the node.
    fn new(snapshot: &Snapshot, node: &Node, explained: &'a FamilyAnswer) -> Self {
        let answer = &explained.answer;
        let mut shown = Self {
            family: explained.family.name(),
            needed: explained.is_needed,
            first_attempt: answer.first.as_ref().map(|refusal| refusal.calico.as_str()),
            ..Self::default()
        };
        match &answer.outcome {
            Ok(assigned) => {
                shown.address = Some(assigned.address);
                shown.block = Some(assigned.block);
                shown.from = Some(name_of_source(assigned.source));
            }
            Err(refusal) => {
                shown.reason = Some(refusal.reason.name());
                shown.calico = Some(&refusal.calico);
            }
        }
        for event in &answer.events {
            shown.decisions.push(decisions::describe(snapshot, node, event));
        }
        shown
    }
}

impl<'a> ShownTunnel<'a> {
    /// Shows calico-node's next step for one of the node's tunnels.
    fn new(tunnel: &'a TunnelAnswer) -> Self {
        let mut new_address = None;
        if let TunnelStep::Assign { given, .. } = &tunnel.next {
            new_address = Some(given.address);
        }
        let refusal = tunnel.next.refused();
        Self {
            kind: tunnel.kind.attribute(),
            address: tunnel.has,
            next: step_name(&tunnel.next),
            new_address,
            reason: refusal.map(|refusal| refusal.reason.name()),
            calico: refusal.map(|refusal| refusal.calico.as_str()),
            answer: tunnel_sentence(tunnel),
        }
    }
}

/// Returns the name of calico-node's step in documents.
fn step_name(step: &TunnelStep) -> &'static str {
    match step {
        TunnelStep::Keep => "keep",
        TunnelStep::Remove => "remove",
        TunnelStep::Assign { .. } => "assign",
        TunnelStep::Refuse { .. } => "refuse",
        TunnelStep::NotReached => "not-reached",
    }
}

/// Formats in one sentence what calico-node does with a tunnel's address when it starts.
fn tunnel_sentence(tunnel: &TunnelAnswer) -> String {
    let name = tunnel.kind.name();
    // A tunnel that keeps or loses its address has one.
    let address = tunnel.has.map(|address| address.to_string()).unwrap_or_default();
    match &tunnel.next {
        TunnelStep::Keep => format!("its {name} tunnel has {address}"),
        TunnelStep::Remove => {
            format!("its {name} tunnel loses {address} when calico-node starts: no pool offers it any more")
        }
        TunnelStep::Assign { given, why } => assignment_sentence(tunnel, given.address, why),
        TunnelStep::Refuse { refused, why } => {
            // This failure ends without any step of the user.
            if *why == TunnelLack::Cooling {
                return format!(
                    "calico-node fails at its {name} tunnel until the cooldown of its address {address} is over"
                );
            }
            let reason = &refused.reason;
            format!("calico-node fails at its {name} tunnel, which gets no address: {reason}")
        }
        TunnelStep::NotReached => {
            let state = if tunnel.has.is_some() {
                "as it is"
            } else {
                "without address"
            };
            format!("its {name} tunnel stays {state}, since calico-node fails before it writes the node")
        }
    }
}

/// Formats in one sentence that calico-node assigns an address to a tunnel and, if the tunnel has one, the reason.
fn assignment_sentence(tunnel: &TunnelAnswer, given: IpAddr, why: &TunnelLack) -> String {
    let name = tunnel.kind.name();
    match tunnel.has {
        Some(old) => {
            format!("its {name} tunnel gets {given} in place of {old} when calico-node starts: {why}")
        }
        None => format!("its {name} tunnel has no address: calico-node assigns {given} when it starts"),
    }
}

impl Document for Why<'_> {
    const KIND: &'static str = "AddressExplanation";

    /// Writes the answer, the steps to an address, and the allocator's decisions.
    fn text(&self, text: &mut Text) {
        let indent = 2;
        text.line(&self.answer);
        for step in &self.steps {
            text.hanging(indent, step);
        }
        if !self.calico.is_empty() {
            text.hanging(indent, format!("Calico says: {}", self.calico));
        }
        for tunnel in &self.tunnels {
            text.line(&tunnel.answer);
            if let Some(calico) = tunnel.calico {
                text.hanging(indent, format!("calico-node says: {calico}"));
            }
        }
        for family in &self.families {
            write_decisions(&family.decisions, self.cluster.datastore, text);
        }
    }
}

/// Returns the name of the way in which an address was found.
pub(super) fn name_of_source(source: AddressSource) -> &'static str {
    match source {
        AddressSource::OwnBlock => "own-block",
        AddressSource::NewBlock => "new-block",
        AddressSource::Reclaimed => "reclaimed-block",
        AddressSource::Borrowed => "borrowed",
        AddressSource::Held => "held",
    }
}

/// Writes the allocator's decisions about a family, on a wide page only.
pub(super) fn write_decisions(decisions: &[Decision], datastore: DatastoreKind, text: &mut Text) {
    if text.page.wide && !decisions.is_empty() {
        text.blank();
        text.table(decisions, decision_columns(datastore));
    }
}

/// Returns the columns of the table of decisions.
fn decision_columns<'a>(datastore: DatastoreKind) -> Vec<Column<'a, &'a Decision>> {
    let objects = move |decision: &Decision| {
        let names = decision.keys.iter().map(|key| object_in(datastore, key));
        joined(names, ", ")
    };
    vec![
        left("STEP", |decision: &Decision| decision.step),
        left("SUBJECT", |decision: &Decision| &decision.subject),
        left("DECISION", |decision: &Decision| &decision.detail),
        left("OBJECT", objects),
    ]
}
