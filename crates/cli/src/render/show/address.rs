//! The output of `show` for an address or a handle.

use calipam_check::views::{
    AddressState, AddressView, BlockOfAddress, HandleOfAddress, HandleView, OwnerStatus,
};
use calipam_check::{Finding, OwnerEvidence};
use calipam_history::timeline::Event;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Source;
use clap::builder::styling::Style;
use serde::Serialize;

use super::View;
use crate::render::document::Document;
use crate::render::findings::WithFindings;
use crate::render::history;
use crate::render::output::Text;
use crate::render::text::{count, joined, to_seconds};

/// An address with its last known events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressDetails<'a> {
    #[serde(flatten)]
    view: WithFindings<'a, AddressView>,
    #[serde(skip_serializing_if = "<[Event]>::is_empty")]
    last_events: &'a [Event],
    /// The findings between the clusters of a fleet, each with the cluster whose report has it.
    #[serde(skip)]
    between: &'a [(&'a str, &'a Finding)],
}

impl<'a> AddressDetails<'a> {
    pub(crate) fn new(view: &'a AddressView, last_events: &'a [Event]) -> Self {
        Self {
            view: WithFindings::new(view, &view.findings, &view.partly_read),
            last_events,
            between: &[],
        }
    }

    /// Adds the findings between the clusters of a fleet.
    pub(crate) fn with_between(self, between: &'a [(&'a str, &'a Finding)]) -> Self {
        Self {
            view: self.view.and_between(between),
            between,
            ..self
        }
    }
}

impl View for AddressDetails<'_> {
    const KIND: &'static str = "Address";
    const NAME: &'static str = "address";

    fn names(&self) -> impl Iterator<Item = String> {
        [self.view.content.address.to_string()].into_iter()
    }

    /// Writes everything about an address, with its findings.
    fn text(&self, text: &mut Text) {
        let view = self.view.content;
        add_state(text, view);
        add_partly_read(text, &view.partly_read);
        add_records(text, view);
        add_users(text, view);
        add_events(text, self.last_events);
        add_findings(text, &view.findings, self.between, &view.partly_read);
    }
}

/// The first answer about an address, from the objects around it. Findings are left out, since they need everything.
#[derive(Serialize)]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    pub view: AddressView,
    #[serde(skip)]
    pub events: &'a [Event],
}

impl View for Answer<'_> {
    const KIND: &'static str = "Address";
    const NAME: &'static str = "address";

    fn names(&self) -> impl Iterator<Item = String> {
        [self.view.address.to_string()].into_iter()
    }

    /// Writes what the objects around an address tell, with its history.
    fn text(&self, text: &mut Text) {
        add_state(text, &self.view);
        add_records(text, &self.view);
        // Whether nobody uses the address is known only at the end.
        if !(self.view.owners.is_empty() && self.view.named_by.is_empty()) {
            add_users(text, &self.view);
        }
        add_events(text, self.events);
    }
}

/// The part of a complete view that is not in an earlier answer.
#[derive(Serialize)]
pub(crate) struct Rest<'a> {
    #[serde(skip)]
    pub answer: &'a Answer<'a>,
    #[serde(flatten)]
    pub view: &'a AddressView,
}

impl Document for Rest<'_> {
    const KIND: &'static str = "Address";

    /// Writes the facts about an address that the answer, written before, does not contain.
    fn text(&self, text: &mut Text) {
        if self.view.state != self.answer.view.state {
            add_state(text, self.view);
        }
        let mut answer = Text::new(text.page);
        View::text(self.answer, &mut answer);
        // Of the facts that are known now, only those are new that the answer does not have.
        let mut all_facts = Text::new(text.page);
        add_records(&mut all_facts, self.view);
        add_users(&mut all_facts, self.view);
        text.facts_beyond(&all_facts, &answer);
        let between_clusters = &[];
        add_findings(
            text,
            &self.view.findings,
            between_clusters,
            &self.view.partly_read,
        );
    }
}

fn add_state(text: &mut Text, view: &AddressView) {
    text.styled(
        Style::new().bold(),
        &format!("{} {}", view.address, words_of_state(view.state)),
    );
}

/// Writes the pools and blocks around an address, and its records in these blocks.
fn add_records(text: &mut Text, view: &AddressView) {
    if view.pools.is_empty() {
        text.fact("Pool", "none");
    }
    for pool in &view.pools {
        let mut description = pool.cidr.to_string();
        if let Some(closed) = &pool.closed {
            description.push_str(&format!(", {closed}"));
        }
        text.fact("Pool", format!("{} ({description})", pool.name));
    }
    if view.reserved {
        text.fact(
            "Reserved",
            "an IP reservation keeps it from being assigned automatically",
        );
    }

    if view.blocks.is_empty() {
        text.fact("Block", "none");
    }
    for block in &view.blocks {
        add_block(text, block);
    }
}

/// Writes the users of an address, and the objects that only name it.
fn add_users(text: &mut Text, view: &AddressView) {
    for owner in &view.owners {
        text.fact("Used by", words_of_owner(owner));
    }
    for mention in &view.named_by {
        text.fact("Named by", mention);
    }
    if view.owners.is_empty() && view.named_by.is_empty() {
        let nothing = if view.partly_read.is_empty() {
            "nothing"
        } else {
            "nothing that was read"
        };
        text.fact("Used by", nothing);
    }
}

fn add_events(text: &mut Text, events: &[Event]) {
    for event in events {
        text.fact("Event", history::line(event, text.page.wide));
    }
}

/// Writes a block, and the record of the address in it.
fn add_block(text: &mut Text, block: &BlockOfAddress) {
    let owner = match &block.owner {
        None => "no owner".to_owned(),
        Some(BlockOwner::Host(node)) => node.clone(),
        Some(owner) => owner.to_string(),
    };
    text.fact(
        "Block",
        format!("{} of {owner}, ordinal {}", block.cidr, block.ordinal),
    );
    for problem in &block.problems {
        text.fact("Problem", problem);
    }
    if let Some(owner) = &block.recorded_owner {
        let status = block.owner_status.map(words_of_status).unwrap_or_default();
        text.fact("Recorded", format!("for {owner}{status}"));
    }
    if let Some(handle) = &block.handle {
        add_handle(text, handle);
    }
    add_record(text, block);
}

/// Writes the handle in the record of an address, and whether it has an object.
fn add_handle(text: &mut Text, handle: &HandleOfAddress) {
    let id = &handle.id;
    if handle.exists {
        let addresses = count(handle.count, "address", "addresses");
        let object = format!("{id}, whose object counts {addresses} in this block");
        text.fact("Handle", object);
    } else {
        text.fact("Handle", format!("{id}, which has no object"));
    }
}

/// Writes the record of an address in its block; nothing if the address is free or the block is corrupt.
fn add_record(text: &mut Text, block: &BlockOfAddress) {
    let Some(record) = &block.record else { return };
    let recorded = record.record.as_ref();
    for (name, value) in recorded.owner().to_map() {
        text.fact("Attribute", attribute(&name, &value));
    }
    if block.node_exists == Some(false) {
        text.fact("Node", "the recorded node does not exist");
    }
    for (name, value) in recorded.alternate().unwrap_or_default().to_map() {
        text.fact("Alternate", attribute(&name, &value));
    }
    if let Some(time) = recorded.released_at() {
        text.fact("Released", time);
    }
    text.fact("Sequence", record.sequence_number);
}

/// Formats an attribute of a record. Times are cut after the seconds.
fn attribute(name: &str, value: &str) -> String {
    let value = if name == "timestamp" {
        to_seconds(value)
    } else {
        value.to_owned()
    };
    format!("{name}={value}")
}

/// Returns a handle with its findings.
pub(crate) fn of_handle(view: &HandleView) -> impl View {
    WithFindings::new(view, &view.findings, &view.partly_read)
}

impl View for WithFindings<'_, HandleView> {
    const KIND: &'static str = "Handle";
    const NAME: &'static str = "handle";

    fn names(&self) -> impl Iterator<Item = String> {
        [self.content.id.clone()].into_iter()
    }

    /// Writes a handle with its blocks and addresses.
    fn text(&self, text: &mut Text) {
        let handle = self.content;
        text.styled(Style::new().bold(), &handle.id);
        add_partly_read(text, &handle.partly_read);
        text.fact("Object", words_of_object(handle));
        for block in &handle.blocks {
            let missing = if block.exists {
                ""
            } else {
                ", which does not exist"
            };
            let number = usize::try_from(block.in_handle).unwrap_or_default();
            let addresses = count(number, "address", "addresses");
            text.fact(
                "Block",
                format!("{}{missing}: the handle counts {addresses}", block.block),
            );
            for address in &block.addresses {
                text.fact("Address", address);
            }
        }
        if handle.blocks.iter().all(|block| block.addresses.is_empty()) {
            text.fact("Address", "none is recorded under it");
        }
        let between_clusters = &[];
        add_findings(text, &handle.findings, between_clusters, &handle.partly_read);
    }
}

/// Describes the object of a handle in the datastore.
fn words_of_object(handle: &HandleView) -> String {
    if !handle.exists {
        return "none".to_owned();
    }
    match &handle.revision {
        Some(revision) => format!("revision {revision}"),
        // Without a revision, the object cannot be decoded.
        None => "exists".to_owned(),
    }
}

/// Writes the findings about an object, or that there are none. Those in `between` come with the name of their cluster.
fn add_findings(text: &mut Text, findings: &[Finding], between: &[(&str, &Finding)], partly_read: &[Source]) {
    for finding in findings {
        let Finding { severity, code, .. } = finding;
        let message = finding.message();
        text.fact("Finding", format!("{severity} {code}: {message}"));
    }
    for (cluster, finding) in between {
        let Finding { severity, code, .. } = finding;
        let message = finding.message();
        text.fact("Finding", format!("{severity} {code} of {cluster}: {message}"));
    }

    let has_findings = !findings.is_empty() || !between.is_empty();
    if !partly_read.is_empty() {
        // After a partial read, most rules could not be checked.
        let unchecked = if has_findings {
            "other rules were not checked"
        } else {
            "not checked"
        };
        text.fact("Finding", unchecked);
    } else if !has_findings {
        text.fact("Finding", "none");
    }
}

/// Describes the state of an address.
fn words_of_state(state: AddressState) -> &'static str {
    match state {
        AddressState::Allocated => "is allocated",
        AddressState::Cooling => "is cooling down",
        AddressState::WindowsReserved => "is reserved by a Windows node",
        AddressState::Free => "is free",
        AddressState::NoBlock => "is in no block",
        AddressState::Unknown => "is in a block that cannot be read",
    }
}

/// Describes the state of a recorded owner.
fn words_of_status(status: OwnerStatus) -> &'static str {
    match status {
        OwnerStatus::UsesIt => ", which uses it",
        OwnerStatus::NamesOthers => ", which exists but does not name this address",
        OwnerStatus::Gone => ", which was not found",
        OwnerStatus::Unknown => ", about which nothing is known",
    }
}

/// Describes the user of an address, with the fields that name it.
fn words_of_owner(owner: &OwnerEvidence) -> String {
    // The name of a pod's endpoint contains that of the pod, and is longer.
    let name = if owner.pod.is_empty() {
        &owner.name
    } else {
        &owner.pod
    };
    let mut words = format!("{} {name}", owner.kind);
    if !owner.node.is_empty() {
        words.push_str(&format!(" on {}", owner.node));
    }

    let mut fields: Vec<String> = owner.fields.iter().map(ToString::to_string).collect();
    if owner.further_fields > 0 {
        fields.push(format!("{} more", owner.further_fields));
    }
    if !fields.is_empty() {
        words.push_str(&format!(" ({})", fields.join(", ")));
    }
    words
}

/// Adds a line about the sources that were read only in part. It comes before everything that depends on them.
fn add_partly_read(text: &mut Text, sources: &[Source]) {
    if !sources.is_empty() {
        text.fact(
            "Partial",
            format!("not all {} were read: omit --quick", joined(sources, ", ")),
        );
    }
}
