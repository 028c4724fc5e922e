//! The states of an archive at given times, with the changes recorded until then.

use std::path::{Path, PathBuf};

use calipam_files::archive::{Archive, Archived};
use calipam_files::recording::write_state;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::{open, warn_of_gap};
use crate::failure::{Failure, Result};
use crate::operator::Operator;

/// A state of an archive: an export, with or without the changes after it.
pub struct ArchivedState {
    pub path: PathBuf,
    /// The time of the state.
    pub at: Timestamp,
    /// The temporary directory of a state that is not an export.
    temporary: Option<TempDir>,
}

impl ArchivedState {
    fn of(export: &Archived) -> Self {
        Self {
            path: export.path.clone(),
            at: export.taken_at,
            temporary: None,
        }
    }

    /// Applies an export's recorded changes, all of them or those until a time, and writes the resulting state to a
    /// temporary file. Without recorded changes, returns the export itself.
    fn write(export: &Archived, until: Option<Timestamp>, operator: &dyn Operator) -> Result<Self> {
        if !export.changes().exists() {
            return Ok(Self::of(export));
        }
        let directory = tempfile::tempdir().map_err(Failure::io("write a temporary file"))?;
        let path = directory.path().join(export.path.file_name().unwrap_or_default());
        let (reached, _) = write_state(export, until, &path)?;
        warn_of_gap(&reached, operator);
        Ok(Self {
            path,
            at: reached.until,
            temporary: Some(directory),
        })
    }
}

/// The number of earlier exports whose changes are searched. If there were several recorders, the changes after an
/// older export can reach further.
const RECORDERS: usize = 3;
/// The longest time between two writes of a recorder, which writes once a minute even without changes. A longer pause
/// counts as a gap.
const QUIET: SignedDuration = SignedDuration::from_secs(120);

/// Returns the state of an archive at a time: the last export before that time, with the changes recorded until then.
///
/// # Errors
/// If there is no earlier export.
pub fn state_at(folder: &Path, time: Timestamp, operator: &dyn Operator) -> Result<ArchivedState> {
    state_in(&open(folder, operator)?, folder, time, operator)
}

/// Finds the state in an open archive. Warns if it is older than `time` by more than a pause between two changes.
fn state_in(
    archive: &Archive,
    folder: &Path,
    time: Timestamp,
    operator: &dyn Operator,
) -> Result<ArchivedState> {
    let later = archive
        .exports()
        .partition_point(|export| export.taken_at <= time);

    let mut best: Option<ArchivedState> = None;
    for export in archive.exports()[..later].iter().rev().take(RECORDERS) {
        let state = ArchivedState::write(export, Some(time), operator)?;
        let latest = match best {
            Some(best) if best.at >= state.at => best,
            _ => state,
        };
        let is_close = time.duration_since(latest.at) <= QUIET;
        best = Some(latest);
        if is_close {
            break;
        }
    }
    let Some(state) = best else {
        let folder = folder.display();
        let first = archive.exports().first().map_or(time, |export| export.taken_at);
        let message =
            format!("{folder} has no export from {time:.0} or before; the first one is from {first:.0}");
        return Err(Failure::usage(message)
            .hint("name a later time, or a file: nothing is known from before the first export"));
    };

    let is_recorded = state.temporary.is_some();
    let tolerance = if is_recorded { QUIET } else { SignedDuration::ZERO };
    if time.duration_since(state.at) > tolerance {
        let at = state.at;
        let until = match archive.exports().get(later) {
            Some(next) => format!(" until {:.0}", next.taken_at),
            None => String::new(),
        };
        operator.warn(format!(
            "this is the state of {at:.0}: nothing is known after it{until}"
        ));
    }
    Ok(state)
}

/// Returns the states around a time: the one [at that time](state_at), and the first export after it. Without a later
/// export, the second is the last recorded state, if there is one.
pub fn states_around(
    folder: &Path,
    time: Timestamp,
    operator: &dyn Operator,
) -> Result<(ArchivedState, Option<ArchivedState>)> {
    let archive = open(folder, operator)?;
    let before = state_in(&archive, folder, time, operator)?;
    let exports = archive.exports();
    let next = exports.partition_point(|export| export.taken_at <= time);
    if let Some(next_export) = exports.get(next) {
        return Ok((before, Some(ArchivedState::of(next_export))));
    }

    let mut last_state = None;
    if let Some(last) = exports.last()
        && last.changes().exists()
    {
        let until = None;
        last_state = Some(ArchivedState::write(last, until, operator)?);
    }
    Ok((before, last_state))
}
