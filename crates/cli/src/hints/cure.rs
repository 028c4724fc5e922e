//! Cures in words: the command, and the effect that it had when it was tried.

use calipam_check::Remedy;
use calipam_plan::advice::{Cure, Effect};

use super::{Reader, remedy};
use crate::render::text::{count, thousands};

/// Formats a cure: purpose, command line and effect. A remedy that acts outside the datastore, such as a restart, has
/// an effect that nothing can tell before.
pub(crate) fn sentence(cure: &Cure, reader: Reader) -> String {
    let command = remedy::line(&cure.remedy, reader);
    let purpose = remedy::purpose(&cure.remedy);
    if let Some(effect) = &cure.effect {
        return format!("{purpose}: {command} ({})", outcome(effect));
    }
    // These commands only print something.
    if matches!(cure.remedy, Remedy::UndoRun | Remedy::Explain(_)) {
        return format!("{purpose}: {command}");
    }
    format!("{purpose}: {command} (cannot be tried in advance)")
}

/// Formats the effect of a cure.
pub(crate) fn outcome(effect: &Effect) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(freed_addresses(effect));
    if let Some(after) = effect.second_check
        && effect.addresses == 0
    {
        parts.push(format!("after a second check {after:#} later"));
    }

    let number_of_nodes = effect.nodes.len();
    match effect.nodes.first() {
        None => {}
        Some(node) if number_of_nodes == 1 => parts.push(format!("{node} gets addresses again")),
        Some(_) => {
            let nodes = count(number_of_nodes, "node", "nodes");
            parts.push(format!("{nodes} get addresses again"));
        }
    }
    let number_of_pods = effect.pods.len();
    match effect.pods.first() {
        None => {}
        Some(pod) if number_of_pods == 1 => parts.push(format!("{pod} gets an address")),
        Some(_) => {
            let pods = thousands(number_of_pods);
            parts.push(format!("{pods} waiting pods get an address"));
        }
    }
    if effect.serves_pod && effect.nodes.is_empty() && effect.pods.is_empty() {
        parts.push("it gets an address then".to_owned());
    }
    if effect.serves_tunnels {
        parts.push("its tunnels get their addresses then".to_owned());
    }

    if !effect.resolved.is_empty() {
        let findings = count(effect.resolved.len(), "finding", "findings");
        parts.push(format!("resolves {findings}"));
    }
    if effect.borrowed > 0 {
        let addresses = count(effect.borrowed, "address stays", "addresses stay");
        parts.push(format!(
            "{addresses} borrowed, which strict affinity does not allow"
        ));
    }
    if effect.endpoints_only {
        parts.push("needs a kubeconfig or --endpoints-only".to_owned());
    }
    parts.join("; ")
}

/// Formats the number of addresses that a cure frees, and when: at once, or after a second check has found them unused
/// again. `None` if it frees none.
fn freed_addresses(effect: &Effect) -> Option<String> {
    let Effect {
        addresses,
        at_once,
        second_check,
        cooldown,
        ..
    } = *effect;
    if addresses == 0 {
        return None;
    }

    let frees = |number: usize| format!("frees {}", count(number, "address", "addresses"));
    let mut text = frees(addresses);
    if let Some(after) = second_check
        && at_once < addresses
    {
        let later = format!("after a second check {after:#} later");
        text = if at_once == 0 {
            format!("{text} {later}")
        } else {
            format!("{} at once, and {} {later}", frees(at_once), addresses - at_once)
        };
    }
    if cooldown != 0 {
        text.push_str(&format!(", each with a cooldown of {cooldown} s"));
    }
    Some(text)
}
