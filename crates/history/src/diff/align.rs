//! Removes sources of address users that were read in only one of two snapshots, before both snapshots are checked.

use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};

/// The sources of pods and other users of addresses. If only one snapshot had such a source, findings would differ
/// although the cluster has not changed.
const USERS: [Source; 4] = [
    Source::Endpoints,
    Source::Pods,
    Source::Services,
    Source::Machines,
];

/// Removes a source of address users from one snapshot if it was not read in the other one. This must happen before the
/// snapshots are checked.
pub fn align(old: &mut Snapshot, new: &mut Snapshot) {
    for source in USERS {
        let is_in_old = old.has_read(source);
        let is_in_new = new.has_read(source);
        if is_in_old && !is_in_new {
            forget(old, source);
        } else if is_in_new && !is_in_old {
            forget(new, source);
        }
    }
}

/// Removes what was read from a source that the other side did not read, and counts the source as not read.
fn forget(snapshot: &mut Snapshot, source: Source) {
    match source {
        Source::Endpoints => snapshot.endpoints = Vec::new(),
        Source::Pods => {
            snapshot.pods = Vec::new();
            snapshot.kubernetes_nodes = Vec::new();
        }
        Source::Services => snapshot.services = Vec::new(),
        Source::Machines => snapshot.machines = Vec::new(),
        // The others are always read.
        _ => return,
    }
    let reason = WhySkipped::Other("not read on the other side".to_owned());
    snapshot.coverage.insert(source, Coverage::Skipped(reason));
}
