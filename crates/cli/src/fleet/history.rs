//! `history` of many clusters: the owners of an address in each cluster.

use std::net::IpAddr;
use std::path::Path;

use calipam_datastore::read::Lookup;
use calipam_datastore::{Datastore, Error as DatastoreError};
use calipam_history::timeline::{About, recorded_in};
use calipam_workflow::{History, Reach, archive_history, history, read_around};

use super::folder::place;
use super::run::read;
use super::{Fleet, Named, each, refuse};
use crate::args::{HistoryArgs, journals_folder};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::render::fleet::{FleetHistory, HistoryOfCluster};

/// Prints the events of an address in each cluster; exit code 1 if there are none.
///
/// # Errors
/// If the call is about a node, block or handle, which belong to one cluster.
pub(crate) fn run(args: &HistoryArgs, fleet: &Fleet, console: &Console) -> Result<Outcome, Failure> {
    let others = [
        ("--handle", args.handle.is_some()),
        ("--block", args.block.is_some()),
        ("--node", args.node.is_some()),
    ];
    let other = others.iter().find(|(_, is_given)| *is_given);
    refuse(other.map(|(name, _)| *name), "with several clusters, `history` needs --ip")?;
    let address = args.ip.ok_or_else(|| Failure::usage("give an address with --ip"))?;

    let found: Vec<Result<_, Failure>> = each(&fleet.clusters, &args.fleet, console, |cluster, console| {
        Ok(match &args.archive {
            Some(folder) => of_archive(&place(folder, cluster, ""), address, console),
            None => of_cluster(cluster, address, args, console)?,
        })
    });
    let mut document = FleetHistory { address, clusters: Vec::new(), unreadable: Default::default() };
    for (Named { name, group, .. }, found) in fleet.clusters.iter().zip(found) {
        match found? {
            Ok(found) => {
                let (cluster, group) = (name.clone(), group.clone());
                document.clusters.push(HistoryOfCluster { cluster, group, found });
            }
            Err(reason) => {
                console.warn(&format!("{name} cannot be read: {reason}"));
                document.unreadable.insert(name.clone(), reason);
            }
        }
    }
    console.print(&document)?;
    Ok(match (document.unreadable.is_empty(), document.known_in()) {
        (false, _) => Outcome::PartlyRead,
        (true, 0) => Outcome::Refused,
        (true, _) => Outcome::Clean,
    })
}

/// Returns the history in a live cluster, or the reason why the cluster cannot be read.
fn of_cluster(
    cluster: &Named,
    address: IpAddr,
    args: &HistoryArgs,
    console: &Console,
) -> Result<Result<History, String>, Failure> {
    read(cluster, &args.fleet, console, async |datastore| of_datastore(datastore, address, console).await)
}

/// Returns the history from etcd's revisions, or the current records of another datastore.
async fn of_datastore(datastore: &Datastore, address: IpAddr, console: &Console) -> Result<History, Failure> {
    let person = Person::watching(console);
    let journals = journals_folder();
    let about = About::Address(address);
    match history(datastore, about.clone(), journals.as_deref(), &person).await {
        Err(failure) if matches!(failure.cause(), Some(DatastoreError::NoRevisions { .. })) => {
            let snapshot = read_around(datastore, &Lookup::Address(address), &person).await?;
            let (guid, location) = (snapshot.guid().to_owned(), snapshot.location.clone());
            let reach = Reach::State { read_at: snapshot.taken_at };
            let events = recorded_in(snapshot, address);
            Ok(History { guid, location, about, reach, events })
        }
        other => other,
    }
}

fn of_archive(folder: &Path, address: IpAddr, console: &Console) -> Result<History, String> {
    let journals = journals_folder();
    let about = About::Address(address);
    let found = archive_history(folder, about, journals.as_deref(), &Person::watching(console));
    found.map_err(|failure| failure.message)
}
