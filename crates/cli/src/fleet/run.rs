//! Reads clusters in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use calipam_model::parallel::lock;
use calipam_workflow::Access;

use super::{Fleet, Named};
use crate::args::FleetArgs;
use crate::connect;
use crate::console::{Console, OfFleet};
use crate::exit::{self, Kind, Outcome, Result};
use crate::hints;
use crate::operator::Person;
use crate::render::fleet::{FleetList, ListOfCluster, Unreadable};

/// Calls `work` with each cluster, several at a time, and returns the results in the order of the clusters.
pub(crate) fn each<T: Send>(
    clusters: &[Named],
    args: &FleetArgs,
    console: &Console,
    work: impl Fn(&Named, &Console) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::with_capacity(clusters.len()));
    let worker = || {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(position) else {
                break;
            };

            let console = Console {
                fleet: Some(OfFleet {
                    name: Arc::from(cluster.name.as_str()),
                    printed: Arc::default(),
                }),
                ..console.clone()
            };
            let result = hints::for_cluster(&cluster.name, || work(cluster, &console));
            // Poisoning is ignored, since a panic in a worker also ends the scope with a panic.
            done.lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push((position, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..args.parallel.get().min(clusters.len()) {
            scope.spawn(worker);
        }
    });

    let mut results = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Opens the datastore of a cluster, and calls `work` with a time limit. If the cluster cannot be read, returns the
/// error message.
///
/// # Errors
/// If ctrl-c interrupts the command.
pub(crate) fn read<T>(
    cluster: &Named,
    args: &FleetArgs,
    console: &Console,
    work: impl AsyncFnOnce(Access<'_>) -> Result<T>,
) -> Result<Result<T, String>> {
    if connect::is_interrupted() {
        return Err(exit::interrupted());
    }
    let read = cluster.source.settings().and_then(|settings| {
        let limit = Duration::try_from(args.cluster_timeout).unwrap_or(Duration::MAX);
        let work = async {
            let datastore = connect::open_by(&settings, console).await?;
            work(Access::new(&datastore, &Person::watching(console))).await
        };
        connect::block_on(async { Ok(tokio::time::timeout(limit, work).await) })
    });
    match read.and_then(|within| within.map_or(Ok(None), |result| result.map(Some))) {
        Ok(Some(result)) => Ok(Ok(result)),
        Ok(None) => Ok(Err(format!(
            "it could not be read within {:#}",
            args.cluster_timeout
        ))),
        Err(failure) if failure.kind == Kind::Interrupted => Err(failure),
        Err(failure) => Ok(Err(failure.message)),
    }
}

/// Runs a command on each cluster, and returns the printed documents and the other results. `failed` is a phrase for
/// the warning about a cluster that cannot be read, such as `is not compared`.
///
/// # Errors
/// If ctrl-c interrupts the command.
pub(crate) fn documents<T: Send>(
    fleet: &Fleet,
    args: &FleetArgs,
    console: &Console,
    failed: &str,
    work: impl Fn(&Named, &Console) -> Result<Result<(Outcome, T), String>> + Sync,
) -> Result<(FleetList, Vec<T>)> {
    // Hints would be repeated for each cluster.
    let quiet = Console {
        quiet: true,
        ..console.clone()
    };
    let done = each(&fleet.clusters, args, &quiet, |cluster, console| {
        Ok((
            work(cluster, console)?,
            console.fleet.as_ref().and_then(|of| lock(&of.printed).take()),
        ))
    })?;

    let mut list = FleetList {
        notes: fleet.notes.clone(),
        ..FleetList::default()
    };
    let mut results = Vec::new();
    for (Named { name, group, .. }, (done, printed)) in fleet.clusters.iter().zip(done) {
        match done {
            Ok((outcome, result)) => {
                let cluster = name.clone();
                let group = group.clone();
                let of_cluster = |printed| ListOfCluster {
                    cluster,
                    group,
                    outcome,
                    printed,
                };
                list.clusters.extend(printed.map(of_cluster));
                results.push(result);
            }
            Err(reason) => {
                console.warn(&format!("{name} {failed}: {reason}"));
                list.unreadable.push(Unreadable {
                    cluster: name.clone(),
                    reason,
                });
            }
        }
    }
    list.unreadable.sort();
    Ok((list, results))
}
