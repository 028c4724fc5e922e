//! Reading clusters side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use calipam_check::fleet::Summary;
use calipam_datastore::Datastore;
use calipam_files::regular;
use indicatif::MultiProgress;

use super::{Named, Source};
use crate::args::FleetArgs;
use crate::connect;
use crate::console::{Console, OfFleet};
use crate::exit::Failure;

/// What a cluster of a fleet is read from.
pub(crate) enum Read<T> {
    Datastore(T),
    Summary(Box<Summary>),
}

/// Does some work on each cluster, several at a time, and gives the results in the order of the clusters.
pub(crate) fn each<T: Send>(
    clusters: &[Named],
    args: &FleetArgs,
    console: &Console,
    work: impl Fn(&Named, &Console) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(clusters.len()));
    let lines = MultiProgress::new();
    let worker = || {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(position) else { break };
            let of_fleet = OfFleet { name: Arc::from(cluster.name.as_str()), lines: lines.clone() };
            let result = work(cluster, &Console { fleet: Some(of_fleet), ..console.clone() });
            // A worker that panics ends the call.
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((position, result));
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

/// Reads a summary, or opens a datastore and does some work on it. Both are given up after a time.
///
/// # Errors
/// Where the cluster cannot be read, with the reason as the error of a single check has it.
pub(super) fn read<T>(
    cluster: &Named,
    args: &FleetArgs,
    console: &Console,
    work: impl AsyncFnOnce(&Datastore) -> Result<T, Failure>,
) -> Result<Read<T>, String> {
    let said = |failure: Failure| failure.message();
    let Some(settings) = cluster.source.settings().map_err(said)? else {
        let Source::Summary(path) = &cluster.source else { return Err("it has no settings".into()) };
        let text = regular::read_to_string(path).map_err(|error| error.to_string())?;
        return Summary::parse(&text).map(Box::new).map(Read::Summary);
    };
    let limit = Duration::try_from(args.cluster_timeout).unwrap_or(Duration::MAX);
    let timed = async {
        let work = async {
            let datastore = connect::open_by(&settings, console).await?;
            work(&datastore).await
        };
        Ok(tokio::time::timeout(limit, work).await)
    };
    match connect::block_on(timed).map_err(said)? {
        Ok(result) => result.map(Read::Datastore).map_err(said),
        Err(_) => Err(format!("it was not read within {:#}", args.cluster_timeout)),
    }
}
