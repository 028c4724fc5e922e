//! Reads clusters in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use calipam_model::parallel::lock;
use calipam_workflow::Access;

use super::{Fleet, Named};
use crate::args::FleetArgs;
use crate::connect;
use crate::console::Console;
use crate::exit::{self, Kind, Outcome, Result};
use crate::hints;
use crate::operator::Person;
use crate::render::document::Printed;
use crate::render::fleet::{FleetList, ListOfCluster, Unreadable};

/// The result of reading a cluster.
pub(crate) enum ReadOfCluster<T> {
    Read(T),
    /// The cluster could not be read, for this reason.
    Unreadable(String),
}

/// Calls `work` with each cluster, several at a time, and returns the results in the order of the clusters.
pub(crate) fn each<T: Send>(
    clusters: &[Named],
    args: &FleetArgs,
    console: &Console,
    work: impl Fn(&Named, &Console) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    // Each worker takes the next cluster when it is done with one, so that a slow cluster holds up no other.
    let next_position = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::with_capacity(clusters.len()));
    let worker = || {
        loop {
            let position = next_position.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(position) else {
                break;
            };

            let console = console.of_cluster(&cluster.name);
            let result = hints::for_cluster(&cluster.name, || work(cluster, &console));
            lock(&done).push((position, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..args.parallel.get().min(clusters.len()) {
            scope.spawn(worker);
        }
    });

    // Poisoning is ignored, since a panic in a worker also ends the scope with a panic.
    let mut results = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Opens the datastore of a cluster, and calls `work` with a time limit. A failure concerns only this cluster, so it is
/// returned as the reason why the cluster could not be read.
///
/// # Errors
/// If ctrl-c interrupts the command.
pub(crate) fn read<T>(
    cluster: &Named,
    args: &FleetArgs,
    console: &Console,
    work: impl AsyncFnOnce(Access<'_>) -> Result<T>,
) -> Result<ReadOfCluster<T>> {
    if connect::is_interrupted() {
        return Err(exit::interrupted());
    }
    match read_in_time(cluster, args, console, work) {
        Ok(Some(result)) => Ok(ReadOfCluster::Read(result)),
        Ok(None) => {
            let reason = format!("it could not be read within {:#}", args.cluster_timeout);
            Ok(ReadOfCluster::Unreadable(reason))
        }
        Err(failure) if failure.kind == Kind::Interrupted => Err(failure),
        Err(failure) => Ok(ReadOfCluster::Unreadable(failure.message)),
    }
}

/// Opens the datastore of a cluster, and calls `work`. Returns `None` if this takes longer than the time limit.
fn read_in_time<T>(
    cluster: &Named,
    args: &FleetArgs,
    console: &Console,
    work: impl AsyncFnOnce(Access<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let settings = cluster.source.settings()?;
    let limit = Duration::try_from(args.cluster_timeout).unwrap_or(Duration::MAX);
    let reading = async {
        let datastore = connect::open_by(&settings, console).await?;
        work(Access::new(&datastore, &Person::never_asked(console))).await
    };
    connect::block_on(async {
        match tokio::time::timeout(limit, reading).await {
            Ok(result) => result.map(Some),
            Err(_) => Ok(None),
        }
    })
}

/// Runs a command on each cluster, and returns the printed documents and the other results. Warns of each cluster that
/// cannot be read, such as `prod is not compared: …`, where `consequence` is the phrase `is not compared`.
///
/// # Errors
/// If ctrl-c interrupts the command.
pub(crate) fn documents<T: Send>(
    fleet: &Fleet,
    args: &FleetArgs,
    console: &Console,
    consequence: &str,
    work: impl Fn(&Named, &Console) -> Result<ReadOfCluster<(Outcome, T)>> + Sync,
) -> Result<(FleetList, Vec<T>)> {
    // Hints would be repeated for each cluster.
    let quiet = Console {
        quiet: true,
        ..console.clone()
    };
    let results = each(&fleet.clusters, args, &quiet, |cluster, console| {
        let result = work(cluster, console)?;
        Ok((result, take_document(console)))
    })?;

    let mut list = FleetList {
        notes: fleet.notes.clone(),
        ..FleetList::default()
    };
    let mut values = Vec::new();
    for (cluster, (result, document)) in fleet.clusters.iter().zip(results) {
        match result {
            ReadOfCluster::Read((outcome, value)) => {
                if let Some(printed) = document {
                    list.clusters.push(ListOfCluster {
                        cluster: cluster.name.clone(),
                        group: cluster.group.clone(),
                        outcome,
                        printed,
                    });
                }
                values.push(value);
            }
            ReadOfCluster::Unreadable(reason) => {
                console.warn(&format!("{} {consequence}: {reason}", cluster.name));
                list.unreadable.push(Unreadable {
                    cluster: cluster.name.clone(),
                    reason,
                });
            }
        }
    }
    list.unreadable.sort();
    Ok((list, values))
}

/// Takes the document that a command has printed for the cluster of this console.
fn take_document(console: &Console) -> Option<Printed> {
    let of_fleet = console.fleet.as_ref()?;
    lock(&of_fleet.printed).take()
}
