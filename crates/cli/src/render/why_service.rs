//! The output of `explain --service`: the answer, the next steps and, in the wide form, the allocator's decisions.

use std::net::IpAddr;

use calipam_check::ClusterIdentity;
use calipam_check::views::{FamilyOfService, ServiceExplanation, ServiceState};
use calipam_model::IpNet;
use calipam_model::affinity::LOAD_BALANCER;
use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::decisions::{self, Decision};
use super::document::Document;
use super::output::Text;
use super::why::{name_of_source, write_decisions};
use crate::hints;

/// The reason why a LoadBalancer service will or will not get an address.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhyService<'a> {
    cluster: ClusterIdentity,
    service: &'a str,
    state: &'static str,
    refused: bool,
    answer: String,
    steps: Vec<String>,
    recorded: &'a [IpAddr],
    ingress: &'a [IpAddr],
    settles: bool,
    families: Vec<ShownFamily<'a>>,
    /// The controller's error; empty if it logs none.
    calico: &'a str,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownFamily<'a> {
    family: &'static str,
    needed: bool,
    kept: &'a [IpAddr],
    released: &'a [IpAddr],
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calico: Option<&'a str>,
    decisions: Vec<Decision>,
}

impl<'a> WhyService<'a> {
    /// Shows the explanation for a service.
    pub(crate) fn new(snapshot: &Snapshot, explanation: &'a ServiceExplanation) -> Self {
        let families = explanation
            .families
            .iter()
            .map(|family| ShownFamily::new(snapshot, family));
        Self {
            cluster: ClusterIdentity::of(snapshot),
            service: &explanation.service,
            state: name_of_state(&explanation.state),
            refused: explanation.is_refused(),
            answer: explanation.sentence(),
            steps: hints::service::steps(explanation),
            recorded: &explanation.recorded,
            ingress: &explanation.ingress,
            settles: explanation.settles,
            families: families.collect(),
            calico: explanation.calico(),
        }
    }
}

impl<'a> ShownFamily<'a> {
    /// Shows what the controller does for one family of the service.
    fn new(snapshot: &Snapshot, explained: &'a FamilyOfService) -> Self {
        // The allocator gives blocks of services to this holder, as it does to a node.
        let holder = Node {
            name: LOAD_BALANCER.to_owned(),
            ..Node::default()
        };
        let family = &explained.family;
        let mut shown = Self {
            family: family.family.name(),
            needed: family.is_needed,
            kept: &family.kept,
            released: &family.released,
            reason: explained.reason(),
            why: explained.why(),
            calico: explained.calico(),
            ..Self::default()
        };
        // Without an answer, the controller does not ask the allocator for this family.
        let Some(answer) = explained.answer() else {
            return shown;
        };
        if let Ok(given) = &answer.outcome {
            shown.address = Some(given.address);
            shown.block = Some(given.block);
            shown.from = Some(name_of_source(given.source));
        }
        for event in &answer.events {
            shown
                .decisions
                .push(decisions::describe(snapshot, &holder, event));
        }
        shown
    }
}

/// Returns the state's name in documents.
fn name_of_state(state: &ServiceState) -> &'static str {
    match state {
        ServiceState::Served => "served",
        ServiceState::NotLoadBalancer => "not-load-balancer",
        ServiceState::Deleting => "deleting",
        ServiceState::OtherClass(_) => "other-class",
        ServiceState::NotRequested => "not-requested",
        ServiceState::NotServed(_) => "not-served",
        ServiceState::NoPool => "no-pool",
        ServiceState::Unreadable(_) => "unreadable-request",
        ServiceState::NotKnown => "not-known",
    }
}

impl Document for WhyService<'_> {
    const KIND: &'static str = "ServiceExplanation";

    /// Writes the answer, the steps to an address, and the allocator's decisions.
    fn text(&self, out: &mut Text) {
        let indent = 2;
        out.line(&self.answer);
        for step in &self.steps {
            out.hanging(indent, step);
        }
        if !self.calico.is_empty() {
            out.hanging(indent, format!("Calico says: {}", self.calico));
        }
        for family in &self.families {
            write_decisions(&family.decisions, self.cluster.datastore, out);
        }
    }
}
