//! What a plan leaves, and what it warns of.

use calipam_check::{Remedy, Subject};
use calipam_plan::{Skipped, SuggestedAction, Warning};

use super::remedy::line;
use super::{Reader, again};

/// Why something is skipped, and the command that does it.
pub(crate) fn skipped(skipped: &Skipped, reader: Reader) -> String {
    let action = match &skipped.suggested_action {
        None => return skipped.detail.clone(),
        Some(SuggestedAction::ReleaseByName) => match &skipped.subject {
            Subject::Address(address) => {
                format!("only {} releases it", reader.command(&["release", "--ip", &address.to_string()]))
            }
            Subject::Handle(id) => {
                format!("only {} releases it", reader.command(&["release", "--handle", id]))
            }
            _ => "only a release by --ip or --handle frees it".to_owned(),
        },
        Some(SuggestedAction::NodeIsDead(node)) => {
            return format!(
                "{}; if it is not, {} gives up what it holds",
                skipped.detail,
                reader.command(&["release", "--node", node])
            );
        }
        Some(SuggestedAction::ExplainAssignment) => match reader {
            Reader::Operator => {
                let without = ["dry_run", "yes", "max_changes", "lock", "journal", "output"];
                format!("{} shows why", again(&["--explain"], &without))
            }
            Reader::Document => "`calipam assign --explain` shows why".to_owned(),
        },
        Some(SuggestedAction::ListFindings) => {
            format!("look at it with {}", reader.command(&["check", "-o", "wide"]))
        }
        Some(SuggestedAction::Remedy(remedy)) => {
            let command = line(remedy, reader);
            match remedy {
                Remedy::ReleaseAddress(_) => format!("only {command} frees it"),
                Remedy::Rebuild => format!("{command} records its addresses again"),
                Remedy::RebuildBlock(_) => format!("{command} mends it"),
                Remedy::ReleaseLeaked | Remedy::ReleaseNode(_) | Remedy::ReleaseOrphanHandles => {
                    format!("{command} does it")
                }
            }
        }
    };
    format!("{}: {action}", skipped.detail)
}

/// What the operator should know before a plan is carried out.
pub(crate) fn warning(warning: &Warning) -> String {
    match warning {
        Warning::UnknownOwners(number) => format!(
            "{number} unused addresses have records that do not say whose they are; only a release by --ip or --handle \
             frees those"
        ),
        Warning::NodeStillNamed(node) => format!(
            "node {node} does not exist, but endpoints or pods still name it; what they use is kept"
        ),
        Warning::Forced(skipped) => format!("--force: {}; released all the same", skipped.detail),
        Warning::AssignedInUse(skipped) => format!("--force: {}; assigned all the same", skipped.detail),
        Warning::Reserved { address, reservation } => format!(
            "{address} is reserved by {reservation}, which keeps it from automatic assignment alone"
        ),
        Warning::HandleOfLive { handle, owner } => format!(
            "the handle {handle} is of {owner}, alive: what is assigned under it goes when that goes"
        ),
        Warning::PartsStayDisabled(pool) => {
            format!("the pool {pool} is disabled, and so are its parts; calicoctl would enable them")
        }
        Warning::ResourceSaysOtherwise => {
            "the resource IPAMConfiguration `default` says otherwise; with etcd Calico allocates by what is set here, and \
             nothing keeps the two equal"
                .to_owned()
        }
        Warning::EndpointsAlone => {
            "pods were not read: workload endpoints alone say who uses addresses, and after a restore they may be as old \
             as the blocks; name a kubeconfig, or say --endpoints-only"
                .to_owned()
        }
    }
}
