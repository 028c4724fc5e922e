//! `calipam check --cache` on etcd against a check without, where one of a hundred workloads has changed since the last check.

use std::path::Path;

use etcd_client::{Client, Error, GetOptions, Txn, TxnOp};

use crate::child::Measured;
use crate::{Failed, check, child};

/// Runs of each measurement; the best one counts, since what disturbs a run only ever makes it slower.
const RUNS: usize = 3;
/// One workload in so many changes between two checks.
const CHANGED: usize = 100;

/// What a workload writes when it comes or goes: its endpoint, its handle and the block of its address.
const PREFIXES: [&str; 3] = [
    "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    "/calico/ipam/v2/handle/",
    "/calico/ipam/v2/assignment/",
];

/// One line of the table.
struct Row {
    allocations: u64,
    full: Measured,
    first: Measured,
    file_mib: f64,
    written: usize,
    second: Measured,
}

/// Measures each size and prints the tables.
pub fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, String> {
    let etcd = check::seeded(allocations)?;
    // Not in a memory file system.
    let folder = tempfile::tempdir_in(".").map_err(|e| e.to_string())?;
    let (endpoint, cache) = (etcd.endpoint(), folder.path().display().to_string());
    let full = || check::check(program, &["--etcd-endpoints", &endpoint]);
    let cached = || check::check(program, &["--etcd-endpoints", &endpoint, "--cache", &cache]);
    let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;

    let (mut fulls, mut seconds, mut written) = (vec![full()?], Vec::new(), 0);
    let first = cached()?;
    let file_mib = size(folder.path()).map_err(|e| e.to_string())? as f64 / f64::from(1 << 20);
    // They take turns, so that what disturbs the machine disturbs both.
    for run in 0..RUNS {
        written = runtime.block_on(change(&etcd.endpoint(), run)).map_err(|e| e.to_string())?;
        seconds.push(cached()?);
        fulls.push(full()?);
    }
    Ok(Row {
        allocations,
        full: child::best(fulls)?,
        first,
        file_mib,
        written,
        second: child::best(seconds)?,
    })
}

/// The size of the files in a folder.
fn size(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.map(|file| Ok(file?.metadata()?.len())).sum()
}

/// Writes what one workload of a hundred writes when it changes, each time of other workloads; gives the number of keys. The
/// values stay, so that the cluster is healthy.
async fn change(endpoint: &str, run: usize) -> Result<usize, Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
    let mut keys: [Vec<Vec<u8>>; 3] = Default::default();
    for (keys, prefix) in keys.iter_mut().zip(PREFIXES) {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let all = reader.get(prefix, Some(options)).await?;
        keys.extend(all.kvs().iter().map(|kv| kv.key().to_vec()));
    }
    let [endpoints, handles, blocks] = keys;
    let mut written = 0;
    for index in (run..endpoints.len().min(handles.len())).step_by(CHANGED) {
        let block = &blocks[index * 7_919 % blocks.len()];
        let all = [&endpoints[index], &handles[index], block];
        let reads: Vec<TxnOp> = all.iter().map(|key| TxnOp::get(key.as_slice(), None)).collect();
        let answer = client.txn(Txn::new().and_then(reads)).await?;
        let mut puts = Vec::new();
        for read in answer.op_responses() {
            if let etcd_client::TxnOpResponse::Get(read) = read {
                puts.extend(read.kvs().iter().map(|kv| TxnOp::put(kv.key(), kv.value(), None)));
            }
        }
        written += puts.len();
        client.txn(Txn::new().and_then(puts)).await?;
    }
    Ok(written)
}

fn print(rows: &[Row]) {
    println!(
        "| allocations | check | memory | first with a cache | its file | keys written | second | memory | ratio |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        println!(
            "| {} | {:.2} s | {:.0} MiB | {:.2} s | {:.0} MiB | {} | {:.2} s | {:.0} MiB | {:.2} |",
            row.allocations,
            row.full.seconds,
            row.full.peak_mib,
            row.first.seconds,
            row.file_mib,
            row.written,
            row.second.seconds,
            row.second.peak_mib,
            row.second.seconds / row.full.seconds,
        );
    }
}
