//! The output of `explain --pod` and `explain --node`: the answer, the next steps and, in the wide form, the
//! allocator's decisions.

use std::net::IpAddr;

use calipam_assign::AddressSource;
use calipam_check::ClusterIdentity;
use calipam_check::views::{Explanation, FamilyAnswer};
use calipam_model::IpNet;
use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::column::{Column, left};
use super::decisions::{self, Decision};
use super::document::Document;
use super::page::Text;
use super::text::joined;
use crate::hints;

/// The reason why a pod or node will or will not get an address.
pub(crate) struct Why<'a> {
    pub snapshot: &'a Snapshot,
    pub explanation: &'a Explanation,
}

#[derive(Serialize)]
struct WhyJson<'a> {
    cluster: ClusterIdentity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
    node: &'a str,
    refused: bool,
    answer: String,
    steps: Vec<String>,
    families: Vec<ShownFamily<'a>>,
}

#[derive(Serialize)]
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
    decisions: Vec<Decision>,
}

impl Why<'_> {
    fn decisions(&self, family: &FamilyAnswer) -> Vec<Decision> {
        let node = Node { name: self.explanation.node.clone(), ..Node::default() };
        family.answer.events.iter().map(|event| decisions::of(self.snapshot, &node, event)).collect()
    }

    fn family<'f>(&self, family: &'f FamilyAnswer) -> ShownFamily<'f> {
        let outcome = family.answer.outcome.as_ref();
        let (given, refused) = (outcome.ok(), outcome.err());
        ShownFamily {
            family: family.family.name(),
            needed: family.is_needed,
            address: given.map(|given| given.address),
            block: given.map(|given| given.block),
            from: given.map(|given| source(given.source)),
            reason: refused.map(|refused| refused.reason.name()),
            calico: refused.map(|refused| refused.calico.as_str()),
            decisions: self.decisions(family),
        }
    }
}

impl Document for Why<'_> {
    const KIND: &'static str = "AddressExplanation";

    fn text(&self, text: &mut Text) {
        text.line(self.explanation.sentence());
        for step in hints::why::steps(self.snapshot, self.explanation) {
            text.hanging(2, step);
        }
        let calico = self.explanation.refusal().map(|refused| refused.calico.as_str()).unwrap_or_default();
        if !calico.is_empty() {
            text.hanging(2, format!("Calico says: {calico}"));
        }
        let families = self.explanation.families.iter().filter(|family| !family.answer.events.is_empty());
        let wide = text.page.wide;
        for family in families.filter(|_| wide) {
            text.blank();
            text.table(&self.decisions(family), decision_columns());
        }
    }

    fn schema(&self) -> impl Serialize {
        let explanation = self.explanation;
        WhyJson {
            cluster: ClusterIdentity::of(self.snapshot),
            pod: explanation.pod.as_deref(),
            node: &explanation.node,
            refused: explanation.is_refused(),
            answer: explanation.sentence(),
            steps: hints::why::steps(self.snapshot, explanation),
            families: explanation.families.iter().map(|family| self.family(family)).collect(),
        }
    }
}

fn source(source: AddressSource) -> &'static str {
    match source {
        AddressSource::OwnBlock => "own-block",
        AddressSource::NewBlock => "new-block",
        AddressSource::Reclaimed => "reclaimed-block",
        AddressSource::Borrowed => "borrowed",
    }
}

fn decision_columns<'a>() -> Vec<Column<'a, &'a Decision>> {
    vec![
        left("STEP", |decision: &Decision| decision.step),
        left("SUBJECT", |decision: &Decision| &decision.subject),
        left("DECISION", |decision: &Decision| &decision.detail),
        left("KEY", |decision: &Decision| joined(&decision.keys, " ")),
    ]
}
