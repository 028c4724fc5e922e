//! What a plan leaves, and what it warns of.

use calipam_check::{Code, Remedy, Subject};
use calipam_plan::{Skipped, SuggestedAction, Warning};

use super::Reader;
use super::remedy::{PART, line};
use crate::render::text::count;

/// Why something is skipped, and the command that does it.
pub(crate) fn skipped(skipped: &Skipped, reader: Reader) -> String {
    let action = match &skipped.suggested_action {
        None => return skipped.detail.clone(),
        Some(SuggestedAction::ReleaseByName) => match &skipped.subject {
            Subject::Address(address) => {
                format!("{} releases it", reader.command(&["release", "--ip", &address.to_string()]))
            }
            Subject::Handle(id) => {
                format!("{} releases it", reader.command(&["release", "--handle", id]))
            }
            _ => "`release --ip` or `release --handle` frees it".to_owned(),
        },
        Some(SuggestedAction::NodeIsDead(node)) => {
            return format!(
                "{}; if it is not, {} releases what it holds",
                skipped.detail,
                reader.command_with(&["release", "--node", node], &["pools"])
            );
        }
        Some(SuggestedAction::ExplainNode(node)) => {
            format!("{} shows why", reader.command(&["explain", "--node", node, "-o", "wide"]))
        }
        Some(SuggestedAction::ListFindings) => {
            format!("see {}", reader.command_with(&["check", "-o", "wide"], &PART))
        }
        Some(SuggestedAction::Remedy(remedy)) => {
            let command = line(remedy, reader);
            match remedy {
                Remedy::ReleaseAddress(_) => format!("only {command} frees it"),
                Remedy::Rebuild(blocks) if blocks.is_empty() => {
                    format!("{command} records its addresses again")
                }
                Remedy::RestartPod { .. } | Remedy::RestartCalicoNode(_) => {
                    format!("{command} restarts the one for whom it is not recorded")
                }
                Remedy::Rebuild(_) => format!("{command} repairs it"),
                Remedy::ReleaseLeaked | Remedy::ReleaseNodes(_) | Remedy::ReleaseOrphanHandles => {
                    format!("{command} does it")
                }
            }
        }
    };
    format!("{}: {action}", skipped.detail)
}

/// What will be found after a plan.
fn follows(code: Code, subjects: &[Subject]) -> String {
    const SHOWN: usize = 3;
    let number = subjects.len();
    let named: Vec<String> = subjects.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if number > SHOWN { format!(" and {} more", number - SHOWN) } else { String::new() };
    let what = match code {
        Code::NodeOverBlockLimit => {
            format!("{} above the limit of blocks", count(number, "node is", "nodes are"))
        }
        Code::BorrowedUnderStrictAffinity => format!(
            "{} still in a block of another node, which strict affinity does not allow",
            count(number, "address is", "addresses are")
        ),
        Code::NodeWithoutAddresses => {
            format!("{} no further address for pods", count(number, "node gets", "nodes get"))
        }
        _ => format!("{} {code}", count(number, "new finding of", "new findings of")),
    };
    format!("after this, {what}: {}{more}", named.join(", "))
}

/// What the operator should know before a plan is carried out.
pub(crate) fn warning(warning: &Warning) -> String {
    match warning {
        Warning::UnknownOwners(number) => format!(
            "{number} unused addresses have records without an owner; only `release --ip` or `release --handle` frees those"
        ),
        Warning::NodeStillNamed(node) => format!(
            "node {node} does not exist, but endpoints or pods still refer to it; what they use is kept"
        ),
        Warning::Forced(skipped) => format!("--force: {}; releasing anyway", skipped.detail),
        Warning::AssignForced(skipped) => format!("--force: {}; assigning anyway", skipped.detail),
        Warning::PoolOfOtherNodes { address, pool, selector } => format!(
            "{address} is in pool {pool}, whose nodeSelector ({selector}) does not select the node: its pods get addresses there only if they request the pool"
        ),
        Warning::CoolDown { addresses, seconds } => {
            let end = super::command(&["configure", "--ip-cooldown-seconds", "0"]);
            let what = count(*addresses, "released address cools", "released addresses cool");
            format!("{what} down for {seconds} s; {end} ends that at once")
        }
        Warning::Follows { code, subjects } => follows(*code, subjects),
        Warning::FollowsUnknown(reason) => format!("the effect on nodes and addresses is not known: {reason}"),
        Warning::Reserved { address, reservation } => format!(
            "{address} is reserved by {reservation}, which only excludes it from automatic assignment"
        ),
        Warning::HandleOfLive { handle, owner } => format!(
            "the handle {handle} belongs to {owner}, which exists: these addresses will be released together with its own"
        ),
        Warning::PartsStayDisabled(pool) => {
            format!("the pool {pool} is disabled, and so are its parts; calicoctl would enable them")
        }
        Warning::ResourceSaysOtherwise => {
            "the resource IPAMConfiguration `default` differs; with etcd, Calico reads what is set here, and the two are \
             not kept in sync"
                .to_owned()
        }
        Warning::EndpointsAlone => {
            "pods were not read: only workload endpoints say who uses addresses, and after a restore they may be as old \
             as the blocks; pass a kubeconfig or --endpoints-only"
                .to_owned()
        }
    }
}
