//! The form in which messages show owner names, and strings from the datastore.

use std::collections::HashSet;
use std::sync::Arc;

use calipam_model::attributes::AttributeRef;
use calipam_model::pod::Pod;
use calipam_model::text::TextRef;
use calipam_model::words::{join, thousands};

use crate::claim::Claim;
use crate::finding::{OwnerEvidence, OwnerKind};
use crate::index::Mention;

/// The maximum number of characters of a string from the datastore in a message. The evidence usually has the whole
/// string.
const LONGEST: usize = 100;
/// The maximum number of names that [`list`] shows. Further names are only counted.
const NAMED: usize = 3;

/// Shortens a string from the datastore to one line for a message.
pub fn short(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(LONGEST));
    for (position, c) in text.chars().enumerate() {
        if position == LONGEST {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns `namespace/name`.
pub(crate) fn name_of_pod(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

/// Joins names into a phrase: `a, b and c`, or `a, b, c and 4 more`. Without names, this is `nothing`.
pub fn list(names: impl IntoIterator<Item = impl ToString>) -> String {
    let mut names = names.into_iter();
    let mut shown: Vec<String> = names
        .by_ref()
        .take(NAMED)
        .map(|name| short(&name.to_string()))
        .collect();
    let further = names.count();
    if further > 0 {
        shown.push(format!("{} more", thousands(further)));
    }
    if shown.is_empty() {
        return "nothing".to_owned();
    }
    join(&shown)
}

/// Returns the end of a message that describes only the first of `count` items, such as `, and 2 more problems`.
/// Returns an empty string if there are no further items.
pub fn and_more(count: usize, one: &str, many: &str) -> String {
    match count {
        0 | 1 => String::new(),
        2 => format!(", and one more {one}"),
        _ => format!(", and {} more {many}", thousands(count - 1)),
    }
}

/// Returns an owner's name for messages, such as `default/web-0 (node-1)` or `a tunnel of node-1`.
fn name_of_owner(owner: &OwnerEvidence) -> String {
    let on_node = |name: &str| {
        if owner.node.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({})", owner.node)
        }
    };
    match owner.kind {
        OwnerKind::Tunnel => format!("a tunnel of {}", owner.node),
        OwnerKind::Node => format!("node {} itself", owner.node),
        OwnerKind::Service => format!("service {}", owner.name),
        OwnerKind::Endpoint | OwnerKind::Pod if owner.pod.is_empty() => on_node(&owner.name),
        OwnerKind::Endpoint | OwnerKind::Pod => on_node(&owner.pod),
    }
}

/// Owner names in messages: `default/web-0 (node-1) and a tunnel of node-2`. A pod and its endpoint are one owner.
pub fn names_of_owners(owners: &[Arc<OwnerEvidence>]) -> String {
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for owner in owners {
        let name = name_of_owner(owner);
        if seen.insert(name.clone()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return "no one".to_owned();
    }
    join(&names)
}

/// Objects that name an address, for messages: `pod default/web-0 on node-1 (status.podIPs)`.
pub fn names_of_mentions(mentions: &[Mention]) -> String {
    match mentions {
        // An object that cannot be decoded names the address, or the address is a node's own.
        [] => "an object that is not known to own it".to_owned(),
        _ => list(mentions),
    }
}

/// Returns the name of the owner that a record claims, as messages show it: by namespace and name, or else by handle.
pub(crate) fn name_of_claim(attribute: &AttributeRef<'_>) -> String {
    match Claim::of(attribute) {
        Claim::Cooling => "no one (cooling)".to_owned(),
        Claim::WindowsReserved => "Windows".to_owned(),
        Claim::Anonymous => "an owner that is not recorded".to_owned(),
        Claim::Tunnel { node, .. } => format!("a tunnel of {node}"),
        Claim::Pod { namespace, pod, .. } => format!("{namespace}/{pod}"),
        Claim::LegacyPod { namespace, pod } => format!("{namespace}/{pod}"),
        Claim::Container(id) => format!("container {id}"),
        Claim::Service => match (attribute.get("namespace"), attribute.get("service")) {
            (Some(namespace), Some(service)) => format!("service {namespace}/{service}"),
            _ => format!("the service with the handle {}", handle_of(attribute)),
        },
        Claim::Machine => match (attribute.get("namespace"), attribute.get("vmi-name")) {
            (Some(namespace), Some(machine)) => format!("virtual machine {namespace}/{machine}"),
            _ => format!("the virtual machine with the handle {}", handle_of(attribute)),
        },
        Claim::Foreign { handle } => format!("handle {handle}"),
        Claim::Unknown => format!("handle {}", handle_of(attribute)),
    }
}

/// The handle that a record names; empty if it names none.
fn handle_of<'s>(attribute: &AttributeRef<'s>) -> TextRef<'s> {
    attribute.clean_handle().unwrap_or(TextRef::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_stay_on_one_line() {
        assert_eq!(short("a\r\nb"), "a\\r\\nb");
        assert_eq!(short(&"x".repeat(1_000_000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn an_endpoint_without_pod_has_its_own_name() {
        let endpoint = |pod: &str| {
            let owner = OwnerEvidence::new(OwnerKind::Endpoint, "ns/of-a-host".to_owned());
            names_of_owners(&[Arc::new(OwnerEvidence {
                pod: pod.to_owned(),
                ..owner
            })])
        };
        assert_eq!([endpoint(""), endpoint("ns/web")], ["ns/of-a-host", "ns/web"]);
    }

    #[test]
    fn a_long_list_is_shortened_and_an_empty_one_is_nothing() {
        assert_eq!(list(["a"]), "a");
        assert_eq!(list(["a", "b"]), "a and b");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(list([""; 0]), "nothing");
        assert_eq!(list(std::iter::repeat_n("a", 1237)), "a, a, a and 1,234 more");
        assert_eq!(and_more(1236, "block", "blocks"), ", and 1,235 more blocks");
    }
}
