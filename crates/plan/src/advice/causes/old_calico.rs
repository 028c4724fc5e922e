//! Leftovers of earlier versions of Calico.

use calipam_check::Code;
use calipam_model::words::count;

use super::{Facts, Found};

/// The codes of findings that only earlier versions of Calico cause, each with what happened (facts 9).
const KNOWN: [(Code, &str); 3] = [
    (
        Code::HandleCarriageReturn,
        "Calico before 3.17 wrote handle IDs with a carriage return, and does not find them",
    ),
    (
        Code::AffinityLabels,
        "Calico before 3.31 wrote affinities without the labels by which later versions find them",
    ),
    (Code::SharedLegacyHandle, "Calico 2.x recorded all addresses of a pod's name under one handle"),
];

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let known = KNOWN.into_iter().map(|(code, what)| (what, facts.open(&[code]).collect::<Vec<_>>()));
    known
        .filter(|(_, of)| !of.is_empty())
        .map(|(what, of)| {
            let says = format!("{what}: {}", count(of.len(), "object is left", "objects are left"));
            Found::with_own_remedies(says, of)
        })
        .collect()
}
