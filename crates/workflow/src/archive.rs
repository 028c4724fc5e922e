//! Archives of exports: adding to one, and reading what happened from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use calipam_check::views::handle_ids;
use calipam_check::{Code, Context, Finding, LastInUse, Options, Report, Subject, names_of_owners};
use calipam_datastore::Datastore;
use calipam_files::archive::{Added, Archive, Archived, Part};
use calipam_history::keep::Keep;
use calipam_history::timeline::{About, ExportReader, Timeline};
use calipam_model::handle::clean_id;
use calipam_model::snapshot::{Snapshot, Source};
use jiff::Timestamp;

use crate::error::Error;
use crate::history::written;
use crate::operator::{Activity, Note, Operator, Pending};
use crate::read::{progress, watched};

/// What became of an archive.
pub struct Archiving {
    pub added: Added,
    /// Exports that were removed.
    pub removed: Vec<Archived>,
    /// Exports that are there now.
    pub exports: usize,
}

/// Adds an export to the archive in a folder, and removes what is not to be kept. Ages are counted back from the time of
/// its data, which is the server's where it has one.
///
/// # Errors
/// Where the datastore cannot be read, the folder not be written, or it is of another cluster.
pub fn archive<'a>(
    datastore: &'a Datastore,
    folder: &'a Path,
    keep: Option<&'a Keep>,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Archiving, Error>> {
    Box::pin(async move {
        let added = watched(Activity::Exporting, operator, async |progress| {
            datastore.add_to_archive(folder, progress).await
        })
        .await?;
        if added.export.guid.is_empty() {
            operator.note(Note::ArchiveOfUnknown);
        }

        let (archive, damaged) = Archive::sound(folder)?;
        for error in damaged {
            operator.note(Note::ExportDamaged { reason: error.to_string() });
        }
        let mut removed = Vec::new();
        if let Some(keep) = keep {
            let times: Vec<Timestamp> = archive.exports().iter().map(|export| export.taken_at).collect();
            let goes = keep.superfluous(&times, added.export.taken_at);
            for (export, _) in archive.exports().iter().zip(goes).filter(|(_, goes)| *goes) {
                export.remove()?;
                removed.push(export.clone());
            }
        }
        let exports = archive.exports().len() - removed.len();
        Ok(Archiving { added, removed, exports })
    })
}

/// The history of something by an archive.
pub struct ArchiveHistory {
    pub archive: Archive,
    pub about: About,
    /// The times of the exports that were read, ascending.
    pub times: Vec<Timestamp>,
    pub timeline: Timeline,
}

/// Reads all exports of an archive, one after the other, and merges what runs of calipam on its cluster wrote by the
/// journals of a folder.
pub fn archive_history(
    folder: &Path,
    about: About,
    journals: Option<&Path>,
    operator: &dyn Operator,
) -> Result<ArchiveHistory, Error> {
    let archive = open(folder, operator)?;
    let about = whole_id(&archive, about, operator)?;
    let guid = archive.guid().unwrap_or_default();
    let written = journals.map(|folder| written(folder, guid, None, operator)).unwrap_or_default();
    let handle = match &about {
        About::Handle(id) => Some(id.as_str()),
        About::Address(_) | About::Block(_) | About::Node(_) => None,
    };

    let mut reader = ExportReader::new(&about, &written);
    let mut times = Vec::new();
    each(&archive, Part::Records { handle }, operator, |snapshot| {
        times.push(snapshot.taken_at);
        reader.take_records(snapshot);
    })?;

    let pods = reader.pods();
    if !pods.is_empty() {
        each(&archive, Part::Users(&pods), operator, |snapshot| reader.take_users(&snapshot, &pods))?;
    }

    let timeline = reader.finish();
    Ok(ArchiveHistory { archive, about, times, timeline })
}

/// Gives a part of each export to `take`, in the order of their times.
fn each(
    archive: &Archive,
    part: Part<'_>,
    operator: &dyn Operator,
    mut take: impl FnMut(Snapshot),
) -> Result<(), Error> {
    let meter = operator.start(Activity::Reading);
    let mut read = || -> Result<(), Error> {
        for export in archive.exports() {
            if let Some(snapshot) = export.read(part, &progress(&meter))? {
                take(snapshot);
            }
        }
        Ok(())
    };

    let result = read();
    meter.end();
    result
}

/// Of a handle whose beginning is named, the whole ID, where one handle in any export begins so.
fn whole_id(archive: &Archive, about: About, operator: &dyn Operator) -> Result<About, Error> {
    let About::Handle(begin) = about else { return Ok(about) };
    let mut ids = BTreeSet::new();
    each(archive, Part::Records { handle: None }, operator, |snapshot| {
        ids.extend(handle_ids(&snapshot, &begin));
    })?;
    if ids.contains(clean_id(&begin)) {
        return Ok(About::Handle(begin));
    }
    Ok(About::Handle(Error::only_handle(&begin, ids)?.unwrap_or(begin)))
}

/// The exports around a time: the last one of that time or before it, and the first one after it.
///
/// # Errors
/// Where there is no export before it.
pub fn exports_around(
    folder: &Path,
    time: Timestamp,
    operator: &dyn Operator,
) -> Result<(Archived, Option<Archived>), Error> {
    let archive = open(folder, operator)?;
    let later = archive.exports().partition_point(|export| export.taken_at <= time);
    let first = archive.exports().first().map(|export| export.taken_at);
    let before = later.checked_sub(1).and_then(|place| archive.exports().get(place)).cloned();
    let before = before.ok_or_else(|| Error::BeforeArchive {
        folder: folder.to_owned(),
        time,
        first: first.unwrap_or(time),
    })?;

    Ok((before, archive.exports().get(later).cloned()))
}

/// An archive that holds something.
fn open(folder: &Path, operator: &dyn Operator) -> Result<Archive, Error> {
    let archive = Archive::open(folder)?;
    if archive.exports().is_empty() {
        return Err(Error::EmptyArchive(folder.to_owned()));
    }
    for pair in archive.set_back() {
        operator.note(Note::ArchiveSetBack { times: pair.map(|export| export.taken_at) });
    }
    Ok(archive)
}

/// Says of leaked addresses when they were last seen in use. Exports that do not tell who uses addresses are passed over.
pub fn note_last_use(folder: &Path, report: &mut Report, operator: &dyn Operator) -> Result<(), Error> {
    let archive = open(folder, operator)?;
    let guids = [archive.guid().unwrap_or_default().to_owned(), report.cluster.guid.clone()];
    if guids[0] != guids[1] {
        return Err(Error::ArchiveOfAnother { guids });
    }

    let leaked = |finding: &&mut Finding| finding.code == Code::LeakedAddress;
    let mut waiting: BTreeMap<IpAddr, &mut Finding> = BTreeMap::new();
    for finding in report.findings.iter_mut().filter(leaked) {
        if let Subject::Address(address) = finding.subject {
            waiting.insert(address, finding);
        }
    }

    let mut not_at = report.cluster.taken_at;
    let meter = operator.start(Activity::Reading);
    for export in archive.exports().iter().rev().filter(|export| export.taken_at < report.cluster.taken_at) {
        if waiting.is_empty() {
            break;
        }
        let Some(snapshot) = export.read(Part::Whole, &progress(&meter))? else { continue };
        if !snapshot.has_read(Source::Endpoints) && !snapshot.has_read(Source::Pods) {
            continue;
        }
        let context = Context::new(&snapshot, &Options::default());
        waiting.retain(|address, finding| {
            let Some(by) = user_of(&context, *address) else { return true };
            finding.note_last_use(LastInUse { at: export.taken_at, by, not_at });
            false
        });
        // What cannot be decoded may be the user.
        if context.index.broken_workloads.is_empty() {
            not_at = export.taken_at;
        }
    }

    meter.end();
    Ok(())
}

/// Who used an address: owners, or pods that name it by evidence that does not decide. What is named is never leaked.
fn user_of(context: &Context<'_>, address: IpAddr) -> Option<String> {
    let owners = context.owners_of(address);
    if !owners.is_empty() {
        return Some(names_of_owners(&owners));
    }
    let pods = context.snapshot.pods.iter().map(|pod| &pod.value);
    let mut naming = pods.filter(|pod| pod.evidence().iter().any(|(own, _)| *own == address));
    let named = naming.next().map(|pod| format!("{}/{}", pod.namespace(), pod.name()));
    context.index.is_mentioned(address).then(|| named.unwrap_or_else(|| "what names it".to_owned()))
}
