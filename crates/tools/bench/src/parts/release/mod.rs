//! `calipam release --leaked` compared with only the same writes. Every tenth address is leaked.

mod on_etcd;
mod on_kubernetes;

use std::fs;
use std::path::Path;

use anyhow::Result;
use calipam_repair::journal::Recorded;
use calipam_testkit::servers::EtcdOptions;

use crate::bench::Bench;
use crate::cluster::Cluster;
use crate::kubernetes;
use crate::process::calipam;

pub(super) const TITLES: &str =
    "size | released | command | writes | writing | a second | floor | ratio | peak memory";

/// Leaks every tenth address of a cluster, and releases the leaked addresses. Sizes are allocations on `etcd` and pods
/// on `kubernetes`.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    // The folder is not in a memory-backed file system, where durable writes would be free.
    let folder = tempfile::tempdir_in(".")?;
    let durable = EtcdOptions::new().argument("--unsafe-no-fsync=false");
    let cluster = Cluster::sized(bench.datastore, bench.number()?, durable)?;
    let leaked = cluster.leak_every_tenth()?;
    cluster.api_server().map_or(Ok(()), kubernetes::wait_for_caches)?;

    let (program, connection) = (bench.program, cluster.connection());
    let run = |command: &str, journal: &Path| {
        let command = format!("{command} --yes --journal {}", journal.display());
        calipam(program, &command, &connection, 0)
    };
    let journal = folder.path().join("run.journal");
    let released = run("release --leaked --grace 0 --settle 0", &journal)?;
    let recorded = Recorded::read(&journal)?;
    // From the first line of the journal to the last.
    let begun: jiff::Timestamp = recorded.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(fs::metadata(&journal)?.modified()?)?;
    let writing = ended.duration_since(begun).as_secs_f64();

    let floor = match cluster.api_server() {
        None => on_etcd::floor(cluster.etcd(), &recorded)?,
        Some(server) => {
            let undo = format!("undo {}", journal.display());
            on_kubernetes::floor(server, || run(&undo, &journal.with_extension("back")).map(drop))?
        }
    };
    let cells = format!(
        "{leaked} | {:.2} s | {} | {writing:.2} s | {:.0} | {floor:.2} s | {:.2} | {:.0} MiB",
        released.seconds,
        recorded.intents.len(),
        leaked as f64 / writing,
        writing / floor,
        released.peak_mib,
    );
    bench.row(0, &cells);
    Ok(())
}
