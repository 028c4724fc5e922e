//! Reads what a subject needs from one cluster, and prints it.

use std::net::IpAddr;

use calipam_check::views;
use calipam_datastore::read::Lookup;
use calipam_history::timeline::Event;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{Access, Activity, Found, Names, Object};

use super::subject;
use crate::args::{ShowArgs, Subject};
use crate::console::Console;
use crate::exit::{Outcome, Result};

/// The maximum number of events in the details of an address.
const LAST_EVENTS: usize = 3;

/// Reads the data of the subject, and prints it. The result includes an error for each missing node or pool.
pub(crate) async fn show(
    access: Access<'_>,
    args: &ShowArgs,
    console: &Console,
) -> Result<Found<(Snapshot, Outcome)>> {
    if let Some(address) = answered_at_once(access, args, console) {
        return answer_then_check(access, address, console).await;
    }
    let (snapshot, subject) = read(access, args).await?;
    args.check_table(&subject)?;
    let events = match &subject {
        Subject::Object(Object::Address(address)) => events(access, &snapshot, *address).await,
        _ => Vec::new(),
    };
    let Found {
        found: scope,
        not_found,
    } = names(args, &subject).found(&[&snapshot])?;
    let outcome = subject::print(&subject, &scope, &snapshot, &events, console)?;
    Ok(Found {
        found: (snapshot, outcome),
        not_found,
    })
}

/// Returns the names that limit the view. A named node or pool limits it to itself; for anything else, the options do.
fn names(args: &ShowArgs, subject: &Subject) -> Names {
    if let Subject::Object(object) = subject
        && let Some(names) = object.names()
    {
        return names;
    }
    let no_namespace = None;
    args.selection.names(no_namespace)
}

/// Returns the address about which a person is told what a few requests find, before everything is read. `None` for a
/// document of programs, and where a few requests are no faster.
fn answered_at_once(access: Access<'_>, args: &ShowArgs, console: &Console) -> Option<IpAddr> {
    let address = args.address()?;
    let is_for_person = console.format.is_for_people() && console.watch.is_none() && console.fleet.is_none();
    if is_for_person && !args.quick && access.datastore.reads_parts() {
        Some(address)
    } else {
        None
    }
}

/// Prints what a few requests tell about an address, then reads everything, and prints what only that shows. So a
/// person need not wait for all of it.
async fn answer_then_check(
    access: Access<'_>,
    address: IpAddr,
    console: &Console,
) -> Result<Found<(Snapshot, Outcome)>> {
    let around = calipam_workflow::read_around(access, &Lookup::Address(address)).await?;
    let events = events(access, &around, address).await;
    let answer = subject::print_answer(address, &around, &events, console)?;
    let snapshot = calipam_workflow::read_as(access, Activity::CheckingCluster).await?;
    let outcome = subject::print_rest(&answer, &snapshot, console)?;
    Ok(Found {
        found: (snapshot, outcome),
        not_found: Vec::new(),
    })
}

/// Returns the last events of an address.
pub(super) async fn events(access: Access<'_>, snapshot: &Snapshot, address: IpAddr) -> Vec<Event> {
    calipam_workflow::last_events(access.datastore, snapshot, address, LAST_EVENTS).await
}

/// Reads the data of the subject. With `--quick`, reads only the objects around an address or a handle. Otherwise,
/// reads the sources that a view needs, or everything. In the returned subject, a handle has its complete ID, and the
/// kind of a named object is known.
async fn read(access: Access<'_>, args: &ShowArgs) -> Result<(Snapshot, Subject)> {
    let object = match args.subject() {
        Subject::Object(object) => object,
        subject => {
            let snapshot = match sources(args, &subject) {
                Some(sources) => calipam_workflow::read_sources(access, sources).await?,
                None => calipam_workflow::read(access).await?,
            };
            return Ok((snapshot, subject));
        }
    };
    if args.quick {
        let (snapshot, object) = read_around(access, object).await?;
        return Ok((snapshot, Subject::Object(object)));
    }
    // Only everything tells what kind of object a name is of.
    let snapshot = calipam_workflow::read(access).await?;
    let object = object.find(&snapshot)?;
    Ok((snapshot, Subject::Object(object)))
}

/// Reads only the objects around an address or a handle. The returned handle has its complete ID.
async fn read_around(access: Access<'_>, object: Object) -> Result<(Snapshot, Object)> {
    match object.by_form() {
        Object::Address(address) => {
            let snapshot = calipam_workflow::read_around(access, &Lookup::Address(address)).await?;
            Ok((snapshot, Object::Address(address)))
        }
        Object::Handle(begin) => {
            let (snapshot, id) = calipam_workflow::read_around_handle(access, &begin).await?;
            Ok((snapshot, Object::Handle(id)))
        }
        _ => unreachable!("--quick with anything but an address or a handle is a usage error"),
    }
}

/// Returns the sources that a view needs, or `None` if it needs all of them. All sources are also needed if options
/// name nodes, since only a complete read finds these nodes.
fn sources(args: &ShowArgs, subject: &Subject) -> Option<&'static [Source]> {
    if args.selection.names_nodes() {
        return None;
    }
    let sources: &[Source] = match subject {
        // This includes services, since free ranges must not overlap them.
        Subject::Pools if args.find_range.is_some() => &views::sources::PLACES,
        Subject::Pools => &views::sources::POOLS,
        Subject::Blocks => &views::sources::BLOCKS,
        Subject::Nodes => &views::sources::NODES,
        Subject::Borrowed => &views::sources::BORROWED,
        Subject::Configuration => &views::sources::CONFIGURATION,
        Subject::Namespaces | Subject::Compare | Subject::Map | Subject::Object(_) | Subject::Addresses => {
            return None;
        }
    };
    Some(sources)
}
