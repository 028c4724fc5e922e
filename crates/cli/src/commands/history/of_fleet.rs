//! `history` of many clusters: the owners of an address in each cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use calipam_datastore::Error as DatastoreError;
use calipam_datastore::read::Lookup;
use calipam_history::timeline::{HistorySubject, recorded_in};
use calipam_workflow::{Access, History, Object, Reach, archive_history, history, read_around};

use super::print;
use crate::args::{HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::fleet::{Fleet, Named, ReadOfCluster, documents, place, read};
use crate::operator::Person;
use crate::render::text::count;

/// Prints the events of an address in each cluster; exit code 1 if there are none.
///
/// # Errors
/// If the object is not an address, since nodes, blocks and handles belong to one cluster, or if two clusters have the
/// same archive.
pub(crate) fn run(args: &HistoryArgs, fleet: &Fleet, console: &Console) -> Result<Outcome> {
    let Object::Address(address) = args.object().by_form() else {
        let message = "with several clusters, `history` needs an address";
        let hint = "nodes, blocks, pods and handles belong to one cluster: name it";
        return Err(Failure::usage(message).hint(hint));
    };

    if args.archive.is_some() {
        fleet.require_distinct_places()?;
    }
    let reader = HistoryReader {
        args,
        address,
        journals: journals_folder(),
    };
    // The console of a cluster keeps its document for the list.
    let print_one = |cluster: &Named, console: &Console| match reader.read(cluster, console)? {
        ReadOfCluster::Read(history) => Ok(ReadOfCluster::Read((print(&history, console)?, ()))),
        ReadOfCluster::Unreadable(reason) => Ok(ReadOfCluster::Unreadable(reason)),
    };
    let (mut list, _) = documents(fleet, &args.fleet, console, "cannot be read", print_one)?;

    // Most clusters of a fleet do not know the address.
    list.omits = Some(Outcome::Refused);
    let with_events = list
        .clusters
        .iter()
        .filter(|cluster| cluster.outcome == Outcome::Clean)
        .count();
    let is_unknown = with_events == 0;
    let all = count(fleet.clusters.len(), "cluster", "clusters");
    list.sums.push(if is_unknown {
        format!("Nothing is known about ip {address} in {all}")
    } else {
        format!("Known in {with_events} of {all}")
    });
    console.print(&list)?;

    // A cluster that was not read could know the address.
    if !list.unreadable.is_empty() {
        return Ok(Outcome::PartlyRead);
    }
    if is_unknown {
        return Ok(Outcome::Refused);
    }
    Ok(Outcome::Clean)
}

/// The address whose history is read in each cluster.
struct HistoryReader<'a> {
    args: &'a HistoryArgs,
    address: IpAddr,
    journals: Option<PathBuf>,
}

impl HistoryReader<'_> {
    /// Reads the history in one cluster, from its archive or its datastore.
    ///
    /// # Errors
    /// If ctrl-c interrupts the command.
    fn read(&self, cluster: &Named, console: &Console) -> Result<ReadOfCluster<History>> {
        let journals = self.journals.as_deref();
        let Some(folder) = &self.args.archive else {
            return read(cluster, &self.args.fleet, console, async |access| {
                of_datastore(access, self.address, journals).await
            });
        };

        let folder = place(folder, cluster, "");
        let person = Person::never_asked(console);
        match archive_history(&folder, Object::Address(self.address), journals, &person) {
            Ok(history) => Ok(ReadOfCluster::Read(history)),
            Err(failure) => Ok(ReadOfCluster::Unreadable(failure.message)),
        }
    }
}

/// Returns the history of an address from etcd's revisions, or the events that the current records of a datastore
/// without revisions tell.
async fn of_datastore(access: Access<'_>, address: IpAddr, journals: Option<&Path>) -> Result<History> {
    let result = history(access, Object::Address(address), journals).await;
    let lacks_revisions = result
        .as_ref()
        .is_err_and(|failure| matches!(failure.cause(), Some(DatastoreError::NoRevisions { .. })));
    if !lacks_revisions {
        return result;
    }

    let snapshot = read_around(access, &Lookup::Address(address)).await?;
    Ok(History {
        guid: snapshot.guid().to_owned(),
        location: snapshot.location.clone(),
        about: HistorySubject::Address(address),
        reach: Reach::State {
            read_at: snapshot.taken_at,
        },
        events: recorded_in(snapshot, address),
    })
}
