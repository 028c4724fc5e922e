//! Sources of data in words.

use std::collections::BTreeMap;

use calipam_model::snapshot::{Coverage, DatastoreKind, Source, WhySkipped};

use super::text::join;

/// Formats the sources that were not read, with the reasons; `None` if there are none. Omits those of which a part was
/// read, and sources that do not exist in this kind of cluster.
pub(crate) fn unread(coverage: &BTreeMap<Source, Coverage>, datastore: DatastoreKind) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, coverage) in coverage {
        let Coverage::Skipped(reason) = coverage else {
            continue;
        };
        // Most clusters have no KubeVirt, and lack nothing then.
        let is_absent = match reason {
            WhySkipped::NotInCalico2 => true,
            WhySkipped::NotInstalled(_) => *source == Source::Machines,
            _ => false,
        };
        // The Kubernetes datastore has no endpoints: pods replace them.
        let is_replaced = *source == Source::Endpoints && datastore == DatastoreKind::Kubernetes;
        if is_absent || is_replaced {
            continue;
        }
        by_reason
            .entry(reason.to_string())
            .or_default()
            .push(words(*source));
    }
    if by_reason.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    for (reason, sources) in by_reason {
        parts.push(format!("{} ({reason})", join(&sources)));
    }
    Some(parts.join("; "))
}

/// Formats a source in prose, such as `virtual machines`.
pub(crate) fn words(source: Source) -> String {
    match source {
        Source::Pods => "pods".into(),
        Source::Services => "services".into(),
        Source::Machines => "virtual machines".into(),
        Source::KubernetesNodes => "Kubernetes nodes".into(),
        Source::ClusterInformation => "ClusterInformation".into(),
        Source::KubeControllersConfiguration => "KubeControllersConfiguration".into(),
        Source::IpamConfig => "IPAMConfig".into(),
        Source::IpamConfiguration => "IPAMConfiguration".into(),
        // From `thisForm` to `this form`.
        other => {
            let mut words = String::new();
            for c in other.to_string().chars() {
                if c.is_uppercase() {
                    words.push(' ');
                }
                words.extend(c.to_lowercase());
            }
            words
        }
    }
}
