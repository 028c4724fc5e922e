//! Hints about the objects that a plan skips.

use calipam_check::{Remedy, RestartReason, Subject};
use calipam_plan::{Skipped, SuggestedAction};

use super::Reader;
use super::remedy::{PART, line};

/// Formats the reason why an object is skipped and, if there is one, the command that helps.
pub(crate) fn skipped(skipped: &Skipped, reader: Reader) -> String {
    let detail = &skipped.detail;
    let suggestion = match &skipped.suggested_action {
        None => return detail.clone(),
        Some(SuggestedAction::NodeIsDead(node)) => {
            let release = reader.command_with(&["release", "--node", node], &["pools"]);
            return format!("{detail}; if it is not, {release} releases what it holds");
        }
        Some(SuggestedAction::ReleaseByName) => release_by_name(&skipped.subject, reader),
        Some(SuggestedAction::ExplainNode(node)) => {
            let explain = reader.command(&["explain", "--node", node, "-o", "wide"]);
            format!("{explain} shows why")
        }
        Some(SuggestedAction::ListFindings) => {
            format!("see {}", reader.command_with(&["check", "-o", "wide"], &PART))
        }
        Some(SuggestedAction::Remedy(remedy)) => command_with_effect(remedy, reader),
    };
    format!("{detail}: {suggestion}")
}

/// Suggests to release an address or a handle by its name.
fn release_by_name(subject: &Subject, reader: Reader) -> String {
    match subject {
        Subject::Address(address) => {
            let release = reader.command(&["release", "--ip", &address.to_string()]);
            format!("{release} releases it")
        }
        Subject::Handle(id) => {
            let release = reader.command(&["release", "--handle", id]);
            format!("{release} releases them")
        }
        _ => "`release --ip` or `release --handle` frees it".to_owned(),
    }
}

/// Returns the pod that a restart concerns, in words.
fn restarted_pod(reason: RestartReason) -> &'static str {
    match reason {
        RestartReason::RecordedForAnother => "the owner without a record",
        RestartReason::RecordedForNone => "one of them",
        RestartReason::NoEndpoint => "it",
    }
}

/// Formats a remedy of a finding: its command, and what the command does.
fn command_with_effect(remedy: &Remedy, reader: Reader) -> String {
    let command = line(remedy, reader);
    match remedy {
        Remedy::ReleaseAddress(_) => format!("only {command} frees it"),
        Remedy::Rebuild(blocks) if blocks.is_empty() => format!("{command} records its addresses again"),
        Remedy::RestartPod { reason, .. } => format!("{command} restarts {}", restarted_pod(*reason)),
        Remedy::RestartCalicoNode(_) => format!("{command} restarts the owner without a record"),
        Remedy::Rebuild(_) => format!("{command} repairs it"),
        Remedy::ReleaseOrphanHandles => format!("{command} deletes it"),
        Remedy::ReleaseLeaked | Remedy::ReleaseLeakedOf(_) | Remedy::ReleaseNodes(_) => {
            format!("{command} releases it")
        }
        Remedy::Configure(_) | Remedy::ChangePool { .. } | Remedy::UndoRun | Remedy::Explain(_) => command,
    }
}
