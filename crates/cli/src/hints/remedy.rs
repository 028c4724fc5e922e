//! The commands that repair findings. `check/src/remedy.rs` chooses the remedy of a finding.

use calipam_check::Remedy;

use super::Reader;
use crate::render::text::shell_word;

/// Formats the purpose of a remedy and its command line.
pub(crate) fn hint(remedy: &Remedy) -> String {
    let purpose = match remedy {
        Remedy::ReleaseLeaked => "release leaked addresses",
        Remedy::ReleaseNodes(nodes) if nodes.len() > 1 => "release the addresses of deleted nodes",
        Remedy::ReleaseNodes(_) => "release the addresses of a deleted node",
        Remedy::ReleaseOrphanHandles => "delete the orphan handles",
        Remedy::ReleaseAddress(_) => "release an address once you know that it is not in use",
        Remedy::RestartPod { .. } => "give the pod another address: its own is recorded for another owner",
        Remedy::RestartCalicoNode(_) => {
            "give the tunnel another address: its own is recorded for another owner"
        }
        Remedy::Rebuild(_) => "see what a rebuild would change",
    };
    format!("{purpose}: {}", line(remedy, Reader::Operator))
}

/// Formats the command line for running text, in backticks.
pub(crate) fn line(remedy: &Remedy, reader: Reader) -> String {
    if let Some(restart) = restart(remedy) {
        return format!("`{restart}`");
    }
    let (words, kept) = words(remedy);
    reader.command_with(&words.iter().map(String::as_str).collect::<Vec<_>>(), kept)
}

/// Formats the command line for a document: the field `repair` of a finding.
pub(crate) fn in_document(remedy: &Remedy) -> String {
    line(remedy, Reader::Document).trim_matches('`').to_owned()
}

/// Formats the kubectl command of a remedy that restarts a pod.
fn restart(remedy: &Remedy) -> Option<String> {
    let words = match remedy {
        Remedy::RestartPod { namespace, pod } => {
            format!("--namespace {} {}", shell_word(namespace), shell_word(pod))
        }
        Remedy::RestartCalicoNode(node) => {
            let field = format!("spec.nodeName={node}");
            format!("--all-namespaces --selector k8s-app=calico-node --field-selector {}", shell_word(&field))
        }
        _ => return None,
    };
    Some(format!("kubectl delete pod {words}"))
}

/// The IDs of the options that select a part of the cluster.
pub(crate) const PART: [&str; 4] = ["nodes", "pools", "namespace", "selector"];
const POOLS: [&str; 1] = ["pools"];

/// Returns the command, and the IDs of the options that it takes from the call.
fn words(remedy: &Remedy) -> (Vec<String>, &'static [&'static str]) {
    let list = |items: Vec<String>| items.join(",");
    let (words, kept): (Vec<String>, &[&str]) = match remedy {
        Remedy::ReleaseLeaked => (vec!["release".into(), "--leaked".into()], &PART),
        Remedy::ReleaseOrphanHandles => (vec!["release".into(), "--orphan-handles".into()], &PART),
        Remedy::ReleaseNodes(nodes) => {
            (vec!["release".into(), "--node".into(), list(nodes.iter().cloned().collect())], &POOLS)
        }
        Remedy::ReleaseAddress(address) => (vec!["release".into(), "--ip".into(), address.to_string()], &[]),
        // kubectl restarts these.
        Remedy::RestartPod { .. } | Remedy::RestartCalicoNode(_) => (Vec::new(), &[]),
        Remedy::Rebuild(blocks) if blocks.is_empty() => (vec!["rebuild".into()], &POOLS),
        Remedy::Rebuild(blocks) => {
            let blocks = list(blocks.iter().map(ToString::to_string).collect());
            (vec!["rebuild".into(), "--block".into(), blocks], &[])
        }
    };
    (words, kept)
}
