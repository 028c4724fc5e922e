//! `undo --list` and `undo --last`: the journals in the user's folder.

use std::path::{Path, PathBuf};

use calipam_repair::journal::{JournalState, Listed, list, unreadable};
use serde::Serialize;

use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::hints;
use crate::render::column::{left, right};
use crate::render::document::Document;
use crate::render::output::Text;
use crate::render::text::{quoted, thousands};

/// The number of GUID characters that tables show.
const GUID_SHOWN: usize = 8;

/// Prints the journals, newest first.
pub(super) fn run_list(folder: &Path, console: &Console) -> Result<Outcome> {
    console.print(&JournalList::new(folder, &read(folder)?))?;
    name_unreadable(folder, console)?;
    Ok(Outcome::Clean)
}

/// Returns the journal of the newest run that `undo --last` can undo; with `guid`, of the newest such run on that
/// cluster.
pub(super) fn last(folder: &Path, guid: Option<&str>, console: &Console) -> Result<PathBuf> {
    name_unreadable(folder, console)?;
    let mut journals = read(folder)?.into_iter().filter(Listed::can_be_last);
    let found = journals.find(|journal| guid.is_none_or(|guid| journal.header.cluster == guid));
    found.map(|journal| journal.path).ok_or_else(|| {
        let of = guid.map(|guid| format!(" of cluster {guid}")).unwrap_or_default();
        Failure::refused(format!("there is no run{of} to undo in {}", folder.display()))
            .hint(format!("{} lists all of them", hints::command_elsewhere(&["undo", "--list"])))
    })
}

/// Warns of files in the folder that are not readable journals, since a run could have written them.
fn name_unreadable(folder: &Path, console: &Console) -> Result<()> {
    for path in unreadable(folder)? {
        console.warn(&format!("{} is not a readable journal: skipped", quoted(&path)));
    }
    Ok(())
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
    datastore: &'a str,
    location: &'a str,
    objects: usize,
    state: JournalState,
    undone: bool,
}

impl<'a> JournalList<'a> {
    fn new(folder: &Path, journals: &'a [Listed]) -> Self {
        let row = |listed: &'a Listed| JournalRow {
            journal: listed.path.display().to_string(),
            started_at: &listed.header.started_at,
            command: &listed.header.command,
            cluster: &listed.header.cluster,
            datastore: &listed.header.datastore,
            location: &listed.header.location,
            objects: listed.objects,
            state: listed.state,
            undone: listed.undone,
        };
        Self { folder: folder.display().to_string(), journals: journals.iter().map(row).collect() }
    }
}

impl Document for JournalList<'_> {
    const KIND: &'static str = "JournalList";

    fn text(&self, text: &mut Text) {
        if self.journals.is_empty() {
            return text.line(format!("No journals in {}", quoted(Path::new(&self.folder))));
        }
        let begun = |at: &str| at.get(..19).unwrap_or(at).replace('T', " ");
        let columns = vec![
            left("STARTED", |journal: &JournalRow<'_>| begun(journal.started_at)),
            left("CLUSTER", |journal: &JournalRow<'_>| match journal.cluster {
                "" => "-".to_owned(),
                guid => guid.chars().take(GUID_SHOWN).collect(),
            }),
            right("OBJECTS", |journal: &JournalRow<'_>| thousands(journal.objects)),
            left("STATE", state),
            left("COMMAND", |journal: &JournalRow<'_>| journal.command),
            left("LOCATION", |journal: &JournalRow<'_>| journal.location).wide(),
            left("JOURNAL", |journal: &JournalRow<'_>| quoted(Path::new(&journal.journal))),
        ];
        text.table(&self.journals, columns);
    }
}

fn state(journal: &JournalRow<'_>) -> &'static str {
    match journal.state {
        JournalState::Running => "running",
        JournalState::Damaged => "damaged",
        JournalState::LockLeft => "left a lock",
        _ if journal.undone => "undone",
        JournalState::Interrupted => "interrupted",
        JournalState::Ended => "ended",
    }
}
