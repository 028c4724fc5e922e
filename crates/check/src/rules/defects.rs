//! Keys and values that cannot be decoded.

use std::collections::BTreeMap;

use calipam_model::affinity::AffinityType;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::snapshot::{Defect, DefectKind, FieldDefect};

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject, UndecodableEvidence};
use crate::names::short;

/// Reports all keys and values that cannot be decoded, each key once.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let mut by_path: BTreeMap<&str, Vec<&Defect>> = BTreeMap::new();
    for defect in &context.snapshot.defects {
        by_path.entry(&defect.path).or_default().push(defect);
    }
    out.extend(by_path.into_iter().map(|(path, defects)| finding(path, &defects)));
}

/// Reports an object that cannot be decoded, with the reasons of all its defects. The message names the first one.
fn finding(path: &str, defects: &[&Defect]) -> Finding {
    let mut evidence = UndecodableEvidence::default();
    let mut clause = "does not parse";
    for defect in defects {
        match &defect.kind {
            DefectKind::Key(reason) => {
                let has_known_key = defects.iter().any(|defect| defect.key.is_some());
                clause = if has_known_key {
                    "is not the key that Calico looks up"
                } else {
                    "is not a Calico key"
                };
                evidence.reasons.push(reason.clone());
            }
            DefectKind::Value(reason) => evidence.reasons.push(reason.clone()),
            DefectKind::Fields(fields) => evidence.fields.extend(fields.iter().cloned()),
        }
    }

    let says = if let Some(reason) = evidence.reasons.first() {
        format!("{clause}: {}", short(reason))
    } else if let Some(FieldDefect { field, reason }) = evidence.fields.first() {
        let further = match evidence.fields.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        format!("has a bad field {field}: {}{further}", short(reason))
    } else {
        clause.to_owned()
    };
    Finding::new(
        Code::UndecodableObject,
        Subject::Object(path.to_owned()),
        format!("{} {says}", short(path)),
        Evidence::Undecodable(Box::new(evidence)),
    )
    .on_nodes(defects.iter().find_map(|defect| node(defect)))
}

/// Returns the node that the key names.
fn node(defect: &Defect) -> Option<String> {
    match defect.key.as_ref()? {
        Key::Affinity(key) if key.kind == AffinityType::Host => Some(key.node.clone()),
        Key::Node(name) => Some(name.clone()),
        Key::Endpoint { name, .. } => EndpointName::parse(name).map(|parts| parts.node),
        _ => None,
    }
}
