//! `history`.

use std::path::Path;

use calipam_workflow::{archive_history, history};

use crate::args::{Global, HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::fleet::{self, Fleet};
use crate::operator::Person;
use crate::render::history::HistoryDocument;
use crate::{connect, hints};

/// Prints what happened to an address, handle, block or node; exit code 1 if nothing is known.
pub(super) fn run(args: &HistoryArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return fleet::history::run(args, &fleet, console);
    }
    if let Some(folder) = &args.archive {
        return of_archive(folder, args, console);
    }
    let found = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let person = Person::watching(console);
        history(&datastore, args.about(), journals_folder().as_deref(), &person).await
    })?;
    let document = HistoryDocument::of_etcd(&found);
    console.print(&document)?;
    if found.events.is_empty() {
        let blocks = hints::command(&["show", "--blocks"]);
        console.hint(&match found.kept.oldest {
            1 => format!("no revision of this etcd names it; {blocks} lists the blocks"),
            oldest => {
                format!("etcd has nothing from before revision {oldest}; {blocks} lists the blocks")
            }
        });
        return Ok(Outcome::Refused);
    }
    Ok(Outcome::Clean)
}

/// The same from the exports of a folder.
fn of_archive(folder: &Path, args: &HistoryArgs, console: &Console) -> Result<Outcome, Failure> {
    let journals = journals_folder();
    let found = archive_history(folder, args.about(), journals.as_deref(), &Person::watching(console))?;
    console.print(&HistoryDocument::of_archive(&found))?;
    Ok(if found.events.is_empty() { Outcome::Refused } else { Outcome::Clean })
}
