//! `history` of many clusters: the owners of an address in each cluster.

use std::net::IpAddr;
use std::path::Path;

use calipam_datastore::Error as DatastoreError;
use calipam_datastore::read::Lookup;
use calipam_history::timeline::{HistorySubject, recorded_in};
use calipam_workflow::{Access, History, Object, Reach, archive_history, history, read_around};

use super::print;
use crate::args::{HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{Fleet, Named, documents, place, read};
use crate::operator::Person;
use crate::render::text::count;

/// Prints the events of an address in each cluster; exit code 1 if there are none.
///
/// # Errors
/// If the object is not an address, since nodes, blocks and handles belong to one cluster.
pub(crate) fn run(args: &HistoryArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let Object::Address(address) = args.object().by_form() else {
        let what = "with several clusters, `history` needs an address";
        return Err(
            Failure::usage(what).hint("nodes, blocks, pods and handles belong to one cluster: name it")
        );
    };

    let journals = journals_folder();
    let history_in = |cluster: &Named, console: &Console| match &args.archive {
        Some(folder) => {
            let folder = place(folder, cluster, "");
            let person = Person::watching(console);
            let history = archive_history(&folder, Object::Address(address), journals.as_deref(), &person);
            Ok(history.map_err(|failure| failure.message))
        }
        None => read(cluster, &args.fleet, console, async |access| {
            of_datastore(access, address, journals.as_deref()).await
        }),
    };
    let (mut list, _) = documents(
        fleet,
        &args.fleet,
        console,
        "cannot be read",
        |cluster, console| {
            Ok(match history_in(cluster, console)? {
                Ok(history) => Ok((print(&history, console)?, ())),
                Err(reason) => Err(reason),
            })
        },
    )?;

    list.omits = Some(Outcome::Refused);
    let known = list
        .clusters
        .iter()
        .filter(|of| of.outcome == Outcome::Clean)
        .count();
    let all = count(fleet.clusters.len(), "cluster", "clusters");
    list.sums.push(match known {
        0 => format!("Nothing is known about ip {address} in {all}"),
        known => format!("Known in {known} of {all}"),
    });
    console.print(&list)?;

    Ok(if !list.unreadable.is_empty() {
        Outcome::PartlyRead
    } else if known == 0 {
        Outcome::Refused
    } else {
        Outcome::Clean
    })
}

/// Returns the history from etcd's revisions, or the current records of another datastore.
async fn of_datastore(access: Access<'_>, address: IpAddr, journals: Option<&Path>) -> Result<History> {
    match history(access, Object::Address(address), journals).await {
        Err(failure) if matches!(failure.cause(), Some(DatastoreError::NoRevisions { .. })) => {
            let snapshot = read_around(access, &Lookup::Address(address)).await?;
            let guid = snapshot.guid().to_owned();
            let location = snapshot.location.clone();
            let reach = Reach::State {
                read_at: snapshot.taken_at,
            };
            let about = HistorySubject::Address(address);
            let events = recorded_in(snapshot, address);
            Ok(History {
                guid,
                location,
                about,
                reach,
                events,
            })
        }
        other => other,
    }
}
