//! `undo --list` and `undo --prune`: the journals in the user's folder.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use calipam_repair::journal::{JournalState, Listed, list, unreadable};
use calipam_workflow::{Error, NoConsent};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::args::UndoArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::hints;
use crate::render::document::{Detail, Document};
use crate::render::table::{Grid, Page};
use crate::render::text::{count, quoted, thousands};

/// So much of a GUID tells clusters apart.
const GUID_SHOWN: usize = 8;

/// Prints the journals, newest first.
pub(super) fn run_list(args: &UndoArgs, folder: &Path, console: &Console) -> Result<Outcome, Failure> {
    let journals = read(folder)?;
    let removed = false;
    console.print(&JournalList::new(folder, &journals, removed))?;
    name_unreadable(folder, console)?;
    hint_old(&journals, args.keep, console);
    Ok(Outcome::Clean)
}

/// Removes the journals that are older than `--keep`, if the operator agrees.
pub(super) fn run_prune(args: &UndoArgs, folder: &Path, console: &Console) -> Result<Outcome, Failure> {
    let now = Timestamp::now();
    let old: Vec<Listed> =
        read(folder)?.into_iter().filter(|journal| journal.is_old(args.keep, now)).collect();
    let document = JournalList::new(folder, &old, !args.dry_run);
    if old.is_empty() || args.dry_run {
        console.print(&document)?;
        return Ok(Outcome::Clean);
    }

    if !args.writing.yes {
        agree(&document, old.len(), console)?;
    }
    for journal in &old {
        journal.remove().map_err(Error::from)?;
    }
    console.print(&document)?;
    console.info(&format!("removed {}", count(old.len(), "journal", "journals")));
    Ok(Outcome::Clean)
}

/// Says that there are old journals; they are never removed by themselves.
pub(super) fn hint_old(journals: &[Listed], keep: SignedDuration, console: &Console) {
    let now = Timestamp::now();
    let old = journals.iter().filter(|journal| journal.is_old(keep, now)).count();
    if old == 0 || console.format.detail().is_none() {
        return;
    }
    let days = keep.as_hours() / 24;
    let prune = hints::command_elsewhere(&["undo", "--prune", "--keep", &format!("{days}d")]);
    let are = if old == 1 { "is" } else { "are" };
    console.hint(&format!(
        "{} {are} older than {days} days; {prune} removes them",
        count(old, "journal", "journals")
    ));
}

/// The newest run that `undo --last` can take; of one cluster where a GUID is given.
pub(super) fn last(folder: &Path, guid: Option<&str>, console: &Console) -> Result<PathBuf, Failure> {
    name_unreadable(folder, console)?;
    let mut journals = read(folder)?.into_iter().filter(Listed::can_be_last);
    let found = journals.find(|journal| guid.is_none_or(|guid| journal.header.cluster == guid));
    found.map(|journal| journal.path).ok_or_else(|| {
        let of = guid.map(|guid| format!(" of cluster {guid}")).unwrap_or_default();
        Failure::NotFound {
            message: format!("there is no run{of} to undo in {}", folder.display()),
            hint: Some(format!("{} lists all of them", hints::command_elsewhere(&["undo", "--list"]))),
        }
    })
}

/// Names what lies among the journals and is none: a run that is not listed may have written it.
fn name_unreadable(folder: &Path, console: &Console) -> Result<(), Failure> {
    for path in unreadable(folder).map_err(Error::from)? {
        console.warn(&format!("{} is not a readable journal: skipped", quoted(&path)));
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Vec<Listed>, Failure> {
    Ok(list(folder).map_err(Error::from)?)
}

/// Shows what is about to be removed, and asks.
fn agree(document: &JournalList<'_>, number: usize, console: &Console) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Error::NoConsent(NoConsent::NoTerminal).into());
    }
    let failed = |error| Failure::from(Error::NoConsent(NoConsent::Failed(error)));
    let page = Page { color: false, ..console.page };
    let mut err = io::stderr().lock();
    document.text(Detail::Short, page, &mut err).map_err(failed)?;
    write!(err, "Remove {}? [y/N] ", count(number, "journal", "journals")).map_err(failed)?;
    err.flush().map_err(failed)?;
    drop(err);

    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::NoConsent(NoConsent::Declined).into()),
    }
}

/// Journals as they are printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JournalList<'a> {
    folder: String,
    journals: Vec<Shown<'a>>,
    /// They are removed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
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
    fn new(folder: &Path, journals: &'a [Listed], removed: bool) -> Self {
        let shown = |listed: &'a Listed| Shown {
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
        Self { folder: folder.display().to_string(), journals: journals.iter().map(shown).collect(), removed }
    }
}

impl Document for JournalList<'_> {
    fn kind(&self) -> &'static str {
        "JournalList"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        if self.journals.is_empty() {
            return writeln!(out, "No journals in {}", quoted(Path::new(&self.folder)));
        }
        let wide = detail == Detail::Full;
        let mut grid = Grid::new(page, detail, "STARTED  CLUSTER  >OBJECTS  STATE  COMMAND");
        if wide {
            grid.columns("LOCATION");
        }
        grid.columns("JOURNAL");
        for journal in &self.journals {
            let begun = journal.started_at.get(..19).unwrap_or(journal.started_at).replace('T', " ");
            let guid: String = journal.cluster.chars().take(GUID_SHOWN).collect();
            let mut row = vec![
                begun,
                if guid.is_empty() { "-".into() } else { guid },
                thousands(journal.objects),
                state(journal).to_owned(),
                journal.command.to_owned(),
            ];
            if wide {
                row.push(journal.location.to_owned());
            }
            row.push(quoted(Path::new(&journal.journal)));
            grid.row(row);
        }
        grid.write(out)
    }

    fn schema(&self) -> impl Serialize {
        self
    }
}

fn state(journal: &Shown<'_>) -> &'static str {
    match journal.state {
        JournalState::Running => "running",
        JournalState::Damaged => "damaged",
        JournalState::LockLeft => "lock left",
        _ if journal.undone => "undone",
        JournalState::Interrupted => "interrupted",
        JournalState::Ended => "ended",
    }
}
