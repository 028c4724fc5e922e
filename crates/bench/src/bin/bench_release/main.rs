//! Measures `calipam release --leaked` against what the server needs for the same writes:
//! `bench_release CALIPAM etcd|kubernetes ALLOCATIONS…`. Every tenth address is leaked. `cargo xtask bench` builds it in
//! release mode and runs it.

mod on_etcd;
mod on_kubernetes;
mod release;

use std::path::Path;
use std::process::ExitCode;

use self::release::Released;

/// What can fail.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One line of the table.
pub struct Row {
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

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(program), Some(datastore)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: bench_release CALIPAM etcd|kubernetes ALLOCATIONS…");
        return ExitCode::from(2);
    };
    let rows: Result<Vec<Row>, Failed> = arguments.map(|size| measure(&program, &datastore, &size)).collect();
    match rows {
        Ok(rows) => {
            print(&rows);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(program: &str, datastore: &str, size: &str) -> Result<Row, Failed> {
    // Not in a memory file system, where making a journal durable costs nothing.
    let folder = tempfile::tempdir_in(".")?;
    let folder: &Path = folder.path();
    match datastore {
        "etcd" => tokio::runtime::Runtime::new()?.block_on(on_etcd::measure(program, size.parse()?, folder)),
        "kubernetes" => on_kubernetes::measure(program, size.parse()?, folder),
        other => Err(format!("{other} is not a datastore").into()),
    }
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
