//! How busy a cluster was, by its archive.

use std::path::Path;

use calipam_files::archive::{Archived, Part};
use calipam_files::of_entry;
use calipam_files::recording::{Reached, Version, each_version};
use calipam_history::past::{Follows, Past, PastReader};
use calipam_history::rates::Rates;
use calipam_history::trend::{KEPT, Trends};
use calipam_model::IpNet;
use jiff::Timestamp;

use crate::archive::{note_damage, open};
use crate::error::Error;
use crate::operator::Operator;

/// How often pods got addresses and how long they kept them, by the exports of an archive and the changes between them.
///
/// # Errors
/// If it holds one state only.
pub fn rates(folder: &Path, operator: &dyn Operator) -> Result<Rates, Error> {
    let archive = open(folder, operator)?;
    let rates = read(archive.exports(), Rates::default(), operator)?;
    if rates.observed.is_zero() {
        return Err(Error::OneState(folder.to_owned()));
    }
    Ok(rates)
}

/// What became of these pools until `now`, as far as a recording tells it.
///
/// # Errors
/// If it is empty, or cannot be read.
pub fn trends(
    folder: &Path,
    pools: impl Iterator<Item = IpNet>,
    now: Timestamp,
    operator: &dyn Operator,
) -> Result<Trends, Error> {
    let archive = open(folder, operator)?;
    let exports = archive.exports();
    let is_old = |export: &Archived| now.duration_since(export.taken_at) >= KEPT;
    let from = exports.iter().rposition(is_old).unwrap_or_default();
    read(&exports[from..], Trends::of_pools(pools), operator)
}

/// What exports and the changes between them tell.
fn read<P: Past>(exports: &[Archived], past: P, operator: &dyn Operator) -> Result<P, Error> {
    let part = Part::Records { handle: None };
    let mut reader = PastReader::new(past);
    let mut last: Option<Reached> = None;
    for export in exports {
        let reached = each_version(export, &|key| part.holds(key), |version| match version {
            Version::Of(entry, None) => reader.add(entry.key, &of_entry(entry)),
            Version::Of(entry, Some(time)) => reader.change(time, entry.key, Some(&of_entry(entry))),
            Version::Deleted(key, time) => reader.change(time, key, None),
            Version::Exported(reached) => reader.begin(reached.from, follows(last.as_ref(), reached)),
        })?;
        let Some(reached) = reached else { continue };
        reader.reach(reached.until);
        note_damage(export, &reached, operator);
        last = Some(reached);
    }
    Ok(reader.finish())
}

/// How a state follows the one before it, with its changes.
fn follows(last: Option<&Reached>, next: &Reached) -> Follows {
    match last {
        None => Follows::Nothing,
        Some(last) if !last.is_recorded && last.until < next.from => Follows::Export,
        Some(last) if next.follows || next.from <= last.until => Follows::Changes,
        Some(_) => Follows::Nothing,
    }
}
