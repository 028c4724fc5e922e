//! The commands that repair findings. `check/src/remedy.rs` chooses the remedy of a finding.

use std::mem::discriminant;

use calipam_check::Remedy;

use super::Reader;
use crate::render::text::{joined, shell_word};

/// The maximum number of blocks that a command names.
const BLOCKS: usize = 6;

/// Formats the purpose of a remedy and its command line.
pub(crate) fn hint(remedy: &Remedy) -> String {
    format!("{}: {}", purpose(remedy), line(remedy, Reader::Operator))
}

/// Merges remedies into one of each kind, in their order: one rebuild covers several blocks, and one release several
/// nodes. Other kinds keep only the first remedy. If `by_block` is true, a rebuild of several blocks names at most
/// `BLOCKS` of them. Otherwise it names no blocks, and covers everything.
pub(crate) fn merged(remedies: impl Iterator<Item = Remedy>, by_block: bool) -> Vec<Remedy> {
    let mut shown: Vec<Remedy> = Vec::new();
    for remedy in remedies {
        match (shown.iter_mut().find(|other| discriminant(*other) == discriminant(&remedy)), remedy) {
            (Some(Remedy::Rebuild(blocks)), Remedy::Rebuild(more)) if by_block || *blocks == more => {
                blocks.extend(more);
            }
            (Some(Remedy::Rebuild(blocks)), _) => blocks.clear(),
            (Some(Remedy::ReleaseNodes(nodes)), Remedy::ReleaseNodes(more)) => nodes.extend(more),
            (Some(_), _) => {}
            (None, remedy) => shown.push(remedy),
        }
    }
    let named = if by_block { BLOCKS } else { 0 };
    for remedy in &mut shown {
        if let Remedy::Rebuild(blocks) = remedy
            && blocks.len() > 1
        {
            *blocks = std::mem::take(blocks).into_iter().take(named).collect();
        }
    }
    shown
}

/// Returns the purpose of a remedy.
pub(crate) fn purpose(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::ReleaseLeaked => "release leaked addresses",
        Remedy::ReleaseNodes(nodes) if nodes.len() > 1 => "release the addresses of deleted nodes",
        Remedy::ReleaseNodes(_) => "release the addresses of a deleted node",
        Remedy::ReleaseOrphanHandles => "delete the orphan handles",
        Remedy::ReleaseAddress(_) => "release an address once you know that it is not in use",
        Remedy::RestartPod { .. } => {
            "give the pod another address, since this one is recorded for another owner"
        }
        Remedy::RestartCalicoNode(_) => {
            "give the tunnel another address, since this one is recorded for another owner"
        }
        Remedy::Rebuild(_) => "see what a rebuild would change",
    }
}

/// The IDs of the options that select a part of the cluster.
pub(crate) const PART: [&str; 4] = ["nodes", "pools", "namespace", "selector"];

/// Formats the command line for running text, in backticks.
pub(crate) fn line(remedy: &Remedy, reader: Reader) -> String {
    let command = |words: &[&str], kept: &[&str]| reader.command_with(words, kept);
    match remedy {
        Remedy::ReleaseLeaked => command(&["release", "--leaked"], &PART),
        Remedy::ReleaseOrphanHandles => command(&["release", "--orphan-handles"], &PART),
        Remedy::ReleaseNodes(nodes) => command(&["release", "--node", &joined(nodes, ",")], &["pools"]),
        Remedy::ReleaseAddress(address) => command(&["release", "--ip", &address.to_string()], &[]),
        Remedy::RestartPod { namespace, pod } => {
            format!("`kubectl delete pod --namespace {} {}`", shell_word(namespace), shell_word(pod))
        }
        Remedy::RestartCalicoNode(node) => format!(
            "`kubectl delete pod --all-namespaces --selector k8s-app=calico-node --field-selector {}`",
            shell_word(&format!("spec.nodeName={node}"))
        ),
        Remedy::Rebuild(blocks) if blocks.is_empty() => command(&["rebuild"], &["pools"]),
        Remedy::Rebuild(blocks) => command(&["rebuild", "--block", &joined(blocks, ",")], &[]),
    }
}

/// Formats the command line for a document: the field `repair` of a finding.
pub(crate) fn in_document(remedy: &Remedy) -> String {
    line(remedy, Reader::Document).trim_matches('`').to_owned()
}
