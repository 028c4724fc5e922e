//! Errors for names that a cluster does not have, with the names that were probably meant.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use calipam_model::words::joined;

use crate::failure::{Failure, Kind, Result};

/// Returns the known name that was probably meant: the first one that contains the text, otherwise the one with the
/// smallest edit distance, if that is small.
pub fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let is_long_enough = text.len() > 3;
    let mut containing = known.clone().filter(|name| name.contains(text));
    if is_long_enough && let Some(name) = containing.next() {
        return Some(name);
    }
    let distances = known.map(|name| (strsim::levenshtein(text, name), name));
    let (distance, nearest) = distances.min()?;
    if distance <= 3 && distance < text.len() {
        Some(nearest)
    } else {
        None
    }
}

/// Adds the most similar known name to a hint, as a suggestion for an unknown name.
pub(crate) fn did_you_mean(name: &str, known: &BTreeSet<String>, hint: impl Into<Hint>) -> Hint {
    let Hint { text, mut calls } = hint.into();
    let Some(nearest) = nearest(name, known.iter().map(String::as_str)) else {
        return Hint { text, calls };
    };
    calls.insert(0, Call::Name(nearest.to_owned()));
    Hint {
        text: format!("did you mean `{{}}`? {text}").into(),
        calls,
    }
}

pub(crate) fn unknown_node(name: &str, known: &BTreeSet<String>) -> Failure {
    let list = Hint::new(
        "{} lists nodes and what they hold",
        [Call::to(["show", "--nodes"])],
    );
    Failure::refused(format!("node {name:?} not found")).hint(did_you_mean(name, known, list))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {0:?} not found")]
pub struct UnknownPool(pub String);

/// The error for a pool that does not exist, with the name that was probably meant.
pub(crate) fn unknown_pool(states: &[&Snapshot], name: &str) -> Failure {
    let pools = states.iter().flat_map(|snapshot| &snapshot.pools);
    let known = pools.map(|pool| pool.value.name.clone()).collect();
    let list = Hint::new(
        "{} lists the pools; a CIDR is accepted as well",
        [Call::to(["show"])],
    );
    let hint = did_you_mean(name, &known, list);
    Failure::of(Kind::Refused, UnknownPool(name.to_owned()), Some(hint))
}

pub(crate) fn unknown_network(cidr: IpNet) -> Failure {
    Failure::refused(format!(
        "nothing is in {cidr}: no pool, no block, and no address in use"
    ))
    .hint(Hint::new("{} lists the pools", [Call::to(["show"])]))
}

/// The error for a CIDR that contains no block.
pub(crate) fn unknown_block(cidr: IpNet) -> Failure {
    Failure::refused(format!("block {cidr} not found"))
        .hint(Hint::new("{} lists the blocks", [Call::to(["show", "--blocks"])]))
}

/// The error for names that have no address in common.
pub(crate) fn nothing_in_common(names: impl IntoIterator<Item: ToString>, networks: &[IpNet]) -> Failure {
    let names = joined(names, ", ");
    let networks = joined(networks, ", ");
    Failure::refused(format!("{names} and {networks} have nothing in common")).hint(Hint::new(
        "{} lists blocks with pool and node",
        [Call::to(["show", "--blocks"])],
    ))
}

/// The maximum number of handles that an error lists.
const CANDIDATES: usize = 10;

/// Returns the only handle with this prefix; `None` if there is none. Fails if there are several.
pub(crate) fn only_handle(begin: &str, ids: impl IntoIterator<Item = String>) -> Result<Option<String>> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    if ids.len() < 2 {
        return Ok(ids.pop());
    }
    let more = if ids.len() > CANDIDATES { "\n  …" } else { "" };
    ids.truncate(CANDIDATES);
    let text = format!(
        "use a longer prefix of one of these IDs:{}{more}",
        "\n  {}".repeat(ids.len())
    );
    let names: Vec<Call> = ids.into_iter().map(Call::Name).collect();
    Err(Failure::refused(format!("several handles begin with {begin:?}")).hint(Hint::new(text, names)))
}
