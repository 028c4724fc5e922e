//! The `show` command.

mod address_of_fleet;
mod of_cluster;
mod of_fleet;
pub(super) mod subject;

use calipam_workflow::Found;

use crate::args::{Global, ShowArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::Fleet;
use crate::past::Past;

/// Reads the data of the subject, and prints it.
///
/// # Errors
/// If the datastore cannot be read, or does not have the subject.
pub(super) fn run(args: &ShowArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let subject = args.subject();
    if args.quick && !subject.is_one() {
        return Err(Failure::usage(
            "--quick works with an address or --handle: everything else needs all data",
        ));
    }
    args.check_table(&subject)?;
    // Several clusters are read at the same time, and have one list.
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, console);
    }
    if args.find_range.is_some() {
        return Err(Failure::usage("--find-range needs several clusters")
            .hint("name them with --fleet or --context, which takes `*` and `?`"));
    }
    // With --archive, the past state takes the place of the cluster, as a file would.
    let past = Past::of_call(args.archive.as_deref(), args.at, global, console)?;
    let global = past.as_ref().map_or(global, |past| &past.global);
    let Found {
        found: (snapshot, outcome),
        not_found,
    } = connect::with(global, console, async |access| {
        of_cluster::show(access, args, console).await
    })?;
    console.done_with(snapshot);

    // What was found is already printed.
    for failure in &not_found {
        console.failure(failure);
    }
    if not_found.is_empty() {
        Ok(outcome)
    } else {
        Ok(Outcome::Refused)
    }
}
