//! The `history` command.

mod of_fleet;

use calipam_workflow::{History, Reach, archive_history, history};

use crate::args::{Global, HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Outcome, Result};
use crate::fleet::Fleet;
use crate::operator::Person;
use crate::{connect, hints};

/// Prints the events of an address, handle, block, node or pod; exit code 1 if there are none.
pub(super) fn run(args: &HistoryArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, console);
    }
    let journals = journals_folder();
    let found = match &args.archive {
        Some(folder) => archive_history(
            folder,
            args.object(),
            journals.as_deref(),
            &Person::watching(console),
        )?,
        None => connect::with(global, console, async |access| {
            history(access, args.object(), journals.as_deref()).await
        })?,
    };
    print(&found, console)
}

/// Prints a history. The outcome is [`Outcome::Refused`] if the history has no events.
pub(crate) fn print(found: &History, console: &Console) -> Result<Outcome> {
    console.print(found)?;
    if !found.events.is_empty() {
        return Ok(Outcome::Clean);
    }
    if let Reach::Etcd {
        oldest_revision: oldest,
        ..
    } = &found.reach
    {
        let nothing = match oldest.as_str() {
            "1" => format!("no revision of this etcd names {}", found.about),
            oldest => format!("etcd has nothing from before revision {oldest}"),
        };
        console.hint(&format!(
            "{nothing}; {} lists the blocks",
            hints::command(&["show", "--blocks"])
        ));
    }
    Ok(Outcome::Refused)
}
