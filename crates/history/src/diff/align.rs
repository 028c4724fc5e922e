//! Reduces two snapshots to the sources that both have, before they are checked.

use calipam_model::snapshot::{Coverage, Snapshot, Source, WhySkipped};

/// The sources of the users of addresses. A source of one side only would change findings although nothing has happened
/// between the two.
const USERS: [Source; 4] = [Source::Endpoints, Source::Pods, Source::Services, Source::Machines];

/// Removes the users of addresses from either snapshot if they were not read in the other. It must be called before the
/// two are checked.
pub fn align(old: &mut Snapshot, new: &mut Snapshot) {
    for source in USERS {
        match (old.has_read(source), new.has_read(source)) {
            (true, false) => forget(old, source),
            (false, true) => forget(new, source),
            _ => {}
        }
    }
}

fn forget(snapshot: &mut Snapshot, source: Source) {
    match source {
        Source::Endpoints => snapshot.endpoints = Vec::new(),
        Source::Pods => {
            snapshot.pods = Vec::new();
            snapshot.kubernetes_nodes = Vec::new();
        }
        Source::Services => snapshot.services = Vec::new(),
        Source::Machines => snapshot.machines = Vec::new(),
        _ => return,
    }
    let reason = WhySkipped::Other("not read on the other side".to_owned());
    snapshot.coverage.insert(source, Coverage::Skipped(reason));
}
