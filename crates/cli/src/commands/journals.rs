//! The journals in the user's folder: `undo --list`, `undo --last`, and runs that did not finish.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use calipam_model::snapshot::DatastoreKind;
use calipam_repair::journal::{JournalState, Listed, list, unreadable};
use calipam_workflow::Unfinished;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::journals_folder;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::hints;
use crate::render::column::{left, right};
use crate::render::document::{Document, is_zero};
use crate::render::output::Text;
use crate::render::text::{date_and_time, quoted};

/// The number of GUID characters that tables show.
const GUID_SHOWN: usize = 8;

/// Prints the journals, newest first.
pub(super) fn run_list(folder: &Path, console: &Console) -> Result<Outcome> {
    console.print(&JournalList::new(folder, &read(folder)?))?;
    name_unreadable(folder, console)?;
    Ok(Outcome::Clean)
}

/// Returns the journal of the newest run that was not undone and is no undo; with `guid`, of the newest such run on
/// that cluster. Names the runs that it passes over because there is nothing to undo.
///
/// # Errors
/// If there is no such run, or a newer file cannot be read: it may be the journal of a newer run.
pub(super) fn newest_to_undo(folder: &Path, guid: Option<&str>, console: &Console) -> Result<PathBuf> {
    let unreadable = name_unreadable(folder, console)?;
    let mut journals = read(folder)?;
    if let Some(guid) = guid {
        journals.retain(|journal| journal.header.cluster == guid);
    }
    // The journals are sorted, the newest first.
    for journal in journals {
        if !journal.is_settled() && !journal.changed_nothing() {
            require_newest(&journal, &unreadable)?;
            return Ok(journal.path);
        }
        if let Some(reason) = reason_to_pass_over(&journal) {
            console.info(&format!(
                "passing over `{}` of {}, which {reason} (journal {})",
                journal.header.command,
                journal.header.started_at,
                quoted(&journal.path)
            ));
        }
    }
    Err(nothing_to_undo(folder, guid))
}

/// Creates the failure if no run in the folder can be undone; with `guid`, no run on that cluster.
fn nothing_to_undo(folder: &Path, guid: Option<&str>) -> Failure {
    let cluster = match guid {
        Some(guid) => format!(" of cluster {guid}"),
        None => String::new(),
    };
    let failure = Failure::refused(format!(
        "there is no run{cluster} to undo in {}",
        folder.display()
    ));
    failure.hint(format!(
        "{} lists all of them",
        hints::command_elsewhere(&["undo", "--list"])
    ))
}

/// Returns the reason why there is nothing to undo, if a user may not expect it: not for a run that was undone, or an
/// undo.
fn reason_to_pass_over(journal: &Listed) -> Option<&'static str> {
    if journal.state == JournalState::LockLeft {
        return Some("left the datastore locked");
    }
    let changed_nothing = journal.changed_nothing();
    let has_ended = journal.state == JournalState::Ended;
    let is_expected = has_ended && (!changed_nothing || journal.is_settled());
    if is_expected || journal.undone {
        return None;
    }
    Some(if changed_nothing {
        "changed nothing"
    } else {
        "is an undo and did not finish"
    })
}

/// Finds the runs on checked clusters that did not finish, by GUID. Finds none if no person reads the output.
pub(super) fn unfinished_runs(guids: &BTreeSet<&str>, console: &Console) -> BTreeMap<String, Unfinished> {
    if !console.format.is_for_people() {
        return BTreeMap::new();
    }
    let folders: Vec<PathBuf> = journals_folder().into_iter().collect();
    Unfinished::of_clusters(&folders, guids)
}

/// Names a run on a checked cluster that did not finish: findings about objects that it left half-done look like
/// interrupted operations of Calico.
pub(super) fn note_unfinished(unfinished: &Unfinished, console: &Console) {
    console.note(&format!(
        "{unfinished}; findings about what it wrote can be its leftovers, and not those of Calico"
    ));
    console.hint(&hints::text(&unfinished.hint()));
}

/// Refuses a run if one of the unreadable files was written after it began: that file may be the journal of a newer
/// run.
fn require_newest(journal: &Listed, unreadable: &[PathBuf]) -> Result<()> {
    let is_newer = |path: &&PathBuf| {
        let began = journal.header.started_at.parse::<Timestamp>();
        // Without both times, it may be newer.
        match (last_change(path), began) {
            (Some(changed), Ok(began)) => changed >= began,
            (None, _) | (_, Err(_)) => true,
        }
    };
    let Some(newer) = unreadable.iter().find(is_newer) else {
        return Ok(());
    };
    let message = format!(
        "{} is newer than the newest run whose journal can be read",
        quoted(newer)
    );
    let undo = hints::command_elsewhere(&["undo", &quoted(&journal.path)]);
    Err(Failure::refused(message).hint(format!(
        "it may be the damaged journal of the last run; {undo} undoes `{}` of {}",
        journal.header.command, journal.header.started_at
    )))
}

/// Returns the time at which a file was last changed; `None` if the system does not tell it.
fn last_change(path: &Path) -> Option<Timestamp> {
    let time = std::fs::metadata(path).ok()?.modified().ok()?;
    Timestamp::try_from(time).ok()
}

/// Warns of files in the folder that are not readable journals, since a run could have written them. Returns them.
fn name_unreadable(folder: &Path, console: &Console) -> Result<Vec<PathBuf>> {
    let paths = unreadable(folder)?;
    for path in &paths {
        console.warn(&format!("{} is not a readable journal: skipped", quoted(path)));
    }
    Ok(paths)
}

fn read(folder: &Path) -> Result<Vec<Listed>> {
    Ok(list(folder)?)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JournalList<'a> {
    folder: String,
    journals: Vec<JournalRow<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JournalRow<'a> {
    journal: String,
    started_at: &'a str,
    command: &'a str,
    cluster: &'a str,
    datastore: DatastoreKind,
    location: &'a str,
    objects: usize,
    #[serde(skip_serializing_if = "is_zero")]
    unanswered_objects: usize,
    #[serde(skip)]
    objects_in_words: String,
    state: JournalState,
    undone: bool,
}

impl<'a> JournalList<'a> {
    /// Creates the document that lists the journals of a folder.
    fn new(folder: &Path, journals: &'a [Listed]) -> Self {
        let row = |listed: &'a Listed| JournalRow {
            journal: listed.path.display().to_string(),
            started_at: &listed.header.started_at,
            command: &listed.header.command,
            cluster: &listed.header.cluster,
            datastore: listed.header.datastore,
            location: &listed.header.location,
            objects: listed.objects,
            unanswered_objects: listed.unanswered,
            objects_in_words: listed.objects_in_words(),
            state: listed.state,
            undone: listed.undone,
        };
        Self {
            folder: folder.display().to_string(),
            journals: journals.iter().map(row).collect(),
        }
    }
}

impl Document for JournalList<'_> {
    const KIND: &'static str = "JournalList";

    /// Writes a table of the journals.
    fn text(&self, out: &mut Text) {
        if self.journals.is_empty() {
            return out.line(format!("No journals in {}", quoted(Path::new(&self.folder))));
        }
        let columns = vec![
            left("STARTED", |journal: &JournalRow<'_>| {
                date_and_time(journal.started_at)
            }),
            left("CLUSTER", |journal: &JournalRow<'_>| match journal.cluster {
                "" => "-".to_owned(),
                guid => guid.chars().take(GUID_SHOWN).collect(),
            }),
            right("OBJECTS", |journal: &JournalRow<'_>| &journal.objects_in_words),
            left("STATE", state),
            left("COMMAND", |journal: &JournalRow<'_>| journal.command),
            left("LOCATION", |journal: &JournalRow<'_>| journal.location).wide(),
            left("JOURNAL", |journal: &JournalRow<'_>| {
                quoted(Path::new(&journal.journal))
            }),
        ];
        out.table(&self.journals, columns);
    }
}

/// Returns the state of a run in one or two words.
fn state(journal: &JournalRow<'_>) -> &'static str {
    match journal.state {
        JournalState::Running => "running",
        JournalState::Damaged => "damaged",
        JournalState::LockLeft => "left a lock",
        JournalState::Interrupted | JournalState::Ended if journal.undone => "undone",
        JournalState::Interrupted => "interrupted",
        JournalState::Ended => "ended",
    }
}
