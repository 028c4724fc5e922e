//! What a plan leaves, and what it warns of.

use calipam_check::Remedy;
use calipam_plan::{Skipped, Warning, WayOut};

use super::command_in_document;
use super::remedy::in_document;

/// Why something is skipped, and the command that does it.
pub fn skipped(skipped: &Skipped) -> String {
    let way_out = match &skipped.way_out {
        None => return skipped.detail.clone(),
        Some(WayOut::ReleaseByName) => "only `--ip` and `--handle` release it".to_owned(),
        Some(WayOut::ListFindings) => {
            format!("look at it with `{}`", command_in_document(&["check", "-o", "wide"]))
        }
        Some(WayOut::Remedy(remedy)) => match remedy {
            Remedy::ReleaseAddress(_) => format!("only `{}` frees it", in_document(remedy)),
            Remedy::Rebuild => format!("`{}` records its addresses again", in_document(remedy)),
            Remedy::RebuildBlock(_) => format!("`{}` mends it", in_document(remedy)),
            Remedy::ReleaseLeaked | Remedy::ReleaseNode(_) | Remedy::ReleaseOrphanHandles => {
                format!("`{}` does it", in_document(remedy))
            }
        },
    };
    format!("{}: {way_out}", skipped.detail)
}

/// What the operator should know before a plan is carried out.
pub fn warning(warning: &Warning) -> String {
    match warning {
        Warning::UnknownOwners(number) => format!(
            "{number} unused addresses have records that do not say whose they are; only `--ip` and `--handle` release \
             those"
        ),
        Warning::NodeStillNamed(node) => format!(
            "node {node} does not exist, but endpoints or pods still name it; what they use is kept"
        ),
        Warning::Forced(skipped) => format!("--force: {}; released all the same", skipped.detail),
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
