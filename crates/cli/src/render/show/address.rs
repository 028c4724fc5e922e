//! One address, one handle.

use std::io::{self, Write};

use calipam_check::views::{AddressState, AddressView, BlockOfAddress, HandleView, OwnerStatus};
use calipam_check::{Finding, OwnerEvidence};
use calipam_history::timeline::Event;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Source;
use clap::builder::styling::Style;
use serde::Serialize;

use super::View;
use crate::render::document::Detail;
use crate::render::findings::WithFindings;
use crate::render::history;
use crate::render::table::Page;
use crate::render::text::{count, escape};
use crate::render::wrap::on_page;

/// An address, and what happened to it lately.
#[derive(Serialize)]
pub(crate) struct AddressDetails<'a> {
    pub view: &'a AddressView,
    /// The last ones, as far as they are at hand.
    pub events: &'a [Event],
}

/// The fields of the view, and the events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WithEvents<'a> {
    #[serde(flatten)]
    view: WithFindings<'a, AddressView>,
    #[serde(skip_serializing_if = "<[Event]>::is_empty")]
    last_events: &'a [Event],
}

impl View for AddressDetails<'_> {
    const KIND: &'static str = "Address";
    const NAMED: [&'static str; 3] = ["address", "", "address"];

    fn schema(&self) -> impl Serialize {
        WithEvents { view: WithFindings::of_address(self.view), last_events: self.events }
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = address_lines(self.view);
        for event in self.events {
            lines.add("Event", history::line(event, detail));
        }
        lines.write(page, out)
    }
}

fn address_lines(view: &AddressView) -> Lines {
    let mut lines = Lines::new(format!("{} {}", view.address, words_of_state(view.state)));
    lines.add_partly_read(&view.partly_read);
    if view.pools.is_empty() {
        lines.add("Pool", "none");
    }
    for pool in &view.pools {
        let disabled = if pool.enabled { "" } else { ", disabled" };
        lines.add("Pool", format!("{} ({}{disabled})", pool.name, pool.cidr));
    }
    if view.reserved {
        lines.add("Reserved", "an IP reservation keeps it from being assigned automatically");
    }
    if view.blocks.is_empty() {
        lines.add("Block", "none");
    }
    view.blocks.iter().for_each(|block| block_lines(block, &mut lines));
    for owner in &view.owners {
        lines.add("Used by", words_of_owner(owner));
    }
    for mention in &view.named_by {
        lines.add("Named by", mention.to_string());
    }
    if view.owners.is_empty() && view.named_by.is_empty() {
        lines.add("Used by", if view.partly_read.is_empty() { "nothing" } else { "nothing that was read" });
    }
    finding_lines(&view.findings, &view.partly_read, &mut lines);
    lines
}

fn block_lines(block: &BlockOfAddress, lines: &mut Lines) {
    let owner = match &block.owner {
        None => "no owner".to_owned(),
        Some(BlockOwner::Host(node)) => node.clone(),
        Some(owner) => owner.to_string(),
    };
    lines.add("Block", format!("{} of {owner}, ordinal {}", block.cidr, block.ordinal));
    for problem in &block.problems {
        lines.add("Problem", problem);
    }
    if let Some(owner) = &block.recorded_owner {
        let status = block.owner_status.map(words_of_status).unwrap_or_default();
        lines.add("Recorded", format!("for {owner}{status}"));
    }
    if let Some(handle) = &block.handle {
        let object = if handle.exists {
            format!(", whose object counts {} in this block", handle.count)
        } else {
            ", which has no object".to_owned()
        };
        lines.add("Handle", format!("{}{object}", handle.id));
    }
    let Some(record) = &block.record else { return };
    let recorded = record.record.as_ref();
    for (name, value) in recorded.owner().to_map() {
        lines.add("Attribute", format!("{name}={value}"));
    }
    if block.node_exists == Some(false) {
        lines.add("Node", "the recorded node does not exist");
    }
    for (name, value) in recorded.alternate().unwrap_or_default().to_map() {
        lines.add("Alternate", format!("{name}={value}"));
    }
    if let Some(time) = recorded.released_at() {
        lines.add("Released", time.to_string());
    }
    lines.add("Sequence", record.sequence_number.to_string());
}

impl View for HandleView {
    const KIND: &'static str = "Handle";
    const NAMED: [&'static str; 3] = ["handle", "", "id"];

    fn schema(&self) -> impl Serialize {
        WithFindings::of_handle(self)
    }

    fn text(&self, _: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = Lines::new(self.id.clone());
        lines.add_partly_read(&self.partly_read);
        match (&self.revision, self.exists) {
            (Some(revision), true) => lines.add("Object", format!("revision {revision}")),
            (None, true) => lines.add("Object", "exists"),
            (_, false) => lines.add("Object", "none"),
        }
        for block in &self.blocks {
            let gone = if block.exists { "" } else { ", which does not exist" };
            let claims = usize::try_from(block.in_handle).unwrap_or_default();
            let claims = count(claims, "address", "addresses");
            lines.add("Block", format!("{}{gone}: the handle claims {claims}", block.block));
            for address in &block.addresses {
                lines.add("Address", address.to_string());
            }
        }
        if self.blocks.iter().all(|block| block.addresses.is_empty()) {
            lines.add("Address", "none is recorded under it");
        }
        finding_lines(&self.findings, &self.partly_read, &mut lines);
        lines.write(page, out)
    }
}

fn finding_lines(findings: &[Finding], partly_read: &[Source], lines: &mut Lines) {
    for finding in findings {
        lines.add("Finding", format!("{} {}: {}", finding.severity, finding.code, finding.message()));
    }
    if !partly_read.is_empty() {
        lines.add("Finding", if findings.is_empty() { "not checked" } else { "others are not checked" });
    } else if findings.is_empty() {
        lines.add("Finding", "none");
    }
}

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

fn words_of_status(status: OwnerStatus) -> &'static str {
    match status {
        OwnerStatus::UsesIt => ", which uses it",
        OwnerStatus::NamesOthers => ", which exists but does not name this address",
        OwnerStatus::Gone => ", which does not exist",
        OwnerStatus::Unknown => ", of which nothing is known",
    }
}

fn words_of_owner(owner: &OwnerEvidence) -> String {
    let name = if owner.pod.is_empty() { &owner.name } else { &owner.pod };
    let node = if owner.node.is_empty() { String::new() } else { format!(" on {}", owner.node) };
    let mut fields: Vec<String> = owner.fields.iter().map(ToString::to_string).collect();
    if owner.further_fields > 0 {
        fields.push(format!("{} more", owner.further_fields));
    }
    let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
    format!("{} {name}{node}{fields}", owner.kind)
}

/// A heading, and lines of a name and a value.
struct Lines {
    heading: String,
    lines: Vec<(&'static str, String)>,
}

/// Room for the longest name and two spaces.
const NAMES: usize = 11;

impl Lines {
    fn new(heading: String) -> Self {
        Self { heading, lines: Vec::new() }
    }

    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.lines.push((name, value.into()));
    }

    /// What was read in part comes first: it says how far the rest can be relied on.
    fn add_partly_read(&mut self, sources: &[Source]) {
        if !sources.is_empty() {
            let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
            self.add("Partial", format!("not all of {} were read: use --all-owners", sources.join(", ")));
        }
    }

    /// IDs of handles stay whole: they are what is copied from here.
    fn write(&self, page: Page, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", page.styled(Style::new().bold(), &escape(&self.heading)))?;
        for (name, value) in &self.lines {
            writeln!(out, "{}", on_page(&format!("{name:NAMES$}{}", escape(value)), NAMES, page))?;
        }
        Ok(())
    }
}
