//! One handle, and what blocks record under it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::text::Text;
use serde::Serialize;

use super::partly_read;
use crate::finding::{Finding, Subject};
use crate::{Context, Options};

/// The view of a handle. The CLI writes the findings, with their remedies in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleView {
    pub id: String,
    /// True if there is a handle object, even one that cannot be decoded.
    pub exists: bool,
    /// The object's revision; `None` if there is none, or it cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The handle's claims and the blocks' records, by block.
    pub blocks: Vec<HandleBlock>,
    /// The handle's findings.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// Sources of which only the objects that the handle names were read. Blocks that were not read could also have
    /// records with the handle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partly_read: Vec<Source>,
}

/// A handle and one of its blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleBlock {
    pub block: IpNet,
    /// True if the block exists. An unreadable block does not count, since its records are unknown.
    pub exists: bool,
    /// The number of addresses that the handle claims in the block.
    pub in_handle: i64,
    /// Addresses that the block records under the handle.
    pub addresses: Vec<IpAddr>,
}

/// Describes a handle by its ID; `None` if neither an object nor a record has that ID.
pub fn handle(snapshot: &Snapshot, id: &str) -> Option<HandleView> {
    let context = Context::new(snapshot, &Options::default());
    let packed_id = Text::new(id);
    let clean_id = packed_id.as_ref().cut_at_carriage_return();

    // A handle with a carriage return in its ID counts only if none has the clean ID.
    let stored = snapshot.handles.iter();
    let mut existing = stored.filter(|handle| !handle.value.is_deleted());
    let object = existing
        .clone()
        .find(|handle| handle.value.id() == clean_id)
        .or_else(|| existing.find(|handle| handle.value.id().cut_at_carriage_return() == clean_id));

    let mut blocks: BTreeMap<IpNet, HandleBlock> = BTreeMap::new();
    let new_block = |cidr| {
        let block = context.index.block(cidr);
        HandleBlock {
            block: cidr,
            exists: block.is_some_and(|block| block.usable.is_some()),
            in_handle: 0,
            addresses: Vec::new(),
        }
    };
    if let Some(object) = object {
        for (cidr, count) in object.value.blocks() {
            let counted = blocks.entry(cidr).or_insert_with(|| new_block(cidr));
            counted.in_handle = count;
        }
    }
    for block in context.index.blocks.iter().filter_map(|block| block.usable) {
        let cidr = block.cidr();
        for (ordinal, handle) in block.handles() {
            if handle.cut_at_carriage_return() != clean_id {
                continue;
            }
            let recording = blocks.entry(cidr).or_insert_with(|| new_block(cidr));
            let allocation = block.allocation(ordinal);
            recording
                .addresses
                .extend(allocation.map(|allocation| allocation.address));
        }
    }

    let id = clean_id.to_string();
    let undecodable = path_of_undecodable(snapshot, &id);
    if object.is_none() && undecodable.is_none() && blocks.is_empty() {
        return None;
    }
    Some(HandleView {
        exists: object.is_some() || undecodable.is_some(),
        revision: object.map(|handle| handle.revision.to_string()),
        blocks: blocks.into_values().collect(),
        findings: findings(&context, &id, undecodable),
        partly_read: partly_read(snapshot),
        id,
    })
}

/// Returns the IDs that begin with a string, from the handles and records that were read.
pub fn handle_ids(snapshot: &Snapshot, prefix: &str) -> BTreeSet<String> {
    let clean_prefix = clean_id(prefix);
    let mut ids: BTreeSet<String> = BTreeSet::new();
    let mut add = |id: &str| {
        let clean_id = clean_id(id);
        if clean_id.starts_with(clean_prefix) && !ids.contains(clean_id) {
            ids.insert(clean_id.to_owned());
        }
    };
    for handle in snapshot.handles.iter().map(|stored| &stored.value) {
        if !handle.is_deleted() {
            add(&handle.id().to_string());
        }
    }
    for defect in &snapshot.defects {
        if let Some(Key::Handle(id)) = &defect.key {
            add(id);
        }
    }
    for stored in &snapshot.blocks {
        let Some(block) = stored.value.content.sound() else {
            continue;
        };
        for (_, id) in block.handles() {
            add(&id.to_string());
        }
    }
    ids.remove("");
    ids
}

/// Returns the path of the handle's object, if it cannot be decoded.
pub(super) fn path_of_undecodable<'s>(snapshot: &'s Snapshot, id: &str) -> Option<&'s str> {
    for defect in &snapshot.defects {
        if let Some(Key::Handle(other)) = &defect.key
            && clean_id(other) == id
        {
            return Some(&defect.path);
        }
    }
    None
}

/// Returns the findings about a handle, or about the object that could not be decoded as this handle.
fn findings(context: &Context<'_>, id: &str, undecodable: Option<&str>) -> Vec<Finding> {
    let mut findings = context.check().findings;
    findings.retain(|finding| match &finding.subject {
        Subject::Handle(subject) => clean_id(subject) == id,
        Subject::Object(path) => undecodable == Some(path),
        _ => false,
    });
    findings
}
