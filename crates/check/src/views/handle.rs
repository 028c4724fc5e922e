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
    let wanted = Text::new(id);
    let wanted = wanted.as_ref().cut_at_carriage_return();
    let stored = snapshot.handles.iter().filter(|h| !h.value.is_deleted());
    let object = stored.clone().find(|h| h.value.id() == wanted);
    let object = object.or_else(|| {
        stored
            .clone()
            .find(|h| h.value.id().cut_at_carriage_return() == wanted)
    });
    let mut blocks: BTreeMap<IpNet, HandleBlock> = BTreeMap::new();
    let new = |block| {
        let exists = context
            .index
            .block(block)
            .is_some_and(|found| found.usable.is_some());
        HandleBlock {
            block,
            exists,
            in_handle: 0,
            addresses: Vec::new(),
        }
    };
    for (cidr, count) in object.into_iter().flat_map(|h| h.value.blocks()) {
        blocks.entry(cidr).or_insert_with(|| new(cidr)).in_handle = count;
    }
    for block in context.index.blocks.iter().filter_map(|b| b.usable) {
        let named = block
            .handles()
            .filter(|(_, handle)| handle.cut_at_carriage_return() == wanted);
        for allocation in named.filter_map(|(ordinal, _)| block.allocation(ordinal)) {
            let of_block = blocks.entry(block.cidr()).or_insert_with(|| new(block.cidr()));
            of_block.addresses.push(allocation.address);
        }
    }
    let broken = broken(snapshot, &wanted.to_string());
    if object.is_none() && broken.is_none() && blocks.is_empty() {
        return None;
    }
    Some(HandleView {
        id: wanted.to_string(),
        exists: object.is_some() || broken.is_some(),
        revision: object.map(|h| h.revision.to_string()),
        blocks: blocks.into_values().collect(),
        findings: findings(&context, &wanted.to_string(), broken),
        partly_read: partly_read(snapshot),
    })
}

/// Returns the IDs that begin with a string, from the handles and records that were read.
pub fn handle_ids(snapshot: &Snapshot, begin: &str) -> BTreeSet<String> {
    let begin = clean_id(begin);
    let mut ids: BTreeSet<String> = BTreeSet::new();
    let mut add = |id: &str| {
        let id = clean_id(id);
        if id.starts_with(begin) && !ids.contains(id) {
            ids.insert(id.to_owned());
        }
    };
    let stored = snapshot
        .handles
        .iter()
        .filter(|handle| !handle.value.is_deleted());
    stored.for_each(|handle| add(&handle.value.id().to_string()));
    for defect in &snapshot.defects {
        if let Some(Key::Handle(id)) = &defect.key {
            add(id);
        }
    }
    for block in snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
    {
        block.handles().for_each(|(_, id)| add(&id.to_string()));
    }
    ids.remove("");
    ids
}

/// Returns the path of the handle's object, if it cannot be decoded.
pub(super) fn broken<'s>(snapshot: &'s Snapshot, id: &str) -> Option<&'s str> {
    let is_it = |key: &Key| matches!(key, Key::Handle(key) if clean_id(key) == id);
    let defect = snapshot
        .defects
        .iter()
        .find(|d| d.key.as_ref().is_some_and(is_it));
    defect.map(|defect| defect.path.as_str())
}

fn findings(context: &Context<'_>, id: &str, broken: Option<&str>) -> Vec<Finding> {
    let about = |f: &Finding| match &f.subject {
        Subject::Handle(subject) => clean_id(subject) == id,
        Subject::Object(path) => broken == Some(path),
        _ => false,
    };
    context.check().findings.into_iter().filter(about).collect()
}
