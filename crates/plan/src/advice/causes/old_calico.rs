//! Faults of some versions of Calico that are known by what they leave.

use calipam_check::{Code, Finding};
use calipam_model::words::count;

use super::{Facts, Found};

type Version = (u32, u32, u32);

/// A fault of Calico.
struct KnownFault {
    code: Code,
    /// True for the findings with this code that the fault leaves.
    leaves: fn(&Finding) -> bool,
    /// The versions that have it: the first one, and the first one without it. Empty if what it leaves is proof enough,
    /// since it also stays after an upgrade.
    versions: &'static [(Version, Version)],
    says: &'static str,
    /// The pull request that ended it, if it is known.
    pull_request: Option<&'static str>,
    /// The words for one and for several findings.
    words: [&'static str; 2],
}

const OBJECTS: [&str; 2] = ["object is left", "objects are left"];

/// The known faults, each with the code of the findings that show it.
const KNOWN: [KnownFault; 6] = [
    KnownFault {
        code: Code::HandleCarriageReturn,
        leaves: |_| true,
        versions: &[],
        says: "Calico before 3.17 wrote handle IDs with a carriage return, and does not find them",
        pull_request: Some("projectcalico/libcalico-go#1345"),
        words: OBJECTS,
    },
    KnownFault {
        code: Code::AffinityLabels,
        leaves: |_| true,
        versions: &[],
        says: "Calico before 3.31 wrote affinities without the labels by which later versions find them",
        pull_request: Some("projectcalico/calico#10855"),
        words: OBJECTS,
    },
    KnownFault {
        code: Code::SharedLegacyHandle,
        leaves: |_| true,
        versions: &[],
        says: "Calico 2.x recorded all addresses of a pod's name under one handle",
        pull_request: None,
        words: OBJECTS,
    },
    KnownFault {
        code: Code::UnallocatedInUse,
        leaves: |_| true,
        versions: &[((3, 20, 0), (3, 20, 3)), ((3, 21, 0), (3, 21, 1))],
        says: "the collector of this version of Calico releases all addresses of a pod if one of them seems to have leaked",
        pull_request: Some("projectcalico/kube-controllers#901"),
        words: ["address in use is free", "addresses in use are free"],
    },
    KnownFault {
        code: Code::MissingHandle,
        leaves: |_| true,
        versions: &[((3, 0, 0), (3, 22, 2))],
        says: "the collector of this version of Calico cannot release addresses whose handle is lost",
        pull_request: Some("projectcalico/calico#5613"),
        words: ["handle is lost", "handles are lost"],
    },
    // The fault ended with patch releases of 3.29 and 3.30, too.
    KnownFault {
        code: Code::OrphanHandle,
        leaves: |finding| finding.needed_by().is_none(),
        versions: &[((3, 18, 0), (3, 29, 0))],
        says: "this version of Calico leaves handles behind if many pods of a node wait for addresses at the same time",
        pull_request: Some("projectcalico/calico#10658"),
        words: ["handle has no address", "handles have no address"],
    },
];

impl KnownFault {
    /// Returns true if this version of Calico, or an earlier one before an upgrade, may have left something behind.
    fn may_concern(&self, version: Option<Version>) -> bool {
        if self.versions.is_empty() {
            return true;
        }
        let Some(version) = version else {
            return false;
        };
        self.versions
            .iter()
            .any(|(first, end)| *first <= version && version < *end)
    }
}

/// Finds the known faults of the cluster's Calico version that have left something behind.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let cluster = facts.snapshot.cluster.as_ref();
    let version = cluster.and_then(|cluster| cluster.version());
    let mut causes = Vec::new();
    for fault in &KNOWN {
        if fault.may_concern(version) {
            causes.extend(cause_of(fault, facts));
        }
    }
    causes
}

/// Describes a known fault, if it has left something behind.
fn cause_of(fault: &KnownFault, facts: &Facts<'_>) -> Option<Found> {
    let codes = [fault.code];
    let open = facts.open(&codes);
    let leftovers: Vec<_> = open.filter(|(_, finding)| (fault.leaves)(finding)).collect();
    if leftovers.is_empty() {
        return None;
    }

    let ended = match fault.pull_request {
        Some(number) => format!(" (ended by {number})"),
        None => String::new(),
    };
    let [singular, plural] = fault.words;
    let number = count(leftovers.len(), singular, plural);
    let says = format!("{}{ended}: {number}", fault.says);
    Some(Found::with_own_remedies(says, leftovers))
}
