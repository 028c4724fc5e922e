//! Hints about the objects that a plan skips.

use calipam_check::{Remedy, Subject};
use calipam_plan::{Skipped, SuggestedAction};

use super::Reader;
use super::remedy::{PART, line};

/// Formats the reason why an object is skipped, and the suggested command.
pub(crate) fn skipped(skipped: &Skipped, reader: Reader) -> String {
    let Some(action) = &skipped.suggested_action else {
        return skipped.detail.clone();
    };
    let action = match action {
        SuggestedAction::ReleaseByName => match &skipped.subject {
            Subject::Address(address) => {
                format!(
                    "{} releases it",
                    reader.command(&["release", "--ip", &address.to_string()])
                )
            }
            Subject::Handle(id) => format!("{} releases them", reader.command(&["release", "--handle", id])),
            _ => "`release --ip` or `release --handle` frees it".to_owned(),
        },
        SuggestedAction::NodeIsDead(node) => {
            let release = reader.command_with(&["release", "--node", node], &["pools"]);
            return format!(
                "{}; if it is not, {release} releases what it holds",
                skipped.detail
            );
        }
        SuggestedAction::ExplainNode(node) => {
            format!(
                "{} shows why",
                reader.command(&["explain", "--node", node, "-o", "wide"])
            )
        }
        SuggestedAction::ListFindings => {
            format!("see {}", reader.command_with(&["check", "-o", "wide"], &PART))
        }
        SuggestedAction::Remedy(remedy) => {
            let command = line(remedy, reader);
            match remedy {
                Remedy::ReleaseAddress(_) => format!("only {command} frees it"),
                Remedy::Rebuild(blocks) if blocks.is_empty() => {
                    format!("{command} records its addresses again")
                }
                Remedy::RestartPod { .. } | Remedy::RestartCalicoNode(_) => {
                    format!("{command} restarts the owner without a record")
                }
                Remedy::Rebuild(_) => format!("{command} repairs it"),
                Remedy::ReleaseOrphanHandles => format!("{command} deletes it"),
                Remedy::ReleaseLeaked | Remedy::ReleaseLeakedOf(_) | Remedy::ReleaseNodes(_) => {
                    format!("{command} releases it")
                }
                Remedy::Configure(_) | Remedy::ChangePool { .. } | Remedy::Explain(_) => command,
            }
        }
    };
    format!("{}: {action}", skipped.detail)
}
