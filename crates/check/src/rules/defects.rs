//! Keys and values that cannot be understood.

use std::collections::BTreeMap;

use calipam_model::affinity::AffinityType;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::snapshot::{Defect, DefectKind};

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject, UndecodableEvidence};
use crate::message::short;

/// Reports every key or value that cannot be decoded, each key once.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let mut by_path: BTreeMap<&str, Vec<&Defect>> = BTreeMap::new();
    for defect in &context.snapshot.defects {
        by_path.entry(&defect.path).or_default().push(defect);
    }
    out.extend(by_path.into_iter().map(|(path, defects)| finding(path, &defects)));
}

fn finding(path: &str, defects: &[&Defect]) -> Finding {
    let mut evidence = UndecodableEvidence::default();
    let mut reasons = Vec::new();
    let mut of_key = false;
    for defect in defects {
        match &defect.kind {
            DefectKind::Key(reason) => {
                of_key = true;
                reasons.push(reason.as_str());
            }
            DefectKind::Value(reason) => reasons.push(reason),
            DefectKind::Fields(fields) => evidence.fields.extend(fields.iter().cloned()),
        }
    }
    let name = short(path);
    let message = match (reasons.first(), evidence.fields.first()) {
        (Some(reason), _) if of_key && defects.iter().any(|defect| defect.key.is_some()) => {
            format!("{name} is not the key by which Calico asks: {}", short(reason))
        }
        (Some(reason), _) if of_key => format!("{name} is not a key of Calico: {}", short(reason)),
        (Some(reason), _) => format!("{name} does not parse: {}", short(reason)),
        (None, Some(field)) => {
            let more = match evidence.fields.len() {
                1 => String::new(),
                count => format!(", and {} more", count - 1),
            };
            format!("{name} has a bad field {}: {}{more}", field.field, short(&field.reason))
        }
        (None, None) => format!("{name} does not parse"),
    };
    evidence.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    let subject = Subject::Object(path.to_owned());
    Finding::new(Code::UndecodableObject, subject, message, Evidence::Undecodable(Box::new(evidence)))
        .on_nodes(defects.iter().find_map(|defect| node(defect)))
}

/// The node that the key names.
fn node(defect: &Defect) -> Option<String> {
    match defect.key.as_ref()? {
        Key::Affinity(key) if key.kind == AffinityType::Host => Some(key.node.clone()),
        Key::Node(name) => Some(name.clone()),
        Key::Endpoint { name, .. } => EndpointName::parse(name).map(|parts| parts.node),
        _ => None,
    }
}
