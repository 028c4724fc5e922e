//! Exports and archives: adding exports to an archive, and reading an object's history from it.

mod states;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::Path;

use calipam_check::views::handle_ids;
use calipam_check::{
    Code, Context, Finding, LastInUse, Options, Report, Subject, names_of_mentions, names_of_owners,
};
use calipam_files::archive::{Added, Archive, Archived, Part};
use calipam_files::of_entry;
use calipam_files::recording::{Known, Reached, StateUpdate, States, Version, each_version};
use calipam_history::keep::Keep;
use calipam_history::timeline::{ExportReader, HistorySubject, RECORDS, USERS};
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use calipam_model::words::quoted;
use jiff::Timestamp;

pub use self::states::{ArchivedState, state_at, states_around};
use crate::failure::{Failure, Kind, Result};
use crate::history::{History, Reach, Span, about, journaled_writes};
use crate::object::{KnownNames, Object, whole_id};
use crate::operator::{Access, Activity, Operator};
use crate::read::{progress, watched};
use crate::scope::known_nodes;

/// Writes to a file all objects that a check reads, and returns their number.
pub async fn export(access: Access<'_>, path: &Path) -> Result<u64> {
    watched(access, Activity::Exporting, async move |datastore, progress| {
        datastore.export(path, progress).await
    })
    .await
}

/// The result of adding an export to an archive.
pub struct Archiving {
    pub added: Added,
    /// The older exports that were removed.
    pub removed: Vec<Archived>,
    /// The number of exports in the archive now.
    pub exports: usize,
}

/// Adds an export to the archive in a folder, and removes the exports that `keep` does not retain. Ages are relative to
/// the time of the new export, which comes from the server if it reports one.
///
/// # Errors
/// If the datastore cannot be read, the folder cannot be written, or the archive is of another cluster.
pub async fn archive(access: Access<'_>, folder: &Path, keep: Option<&Keep>) -> Result<Archiving> {
    let added = watched(access, Activity::Exporting, async |datastore, progress| {
        datastore.add_to_archive(folder, progress).await
    })
    .await?;
    if added.export.guid.is_empty() {
        warn_of_unknown(access.operator);
    }

    let (archive, damaged) = Archive::open_with_damage(folder)?;
    for error in damaged {
        access.operator.warn(format!(
            "{error}: this export in the archive is damaged, and is left unchanged"
        ));
    }

    let removed = match keep {
        Some(keep) => thin_out(&archive, keep, added.export.taken_at)?,
        None => Vec::new(),
    };
    let exports = archive.exports().len() - removed.len();

    if let Some(later) = added.later {
        access.operator.warn(format!(
            "the archive has an export from {later}, later than this one from {}: a clock was set back",
            added.export.taken_at
        ));
    }
    Ok(Archiving {
        added,
        removed,
        exports,
    })
}

/// Warns that the cluster has no GUID, so it cannot be checked whether the next export is from the same cluster.
pub(crate) fn warn_of_unknown(operator: &dyn Operator) {
    operator.warn(
        "the cluster has no GUID: it cannot be checked whether all exports of this archive are from the same cluster"
            .into(),
    );
}

/// Removes the exports that `keep` does not retain, together with the changes that were recorded after them.
pub(crate) fn thin_out(archive: &Archive, keep: &Keep, now: Timestamp) -> Result<Vec<Archived>> {
    let times: Vec<Timestamp> = archive.exports().iter().map(|export| export.taken_at).collect();
    let mut removed = Vec::new();
    for (export, is_to_remove) in archive.exports().iter().zip(keep.to_remove(&times, now)) {
        if is_to_remove {
            export.remove()?;
            removed.push(export.clone());
        }
    }
    Ok(removed)
}

/// Reads the history of an object from all exports of an archive, one by one. The history includes calipam's writes to
/// the archive's cluster, from the journals in a folder.
pub fn archive_history(
    folder: &Path,
    object: Object,
    journals: Option<&Path>,
    operator: &dyn Operator,
) -> Result<History> {
    let archive = open(folder, operator)?;
    let about = subject(&archive, object, operator)?;
    let guid = archive.guid().unwrap_or_default().to_owned();
    let writes = match journals {
        Some(folder) => {
            let any_datastore = None;
            journaled_writes(folder, &guid, any_datastore, operator)
        }
        None => Vec::new(),
    };
    let handle = match &about {
        HistorySubject::Handle(id) => Some(id.as_str()),
        HistorySubject::Address(_)
        | HistorySubject::Block(_)
        | HistorySubject::Node(_)
        | HistorySubject::Pod(_) => None,
    };

    let mut reader = ExportReader::new(&about, &writes);
    let part = Part::Records { handle };
    let is_recorded = archive.exports().iter().any(|export| export.changes().exists());
    let mut span = ReadSpan::default();
    if is_recorded {
        let keys = keys_about(&archive, part, &about)?;
        let is_wanted = |key: &[u8]| keys.contains(key);
        span = read_states(&archive, &is_wanted, Some(operator), |update| {
            take_update(&mut reader, update, RECORDS);
        })?;
    } else {
        read_exports(&archive, part, operator, |snapshot| {
            span.exports.push(snapshot.taken_at);
            reader.take(snapshot, RECORDS);
        })?;
    }

    // The records name the pods, which are read in a second pass.
    let pods = reader.pods();
    if !pods.is_empty() {
        let users = Part::Users(&pods);
        if is_recorded {
            let is_wanted = |key: &[u8]| users.holds(key);
            // The first pass has warned of damaged recordings.
            let quiet = None;
            read_states(&archive, &is_wanted, quiet, |update| {
                take_update(&mut reader, update, USERS);
            })?;
        } else {
            read_exports(&archive, users, operator, |snapshot| reader.take(snapshot, USERS))?;
        }
    }

    let events = reader.finish();
    Ok(History {
        guid,
        location: folder.display().to_string(),
        about,
        reach: Reach::Archive {
            exports: span.exports,
            recorded: span.recorded,
        },
        events,
    })
}

/// Passes an update from a recording to the reader of a history.
fn take_update(reader: &mut ExportReader<'_>, update: StateUpdate, sources: &[Source]) {
    match update {
        StateUpdate::Unchanged(until) => reader.mark_valid_until(until),
        StateUpdate::State(snapshot) => reader.take(*snapshot, sources),
    }
}

/// Returns the keys of objects in a part of the archive that concern the subject of a history in at least one version.
fn keys_about(archive: &Archive, part: Part<'_>, about: &HistorySubject) -> Result<HashSet<Vec<u8>>> {
    let mut keys = HashSet::new();
    let mut known = Known::default();
    let is_in_part = |key: &[u8]| part.holds(key);
    for export in archive.exports() {
        each_version(export, &mut known, &is_in_part, |version| {
            let Version::Of(entry, _) = version else { return };
            if !keys.contains(entry.key) && about.is_in(of_entry(entry)) {
                keys.insert(entry.key.to_vec());
            }
        })?;
    }
    Ok(keys)
}

/// Warns if a recording is damaged: the changes from the damage to the next export are unknown.
fn warn_of_gap(reached: &Reached, operator: &dyn Operator) {
    if let Some(damage) = &reached.damage {
        operator.warn(format!(
            "{damage}: nothing is known between {} and the next export",
            reached.until
        ));
    }
}

/// Warns if a recording is damaged, or the recorder's clock was set back.
pub(crate) fn note_damage(export: &Archived, reached: &Reached, operator: &dyn Operator) {
    if reached.set_back > CLOCK_SKEW {
        let path = export.changes();
        let by = reached.set_back;
        operator.warn(format!(
            "the clock was set back by {by:#} while {} was recorded: until it caught up, changes have the last time \
             before the setback",
            quoted(&path)
        ));
    }
    warn_of_gap(reached, operator);
}

/// The exports that were read, and how far the recordings reach.
#[derive(Default)]
struct ReadSpan {
    /// The times of the exports.
    exports: Vec<Timestamp>,
    /// The periods in which every change is known.
    recorded: Vec<Span>,
}

impl ReadSpan {
    /// Adds the period of a recording, or extends the last period if the recording continues it.
    fn add_recording(&mut self, reached: &Reached) {
        if reached.continues
            && let Some(last) = self.recorded.last_mut()
        {
            last.until = reached.until;
            return;
        }
        self.recorded.push(Span {
            from: reached.from,
            until: reached.until,
        });
    }
}

/// Passes the states of the objects that `is_wanted` accepts to `take`: one for each export and each recorded change.
/// With two recorders, the states of the later recorder begin where those of the earlier one end. Warns the operator, if
/// there is one, of damaged recordings.
fn read_states(
    archive: &Archive,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    operator: Option<&dyn Operator>,
    mut take: impl FnMut(StateUpdate),
) -> Result<ReadSpan> {
    let mut span = ReadSpan::default();
    let mut states = States::default();
    for export in archive.exports() {
        let Some(reached) = states.pass_states(export, is_wanted, &mut take)? else {
            continue;
        };
        span.exports.push(export.taken_at);
        if let Some(operator) = operator {
            note_damage(export, &reached, operator);
        }

        if reached.is_recorded {
            span.add_recording(&reached);
        }
    }
    Ok(span)
}

/// Passes a part of each export to `take`, beginning with the oldest export.
fn read_exports(
    archive: &Archive,
    part: Part<'_>,
    operator: &dyn Operator,
    mut take: impl FnMut(Snapshot),
) -> Result<()> {
    let meter = operator.start(Activity::Reading);
    let mut read_all = || -> Result<()> {
        for export in archive.exports() {
            if let Some(snapshot) = export.read(part, &progress(&meter))? {
                take(snapshot);
            }
        }
        Ok(())
    };

    // The meter ends even after an error.
    let result = read_all();
    meter.end();
    result
}

/// Returns the subject of a history. An object that is given by a name or by the beginning of a handle's ID is looked
/// up in all exports.
fn subject(archive: &Archive, object: Object, operator: &dyn Operator) -> Result<HistorySubject> {
    let (Object::Handle(begin) | Object::Text(begin)) = &object else {
        return about(object);
    };
    if let network_or_pod @ (Object::Network(_) | Object::Pod(_)) = object.clone().by_form() {
        return about(network_or_pod);
    }

    let mut known_names = KnownNames::default();
    let part = Part::Records { handle: None };
    read_exports(archive, part, operator, |snapshot| {
        known_names.nodes.append(&mut known_nodes(&[&snapshot]));
        known_names.handles.append(&mut handle_ids(&snapshot, begin));
    })?;
    match object {
        Object::Handle(begin) => {
            let id = whole_id(&begin, known_names.handles)?;
            Ok(HistorySubject::Handle(id))
        }
        Object::Text(name) => about(known_names.find_past(&name)?),
        other => about(other),
    }
}

/// Opens an archive, which must not be empty.
pub(crate) fn open(folder: &Path, operator: &dyn Operator) -> Result<Archive> {
    if let Some(archive) = open_unless_empty(folder, operator)? {
        return Ok(archive);
    }
    let message = format!("{} holds no export", folder.display());
    let add_export = Call::to(["export", "--archive", &folder.to_string_lossy()]);
    Err(Failure::new(Kind::Failed, message).hint(Hint::new("{} adds one", [add_export])))
}

/// Opens an archive; `None` if it has no exports. Warns of exports that are out of order.
pub(crate) fn open_unless_empty(folder: &Path, operator: &dyn Operator) -> Result<Option<Archive>> {
    let (archive, damaged) = Archive::open_with_damage(folder)?;
    for error in damaged {
        // A damaged export had data, without which the result would be wrong. Anything else never was an export.
        if !error.is_irregular_file() || archive.exports().is_empty() {
            return Err(error.into());
        }
        operator.warn(format!("{error}, and is left out"));
    }
    if archive.exports().is_empty() {
        return Ok(None);
    }
    for [first, second] in archive.pairs_with_falling_revisions() {
        let first = first.taken_at;
        let second = second.taken_at;
        operator.warn(format!(
            "the export from {second:.0} has older data than the one from {first:.0}: a clock was set back, or the datastore \
             was restored; events between them can be out of order"
        ));
    }
    Ok(Some(archive))
}

/// Adds the time of the last use to findings of leaked addresses. Skips exports that contain neither endpoints nor
/// pods.
///
/// # Errors
/// If the archive is empty, cannot be read, or is of another cluster.
pub fn note_last_use(folder: &Path, report: &mut Report, operator: &dyn Operator) -> Result<()> {
    let archive = open(folder, operator)?;
    let archived = archive.guid().unwrap_or_default();
    let checked = report.cluster.guid.as_str();
    if archived != checked {
        let message =
            format!("the archive is from cluster {archived:?}, but the checked data is from {checked:?}");
        return Err(Failure::usage(message).hint("name this cluster's archive"));
    }

    let checked_at = report.cluster.taken_at;
    let mut leaked: BTreeMap<IpAddr, &mut Finding> = BTreeMap::new();
    for finding in &mut report.findings {
        if finding.code == Code::LeakedAddress
            && let Subject::Address(address) = finding.subject
        {
            leaked.insert(address, finding);
        }
    }

    // Exports are read from the newest to the oldest, until each leaked address was seen in use. `unused_at` is the time
    // of the last read data, in which no address that is still in `leaked` has a user.
    let mut unused_at = checked_at;
    let meter = operator.start(Activity::Reading);
    for export in archive.exports().iter().rev() {
        if leaked.is_empty() {
            break;
        }
        if export.taken_at >= checked_at {
            continue;
        }
        let read = export.read(Part::Whole, &progress(&meter));
        let Some(snapshot) = read.inspect_err(|_| meter.end())? else {
            continue;
        };
        let shows_users = snapshot.has_read(Source::Endpoints) || snapshot.has_read(Source::Pods);
        if !shows_users {
            continue;
        }

        let context = Context::new(&snapshot, &Options::default());
        let mut used = Vec::new();
        for (address, finding) in &mut leaked {
            if let Some(user) = user_of(&context, *address) {
                finding.note_last_use(LastInUse {
                    at: export.taken_at,
                    by: user,
                    not_at: unused_at,
                });
                used.push(*address);
            }
        }
        for address in used {
            leaked.remove(&address);
        }

        // An object that cannot be decoded may use the address.
        if context.index.broken_workloads.is_empty() {
            unused_at = export.taken_at;
        }
    }

    meter.end();
    Ok(())
}

/// Returns the user of an address: its owner, or an object that mentions the address and may own it.
fn user_of(context: &Context<'_>, address: IpAddr) -> Option<String> {
    let owners = context.owners_of(address);
    if !owners.is_empty() {
        return Some(names_of_owners(&owners));
    }
    if context.index.is_mentioned(address) {
        Some(names_of_mentions(&context.index.mentions(address)))
    } else {
        None
    }
}
