//! The `history` command.

mod of_fleet;

use calipam_workflow::{History, Reach, archive_history, history};

use crate::args::{Global, HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Outcome, Result};
use crate::fleet::Fleet;
use crate::operator::Person;
use crate::render::history::FIRST_REVISION;
use crate::{connect, hints};

/// Prints the events of an address, handle, block, node or pod, from an archive if the options name one, otherwise from
/// etcd and the journals. The exit code is 1 if there are none.
pub(super) fn run(args: &HistoryArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, console);
    }
    let journals = journals_folder();
    let found = if let Some(folder) = &args.archive {
        let person = Person::never_asked(console);
        archive_history(folder, args.object(), journals.as_deref(), &person)?
    } else {
        connect::with(global, console, async |access| {
            history(access, args.object(), journals.as_deref()).await
        })?
    };
    print(&found, console)
}

/// Prints a history. The outcome is [`Outcome::Refused`] if the history has no events.
pub(crate) fn print(history: &History, console: &Console) -> Result<Outcome> {
    console.print(history)?;
    if !history.events.is_empty() {
        return Ok(Outcome::Clean);
    }

    // If etcd was compacted, it has forgotten earlier events.
    if let Reach::Etcd { oldest_revision, .. } = &history.reach {
        let reason = if oldest_revision == FIRST_REVISION {
            format!("no revision of this etcd names {}", history.about)
        } else {
            format!("etcd has nothing from before revision {oldest_revision}")
        };
        let list = hints::command(&["show", "--blocks"]);
        console.hint(&format!("{reason}; {list} lists the blocks"));
    }
    Ok(Outcome::Refused)
}
