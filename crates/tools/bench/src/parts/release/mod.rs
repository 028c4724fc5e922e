//! `calipam release --leaked` compared with only the same writes. Every tenth address is leaked.

mod on_etcd;
mod on_kubernetes;

use std::path::Path;
use std::process::Command;

use calipam_repair::journal::Recorded;
use calipam_testkit::servers::EtcdOptions;

use crate::bench::Bench;
use crate::child::measure as measure_child;
use crate::cluster::Cluster;
use crate::{Failed, leak};

pub(super) const TITLES: &str =
    "size | released | command | writes | writing | a second | floor | ratio | peak memory";

/// Leaks every tenth address of a cluster, and releases the leaked addresses. Sizes are allocations on `etcd` and pods
/// on `kubernetes`.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let size = bench.number()?;
    // The folder is not in a memory-backed file system, where durable writes would be free.
    let folder = tempfile::tempdir_in(".")?;
    let durable = EtcdOptions::new().argument("--unsafe-no-fsync=false");
    let cluster = Cluster::seeded(bench.datastore, size, durable)?;
    let leaked = leak::every_tenth(cluster.etcd(), cluster.form().pods)?;
    if let Cluster::Kubernetes(server) = &cluster {
        on_kubernetes::wait_for_pods(server, size as usize - leaked)?;
    }

    let journal = folder.path().join("run.journal");
    let run = |arguments: &[&str], journal: &Path| {
        let mut command = Command::new(bench.program);
        command.args(arguments).args(cluster.connection()).args(["--yes", "--journal"]).arg(journal);
        measure_child(&mut command, &[0])
    };
    let released = run(&["release", "--leaked", "--grace", "0", "--settle", "0"], &journal)?;
    let recorded = Recorded::read(&journal)?;
    // From the first line of the journal to the last.
    let begun: jiff::Timestamp = recorded.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(std::fs::metadata(&journal)?.modified()?)?;
    let writing = ended.duration_since(begun).as_secs_f64();

    let text = journal.display().to_string();
    let floor = match &cluster {
        Cluster::Etcd(etcd) => on_etcd::floor(etcd, &recorded)?,
        Cluster::Kubernetes(server) => {
            on_kubernetes::floor(server, || run(&["undo", &text], &journal.with_extension("back")).map(drop))?
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
