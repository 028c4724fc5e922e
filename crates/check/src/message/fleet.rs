//! What findings between the clusters of a fleet say.

use std::collections::BTreeMap;

use super::names::{list, short};
use crate::code::Code;
use crate::finding::{Elsewhere, ElsewhereEvidence, ElsewhereKind};

/// `default/web-0, and default/api-1 in b`, or what else the code is about.
pub(super) fn says_of_others(code: Code, subject: &str, evidence: &ElsewhereEvidence) -> String {
    let ElsewhereEvidence { here, others, further } = evidence;
    let here = short(here);
    let all = others.len() + further;
    let named = |name: fn(&Elsewhere) -> String| {
        let mut names: Vec<String> = others.iter().map(name).collect();
        // Only their number counts here: the list names the first few.
        names.resize(all.max(names.len()), String::new());
        list(names)
    };
    match code {
        Code::AddressInSeveralClusters => {
            format!(
                "used by {here}, and by {}",
                named(|other| format!("{} in {}", other.name, other.cluster))
            )
        }
        Code::PoolCoversOtherCluster => {
            let place = |other: &Elsewhere| {
                let name = match other.kind {
                    ElsewhereKind::Services => {
                        return format!("addresses of the services {} in {}", other.cidr, other.cluster);
                    }
                    ElsewhereKind::Tunnel => format!("a tunnel of {}", other.name),
                    kind => format!("{kind} {}", other.name),
                };
                format!("{} of {name} in {}", other.cidr.addr(), other.cluster)
            };
            format!("{here} ({subject}) covers {}", named(place))
        }
        Code::DisabledPoolMismatch => {
            format!("{here} ({subject}) is disabled, and covers only a part of {}", named(pool))
        }
        _ => format!("{here} ({subject}) overlaps {}{}", named(pool), in_use(others)),
    }
}

fn pool(other: &Elsewhere) -> String {
    format!("{} {} in {}", other.name, other.cidr, other.cluster)
}

/// How many addresses of the range shared with the first are in use, here and there.
fn in_use(others: &[Elsewhere]) -> String {
    let Some(shared) = others.first().and_then(|other| other.in_use) else { return String::new() };
    let first = if others.len() > 1 { " with the first" } else { "" };
    format!("; of the addresses shared{first}, {} are in use here and {} there", shared.here, shared.there)
}

/// `strictAffinity is true (in the group: false 3, true 1)`.
pub(super) fn says_of_settings(settings: &BTreeMap<String, BTreeMap<String, String>>) -> String {
    let said = settings.iter().map(|(name, values)| {
        let here = values.get(HERE).map(String::as_str).unwrap_or_default();
        let group = values.iter().filter(|(place, _)| *place != HERE).map(|(_, said)| said.as_str());
        format!("{name} is {here}, and in the group {}", group.collect::<Vec<_>>().join("; "))
    });
    said.collect::<Vec<_>>().join("; ")
}

/// Where the value of the cluster of the finding is in its evidence.
pub(crate) const HERE: &str = "here";
