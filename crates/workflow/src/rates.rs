//! How busy a cluster was, by its archive.

use std::path::Path;

use calipam_files::archive::Part;
use calipam_files::of_entry;
use calipam_files::recording::{Reached, Version, each_version};
use calipam_history::rates::{Follows, RateReader, Rates};

use crate::archive::{note_damage, open};
use crate::error::Error;
use crate::operator::Operator;

/// How often pods got addresses and how long they kept them, by the exports of an archive and the changes between them.
///
/// # Errors
/// If it holds one state only.
pub fn rates(folder: &Path, operator: &dyn Operator) -> Result<Rates, Error> {
    let archive = open(folder, operator)?;
    let part = Part::Records { handle: None };
    let mut reader = RateReader::default();
    let mut last: Option<Reached> = None;
    for export in archive.exports() {
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
    let rates = reader.finish();
    if rates.observed.is_zero() {
        return Err(Error::OneState(folder.to_owned()));
    }
    Ok(rates)
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
