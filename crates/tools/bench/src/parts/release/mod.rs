//! `calipam release --leaked` compared with only the same writes. Every tenth address is leaked.

mod command;
mod on_etcd;
mod on_kubernetes;

use self::command::{release, undo};
use crate::cluster::Cluster;
use crate::{Failed, leak, table};

const TITLES: &str = "<datastore | allocations | released | command | writes | writing | a second | floor | ratio | \
                      server's share | peak memory";

/// Measures releases on a datastore; sizes are allocations on `etcd` and pods on `kubernetes`.
pub(super) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    table::rows(sizes, TITLES, |size| measure(program, datastore, size))
}

/// Leaks every tenth address of a cluster, and releases the leaked addresses. Returns the row.
fn measure(program: &str, datastore: &str, size: u64) -> Result<String, Failed> {
    // The folder is not in a memory-backed file system, where durable writes would be free.
    let folder = tempfile::tempdir_in(".")?;
    let cluster = match datastore {
        "etcd" => on_etcd::durable(size)?,
        _ => Cluster::seeded(datastore, size)?,
    };
    let leaked = leak::every_tenth(cluster.etcd(), cluster.form().pods)?;
    if let Cluster::Kubernetes(server) = &cluster {
        on_kubernetes::wait_for_pods(server, size as usize - leaked)?;
    }
    let journal = folder.path().join("run.journal");
    let released = release(program, &cluster.connection(), &journal)?;
    let floor = match &cluster {
        Cluster::Etcd(etcd) => on_etcd::floor(etcd, &released.recorded)?,
        Cluster::Kubernetes(server) => {
            on_kubernetes::floor(server, || undo(program, &cluster.connection(), &journal))?
        }
    };
    let (seconds, writing) = (released.run.seconds, released.writing);
    Ok(format!(
        "{datastore} | {size} | {leaked} | {seconds:.2} s | {} | {writing:.2} s | {:.0} | {floor:.2} s | {:.2} | \
         {:.0} % | {:.0} MiB",
        released.recorded.intents.len(),
        leaked as f64 / writing,
        writing / floor,
        100.0 * floor / writing,
        released.run.peak_mib,
    ))
}
