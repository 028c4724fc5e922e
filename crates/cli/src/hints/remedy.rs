//! The commands that repair findings. `check/src/remedy.rs` chooses the remedy of a finding.

use std::collections::BTreeSet;

use calipam_check::{PoolChange, Remedy, RestartReason, Topic};
use calipam_model::config::IpamSetting;

use super::{Reader, command_elsewhere};
use crate::render::text::{joined, shell_word};

/// Returns the purpose of a remedy, as an order to the reader: `release leaked addresses`.
pub(crate) fn purpose(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::ReleaseLeaked => "release leaked addresses",
        Remedy::ReleaseLeakedOf(_) => "release leaked addresses of the node",
        Remedy::ReleaseNodes(nodes) if nodes.len() > 1 => "release the addresses of deleted nodes",
        Remedy::ReleaseNodes(_) => "release the addresses of a deleted node",
        Remedy::ReleaseOrphanHandles => "delete the orphan handles",
        Remedy::ReleaseAddress(_) => "release an address once you know that it is not in use",
        Remedy::RestartPod { reason, .. } => purpose_of_restart(*reason),
        Remedy::RestartCalicoNode(_) => {
            "give the tunnel another address, since this one is recorded for another owner"
        }
        Remedy::Rebuild(_) => "see what a rebuild would change",
        Remedy::UndoRun => "find the run that left the lock, and undo it",
        Remedy::Explain(_) => "see what helps",
        Remedy::Configure(settings) => purpose_of_settings(settings),
        Remedy::ChangePool { change, .. } => purpose_of_pool_change(*change),
    }
}

/// Returns the purpose of the restart of a pod.
fn purpose_of_restart(reason: RestartReason) -> &'static str {
    match reason {
        RestartReason::RecordedForAnother => {
            "give the pod another address, since this one is recorded for another owner"
        }
        RestartReason::RecordedForNone => {
            "give one of the users another address, since this one is recorded for none of them"
        }
        RestartReason::NoEndpoint => "restart the pod, so that Calico's plugin writes its endpoint",
    }
}

/// Returns the purpose of a change of settings, which the first of them determines.
fn purpose_of_settings(settings: &[IpamSetting]) -> &'static str {
    match settings.first() {
        Some(IpamSetting::MaxBlocksPerHost(_)) => "raise the block limit",
        Some(IpamSetting::StrictAffinity(false)) => "allow borrowing",
        Some(IpamSetting::StrictAffinity(true)) => "turn strict affinity on",
        Some(IpamSetting::AutoAllocateBlocks(_)) => "let nodes claim blocks",
        Some(IpamSetting::Cooldown(_)) => "end the cooldown",
        Some(IpamSetting::Kubevirt(_)) | None => "change the configuration",
    }
}

/// Returns the purpose of a change of a pool.
fn purpose_of_pool_change(change: PoolChange) -> &'static str {
    match change {
        PoolChange::Enable => "enable the pool",
        PoolChange::SelectAllNodes => "let the pool serve all nodes",
        PoolChange::AllowWorkloads => "let the pool serve pods",
        PoolChange::AssignAutomatically => "let the pool serve requests that name no pool",
    }
}

/// The IDs of the options that select a part of the cluster.
pub(crate) const PART: [&str; 4] = ["nodes", "pools", "namespace", "selector"];

/// Formats the command line of a remedy for running text, in backticks, with the options of this call that still apply.
pub(crate) fn line(remedy: &Remedy, reader: Reader) -> String {
    let command = |words: &[&str], kept: &[&str]| reader.command_with(words, kept);
    match remedy {
        Remedy::ReleaseLeaked => command(&["release", "--leaked"], &PART),
        Remedy::ReleaseOrphanHandles => command(&["release", "--orphan-handles"], &PART),
        Remedy::ReleaseLeakedOf(node) => command(&["release", "--leaked", "--node", node], &[]),
        Remedy::ReleaseNodes(nodes) => command(&["release", "--node", &names(nodes)], &["pools"]),
        Remedy::ReleaseAddress(address) => command(&["release", "--ip", &address.to_string()], &[]),
        Remedy::RestartPod { namespace, pod, .. } => {
            let namespace = shell_word(namespace);
            reader.kubectl(&format!("delete pod --namespace {namespace} {}", shell_word(pod)))
        }
        Remedy::RestartCalicoNode(node) => restart_calico_node(node, reader),
        Remedy::Rebuild(blocks) if blocks.is_empty() => command(&["rebuild"], &["pools"]),
        Remedy::Rebuild(blocks) => command(&["rebuild", "--block", &joined(blocks, ",")], &[]),
        Remedy::UndoRun => command_elsewhere(&["undo", "--list"]),
        Remedy::Explain(topic) => explain(topic, reader),
        Remedy::Configure(settings) => configure(settings, reader),
        Remedy::ChangePool { pool, change } => change_pool(pool, *change, reader),
    }
}

/// Formats the command that restarts calico-node on a node. Selectors find its pod, whose name is not known.
fn restart_calico_node(node: &str, reader: Reader) -> String {
    let node = shell_word(&format!("spec.nodeName={node}"));
    reader.kubectl(&format!(
        "delete pod --all-namespaces --selector k8s-app=calico-node --field-selector {node}"
    ))
}

/// Formats the command that explains a topic.
fn explain(topic: &Topic, reader: Reader) -> String {
    match topic {
        Topic::Pod(pod) => reader.command(&["explain", "--pod", pod]),
        Topic::Node(node) => reader.command(&["explain", "--node", node]),
        // The explanation of a rule is the same for every cluster.
        Topic::Rule(code) => command_elsewhere(&["explain", code.name()]),
    }
}

/// Formats the command that changes settings.
fn configure(settings: &[IpamSetting], reader: Reader) -> String {
    let options: Vec<String> = settings.iter().flat_map(option).collect();
    let mut words = vec!["configure"];
    words.extend(options.iter().map(String::as_str));
    reader.command(&words)
}

/// Formats calicoctl's command that changes a pool.
fn change_pool(pool: &str, change: PoolChange, reader: Reader) -> String {
    let spec = match change {
        PoolChange::Enable => r#"{"spec":{"disabled":false}}"#,
        PoolChange::SelectAllNodes => r#"{"spec":{"nodeSelector":"all()"}}"#,
        PoolChange::AllowWorkloads => r#"{"spec":{"allowedUses":["Workload","Tunnel"]}}"#,
        PoolChange::AssignAutomatically => r#"{"spec":{"assignmentMode":"Automatic"}}"#,
    };
    reader.calicoctl(&format!("patch ippool {} -p '{spec}'", shell_word(pool)))
}

/// Returns the option of `configure` for a setting, and its value.
fn option(setting: &IpamSetting) -> [String; 2] {
    let (name, value) = match setting {
        IpamSetting::StrictAffinity(is_on) => ("--strict-affinity", is_on.to_string()),
        IpamSetting::AutoAllocateBlocks(is_on) => ("--auto-allocate-blocks", is_on.to_string()),
        IpamSetting::MaxBlocksPerHost(number) => ("--max-blocks-per-host", number.to_string()),
        IpamSetting::Cooldown(seconds) => ("--ip-cooldown-seconds", seconds.to_string()),
        IpamSetting::Kubevirt(keeps) => (
            "--kubevirt-ip-persistence",
            if *keeps { "Enabled" } else { "Disabled" }.to_owned(),
        ),
    };
    [name.to_owned(), value]
}

/// The number of deleted nodes up to which a command names each of them. More would make the command hard to read.
const MAX_NAMED_NODES: usize = 4;

/// Returns the names of deleted nodes, as the value of `--node`. Many nodes are named by a pattern: of the nodes that
/// match, `release` takes only deleted ones.
fn names(nodes: &BTreeSet<String>) -> String {
    let beginning = common_beginning(nodes);
    // A wildcard or comma in a name would make another pattern of it.
    let can_be_pattern = !beginning.is_empty() && !beginning.contains(['*', '?', ',']);
    if nodes.len() > MAX_NAMED_NODES && can_be_pattern {
        return format!("{beginning}*");
    }
    joined(nodes, ",")
}

/// Returns the longest text with which all names begin.
fn common_beginning(names: &BTreeSet<String>) -> String {
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        return String::new();
    };
    // The names are sorted, so the names between these two begin as both of them do.
    let pairs = first.chars().zip(last.chars());
    pairs.take_while(|(a, b)| a == b).map(|(c, _)| c).collect()
}

/// Formats the command line for a document: the field `repair` of a finding.
pub(crate) fn in_document(remedy: &Remedy) -> String {
    line(remedy, Reader::Document).trim_matches('`').to_owned()
}
