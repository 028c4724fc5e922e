//! Sources of data in words.

use std::collections::BTreeMap;

use calipam_model::snapshot::{Coverage, DatastoreKind, Source, WhySkipped};

use super::text::join;

/// Formats the sources that were not read, with the reasons; `None` if there are none. Omits those of which a part was
/// read, and sources that do not exist in this kind of cluster.
pub(crate) fn unread(coverage: &BTreeMap<Source, Coverage>, datastore: DatastoreKind) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, coverage) in coverage {
        if let Coverage::Skipped(reason) = coverage
            && could_have_data(*source, reason, datastore)
        {
            let sources = by_reason.entry(reason.to_string()).or_default();
            sources.push(words(*source));
        }
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

/// True if the cluster can have data in a source that was not read. Otherwise nothing is missing without it.
fn could_have_data(source: Source, why_not_read: &WhySkipped, datastore: DatastoreKind) -> bool {
    if matches!(why_not_read, WhySkipped::NotInCalico2) {
        return false;
    }
    // Most clusters have no KubeVirt.
    if source == Source::Machines && matches!(why_not_read, WhySkipped::NotInstalled(_)) {
        return false;
    }
    // The Kubernetes datastore has no endpoints: pods replace them.
    let is_replaced = source == Source::Endpoints && datastore == DatastoreKind::Kubernetes;
    !is_replaced
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
        other => separate_words(&other.to_string()),
    }
}

/// Converts a name of the form `ipReservations` to `ip reservations`.
fn separate_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
