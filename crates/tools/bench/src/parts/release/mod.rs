//! `calipam release --leaked` compared with the same writes alone. Every tenth address is leaked.

mod command;
mod on_etcd;
mod on_kubernetes;

use std::path::Path;

use self::command::Released;
use crate::{Failed, check};

/// One line of the table.
pub(super) struct Row {
    datastore: &'static str,
    allocations: u64,
    leaked: usize,
    seconds: f64,
    writing: f64,
    floor: f64,
    peak_mib: f64,
    journal_writes: usize,
}

impl Row {
    fn new(
        datastore: &'static str,
        allocations: u64,
        leaked: usize,
        released: &Released,
        floor: f64,
    ) -> Self {
        Self {
            datastore,
            allocations,
            leaked,
            seconds: released.seconds,
            writing: released.writing,
            floor,
            peak_mib: released.peak_mib,
            journal_writes: released.recorded.intents.len(),
        }
    }
}

/// Measures releases on etcd.
pub(super) fn run_on_etcd(program: &str, sizes: &[String]) -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let measure = |size, folder: &Path| runtime.block_on(on_etcd::measure(program, size, folder));
    check::rows(sizes, |size| in_folder(|folder| measure(size, folder)), print)
}

/// Measures releases on the Kubernetes datastore.
pub(super) fn run_on_kubernetes(program: &str, sizes: &[String]) -> Result<(), Failed> {
    let measure = |size, folder: &Path| on_kubernetes::measure(program, size, folder);
    check::rows(sizes, |size| in_folder(|folder| measure(size, folder)), print)
}

/// Runs a measurement in a folder outside of memory file systems, in which durable writes would be free.
fn in_folder<R>(measure: impl FnOnce(&Path) -> Result<R, Failed>) -> Result<R, Failed> {
    let folder = tempfile::tempdir_in(".")?;
    measure(folder.path())
}

fn print(rows: &[Row]) {
    println!(
        "| datastore | allocations | released | command | writes | writing | a second | floor | ratio | server's share | \
         peak memory |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        println!(
            "| {} | {} | {} | {:.2} s | {} | {:.2} s | {:.0} | {:.2} s | {:.2} | {:.0} % | {:.0} MiB |",
            row.datastore,
            row.allocations,
            row.leaked,
            row.seconds,
            row.journal_writes,
            row.writing,
            row.leaked as f64 / row.writing,
            row.floor,
            row.writing / row.floor,
            100.0 * row.floor / row.writing,
            row.peak_mib,
        );
    }
}
