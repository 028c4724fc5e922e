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
    out.extend(
        by_path
            .into_iter()
            .map(|(path, defects)| new_finding(path, &defects)),
    );
}

/// Reports an object that cannot be decoded, with the reasons of all its defects.
fn new_finding(path: &str, defects: &[&Defect]) -> Finding {
    let mut evidence = UndecodableEvidence::default();
    for defect in defects {
        match &defect.kind {
            DefectKind::Key(reason) | DefectKind::Value(reason) => evidence.reasons.push(reason.clone()),
            DefectKind::Fields(fields) => evidence.fields.extend(fields.iter().cloned()),
        }
    }

    Finding::new(
        Code::UndecodableObject,
        Subject::Object(path.to_owned()),
        format!("{} {}", short(path), description(defects, &evidence)),
        Evidence::Undecodable(Box::new(evidence)),
    )
    .on_nodes(defects.iter().find_map(|defect| node_of_key(defect)))
}

/// Describes the first defect of an object, such as `does not parse: expected a number`.
fn description(defects: &[&Defect], evidence: &UndecodableEvidence) -> String {
    if let Some(reason) = evidence.reasons.first() {
        return format!("{}: {}", problem_of(defects), short(reason));
    }
    let Some(FieldDefect { field, reason }) = evidence.fields.first() else {
        return problem_of(defects).to_owned();
    };
    let first = format!("has a bad field {field}: {}", short(reason));
    match evidence.fields.len() {
        1 => first,
        number => format!("{first}, and {} more", number - 1),
    }
}

/// Describes the problem with a key or value, without the reason.
fn problem_of(defects: &[&Defect]) -> &'static str {
    let is_key_bad = defects
        .iter()
        .any(|defect| matches!(defect.kind, DefectKind::Key(_)));
    let names_object = defects.iter().any(|defect| defect.key.is_some());
    if is_key_bad && names_object {
        "is not the key that Calico looks up"
    } else if is_key_bad {
        "is not a Calico key"
    } else {
        "does not parse"
    }
}

/// Returns the node that the key of an affinity, node or endpoint names; `None` for other keys.
fn node_of_key(defect: &Defect) -> Option<String> {
    match defect.key.as_ref()? {
        Key::Affinity(key) if key.kind == AffinityType::Host => Some(key.node.clone()),
        Key::Node(name) => Some(name.clone()),
        Key::Endpoint { name, .. } => EndpointName::parse(name).map(|parts| parts.node),
        _ => None,
    }
}
