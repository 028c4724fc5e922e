//! Rates of a cluster, from its archive or from the history that its etcd still has.

use std::path::Path;

use calipam_datastore::Datastore;
use calipam_datastore::read::PastSubject;
use calipam_files::archive::{Archived, Part};
use calipam_files::of_entry;
use calipam_files::raw::RawEntry;
use calipam_files::recording::{Change, Known, Reached, Version, each_version};
use calipam_history::past::{Follows, Past, PastReader};
use calipam_history::rates::Rates;
use calipam_history::trend::{KEPT, Trends};
use calipam_model::IpNet;
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::archive::{note_damage, open, open_unless_empty};
use crate::failure::{Failure, Result};
use crate::operator::Operator;

/// Returns the rate at which pods got addresses, and how long they kept them, from the exports and changes of an
/// archive.
///
/// # Errors
/// If the archive cannot be read, or contains only one state.
pub fn rates(folder: &Path, operator: &dyn Operator) -> Result<Rates> {
    let archive = open(folder, operator)?;
    let rates = read(archive.exports(), Rates::default(), operator)?;
    require_changes(rates, folder)
}

/// Like [`rates()`], but from the latest block versions in etcd. etcd does not store when it wrote a version, so a
/// version counts as written at the time of the newest allocation in it or in an earlier version.
///
/// # Errors
/// If the datastore is not etcd v3, or has no history.
pub async fn rates_of_etcd(datastore: &Datastore) -> Result<Rates> {
    let past = datastore.past(&PastSubject::Blocks).await?;
    let mut reader = PastReader::new(Rates::default());

    // The time of the newest allocation in the versions so far.
    let mut newest: Option<Timestamp> = None;
    for entry in &past.base {
        let block = of_entry(&entry.as_entry());
        newest = newest.max(newest_allocation(&block));
        reader.add(&entry.key, &block);
    }

    let newest_at_begin = newest;
    let mut has_begun = false;
    for change in &past.changes {
        let block = block_after(change);
        newest = newest.max(block.as_ref().and_then(newest_allocation));
        let Some(allocated_at) = newest else { continue };
        // The clock of a node can be ahead of the time at which etcd was read.
        let changed_at = allocated_at.min(past.read_at);
        if !has_begun {
            let begin = newest_at_begin.unwrap_or(changed_at).min(changed_at);
            reader.begin(begin, Follows::Nothing);
            has_begun = true;
        }
        reader.change(changed_at, &change.key, block.as_ref());
    }
    reader.reach(past.read_at);
    require_changes(reader.finish(), Path::new(&past.location))
}

/// Returns the block that a change has written, alone in a snapshot; `None` if the change has deleted the block.
fn block_after(change: &Change) -> Option<Snapshot> {
    let value = change.value.as_deref()?;
    Some(of_entry(&RawEntry {
        key: &change.key,
        value,
        ..RawEntry::default()
    }))
}

/// Returns the rates; fails if they cover no time.
fn require_changes(rates: Rates, location: &Path) -> Result<Rates> {
    if !rates.observed.is_zero() {
        return Ok(rates);
    }
    let message = format!(
        "{} gives no rates: it has one state, but no changes after it",
        location.display()
    );
    let record = Call::to(["record", &location.to_string_lossy()]);
    Err(Failure::usage(message).hint(Hint::new("{} records every change", [record])))
}

/// Returns the time of the last assignment that a block, alone in a snapshot, records.
fn newest_allocation(snapshot: &Snapshot) -> Option<Timestamp> {
    let mut newest = None;
    for stored in &snapshot.blocks {
        let Some(block) = stored.value.content.usable() else {
            continue;
        };
        for record in block.attributes() {
            newest = newest.max(record.allocated_at());
        }
    }
    newest
}

/// Returns the trends of these pools until `now`, from a recording; `None` if the recording is empty.
///
/// # Errors
/// If the recording cannot be read.
pub fn trends(
    folder: &Path,
    pools: impl Iterator<Item = IpNet>,
    now: Timestamp,
    operator: &dyn Operator,
) -> Result<Option<Trends>> {
    let Some(archive) = open_unless_empty(folder, operator)? else {
        return Ok(None);
    };
    let exports = archive.exports();
    let is_old = |export: &Archived| now.duration_since(export.taken_at) >= KEPT;
    // The changes after the last old export reach into the time that is kept.
    let first = exports.iter().rposition(is_old).unwrap_or_default();
    let trends = read(&exports[first..], Trends::of_pools(pools), operator)?;
    Ok(Some(trends))
}

/// Reads exports and the changes between them.
fn read<P: Past>(exports: &[Archived], past: P, operator: &dyn Operator) -> Result<P> {
    let part = Part::Records { handle: None };
    let mut reader = PastReader::new(past);
    let is_in_part = |key: &[u8]| part.holds(key);
    let mut last: Option<Reached> = None;
    let mut known = Known::default();
    for export in exports {
        let pass_on = |version: Version<'_>| match version {
            Version::Of(entry, None) => reader.add(entry.key, &of_entry(entry)),
            Version::Of(entry, Some(time)) => reader.change(time, entry.key, Some(&of_entry(entry))),
            Version::Deleted(key, time) => reader.change(time, key, None),
            Version::Exported(reached) => reader.begin(reached.from, relation(last.as_ref(), reached)),
        };
        let Some(reached) = each_version(export, &mut known, &is_in_part, pass_on)? else {
            continue;
        };
        reader.reach(reached.until);
        note_damage(export, &reached, operator);
        last = Some(reached);
    }
    Ok(reader.finish())
}

/// Returns how the period of an export, `next`, follows the period of the export before it: with all changes in between
/// recorded, with two exports to compare, or with nothing known about the time in between.
fn relation(last: Option<&Reached>, next: &Reached) -> Follows {
    let Some(last) = last else {
        return Follows::Nothing;
    };
    let has_gap = last.until < next.from;
    if has_gap && !last.is_recorded {
        // Nothing was recorded after the last export, so only the states of both exports are known.
        return Follows::Export;
    }
    if next.continues {
        Follows::Changes
    } else {
        Follows::Nothing
    }
}
