//! The `diff` command.

mod of_fleet;

use calipam_history::diff::{Change, Difference};
use calipam_workflow::{ArchivedState, Side, diff, read_pair, scope, states_around};

use crate::args::{DiffArgs, Global, StateName};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::Fleet;
use crate::format::Format;
use crate::operator::Person;
use crate::past::shown_as;
use crate::render::diff::DifferenceDocument;
use crate::render::text::count;
use crate::{connect, hints, rerun};

/// Compares two states, and prints the differences; exit code 1 if there are any.
pub(super) fn run(args: &DiffArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, console);
    }
    // This variable keeps the archive's temporary files until the end.
    let mut archived = None;
    if let (Some(folder), Some(at)) = (&args.archive, args.at) {
        archived = Some(states_around(folder, at, &Person::never_asked(console))?);
    }
    let (old, new) = states(args, archived.as_ref())?;
    refuse(&old, &new, global)?;
    connect::block_on(async {
        let sides = [
            open(&old, global, console).await?,
            open(&new, global, console).await?,
        ];
        compare(sides.each_ref(), args, console).await
    })
}

/// Compares two states, and prints the differences. The outcome is [`Outcome::Findings`] if there are any.
pub(crate) async fn compare([old, new]: [&Side; 2], args: &DiffArgs, console: &Console) -> Result<Outcome> {
    let person = Person::never_asked(console);
    let pair = read_pair(old, new, args.force, &person).await?;
    let scope = scope(&pair, args.networks(), &args.selection.names(None))?;
    let found = diff(&pair, [old, new], &scope, args.recheck.settle, &person).await?;
    let outcome = if found.same {
        Outcome::Clean
    } else {
        Outcome::Findings
    };
    if !found.same || console.prints_empty_results() {
        console.print(&DifferenceDocument::new(&pair, [old, new], &found))?;
    }
    print_hints(&found, old, new, console);
    console.done_with(found);
    console.done_with(pair);
    Ok(outcome)
}

/// Returns the two states to compare, the old one first. With `--archive`, the old state is the one before `--at`, and
/// the new one the state after it, unless an argument names another. clap calls this only argument `old`.
fn states(
    args: &DiffArgs,
    archived: Option<&(ArchivedState, Option<ArchivedState>)>,
) -> Result<(StateName, StateName)> {
    let name = |state: &ArchivedState| StateName {
        datastore: state.path.to_string_lossy().into_owned(),
        revision: None,
        shown_as: args.archive.as_deref().map(|archive| shown_as(archive, state)),
    };
    let Some((before, after)) = archived else {
        let named = args.old.clone().zip(args.new.clone());
        return named.ok_or_else(|| Failure::usage("specify OLD and NEW"));
    };
    if args.new.is_some() {
        return Err(Failure::usage("with --archive, specify only NEW"));
    }
    if let Some(new) = &args.old {
        return Ok((name(before), new.clone()));
    }
    let Some(after) = after else {
        let at = args.at.unwrap_or(before.at);
        return Err(Failure::usage(format!("the archive has no export after {at}"))
            .hint("specify NEW, the state to compare with, such as `etcd` or `kubernetes`"));
    };
    Ok((name(before), name(after)))
}

/// Refuses options that have no effect on a comparison, and stdin for both states, since it can be read only once.
fn refuse(old: &StateName, new: &StateName, global: &Global) -> Result<()> {
    if let Some(named) = &global.datastore {
        return Err(Failure::usage(format!(
            "`diff` reads OLD and NEW; --datastore {named} has no effect here"
        ))
        .hint(format!(
            "for example {}",
            hints::command_elsewhere(&["diff", "backup.db", "etcd"])
        )));
    }
    if old.datastore == "-" && new.datastore == "-" {
        return Err(Failure::usage("stdin cannot be both OLD and NEW"));
    }
    Ok(())
}

/// Opens the datastore of one side, at the revision that its name has.
async fn open(name: &StateName, global: &Global, console: &Console) -> Result<Side> {
    let datastore = Some(name.datastore.clone());
    let shown_as = name.shown_as.clone();
    let global = Global {
        datastore,
        shown_as,
        ..global.clone()
    };
    Ok(Side {
        datastore: connect::open(&global, console).await?,
        revision: name.revision,
    })
}

/// Prints a hint about the wide form and, if OLD can be a backup of the live cluster NEW, one about restoring it.
fn print_hints(found: &Difference<'_>, old: &Side, new: &Side, console: &Console) {
    if console.format == Format::Table && !found.same {
        console.hint(&format!("{} lists every change", rerun::in_wide_form()));
    }
    let is_new_live = new.datastore.is_live() && new.revision.is_none();
    let is_backup = is_new_live && !old.datastore.is_live();
    if is_backup && console.format.is_for_people() {
        warn_of_restore(found, console);
    }
}

/// Prints a hint about the risk of restoring OLD: addresses that are in use now could then be assigned again.
fn warn_of_restore(found: &Difference<'_>, console: &Console) {
    // Addresses that were reassigned to the same owner are not at risk.
    let changes = found.addresses.iter().map(|address| address.change);
    let at_risk = changes
        .filter(|change| matches!(change, Change::Assigned | Change::Moved))
        .count();
    if at_risk > 0 {
        console.hint(&format!(
            "after a restore of OLD, {} would be free again or belong to an earlier owner, and could be assigned a second \
             time while in use",
            count(at_risk, "address that is allocated now", "addresses that are allocated now")
        ));
    }
}
