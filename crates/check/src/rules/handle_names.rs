//! Handles about which nothing can be said, because what names them is broken.

use std::collections::HashSet;

use calipam_model::IpNet;
use calipam_model::block::BlockContent;
use calipam_model::key::Key;
use calipam_model::snapshot::{DefectKind, Snapshot};
use calipam_model::text::{Text, TextRef};
use serde_json::Value;

use crate::Context;

/// IDs, packed and cut at the carriage return, that the blocks name whose content is not judged.
pub(super) fn named_by_unjudged(context: &Context<'_>, unjudged: &HashSet<IpNet>) -> HashSet<Box<[u8]>> {
    let mut named = HashSet::new();
    if unjudged.is_empty() {
        return named;
    }
    let stored = context.snapshot.blocks.iter().map(|b| &b.value);
    for block in stored.filter(|b| !b.content.is_deleted() && unjudged.contains(&b.key)) {
        match &block.content {
            BlockContent::Sound(block) => {
                named.extend(block.attributes().filter_map(|a| a.handle()).map(clean));
            }
            BlockContent::Corrupt(block) => named_in(&block.raw, &mut named),
        }
    }
    named
}

/// IDs of handles whose value does not decode.
pub(super) fn undecodable(snapshot: &Snapshot) -> HashSet<Box<[u8]>> {
    let broken = snapshot.defects.iter().filter_map(|defect| match (&defect.key, &defect.kind) {
        (Some(Key::Handle(id)), DefectKind::Value(_)) => Some(Text::new(id)),
        _ => None,
    });
    broken.map(|id| clean(id.as_ref())).collect()
}

fn clean(id: TextRef<'_>) -> Box<[u8]> {
    id.cut_at_carriage_return().packed().into()
}

/// Takes the handles from the JSON of a corrupt block. Like Calico's reader it passes over the case of
/// field names.
fn named_in(raw: &str, named: &mut HashSet<Box<[u8]>>) {
    let Ok(block) = serde_json::from_str::<Value>(raw) else { return };
    let attributes = fields(&block, "attributes").filter_map(Value::as_array).flatten();
    let handles = attributes.flat_map(|attribute| fields(attribute, "handle_id")).filter_map(Value::as_str);
    named.extend(handles.map(|id| clean(Text::new(id).as_ref())));
}

fn fields<'v>(object: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
