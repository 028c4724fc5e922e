//! Histories of addresses and comparisons of states on etcd.

use anyhow::{Context, Result};
use calipam_model::key::BLOCK_PREFIX;
use calipam_testkit::datastore;
use calipam_testkit::values;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::bench::Bench;
use crate::measured::{Measured, median};
use crate::process::calipam;

/// Runs of each query. The table shows the median and the slowest run.
const RUNS: usize = 21;
/// Runs of each comparison and of its floor. The fastest run counts.
const COMPARISONS: usize = 3;
/// The interval of emptied blocks: every 50th block is emptied.
const EMPTIED: usize = 50;
/// Number of writes to the block of the address whose history is queried.
const CHURN: i64 = 40;

pub(super) const QUESTIONS: &str = "allocations | kept revisions | <command | median | slowest";

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let program = bench.program;
    let runtime = Runtime::new()?;
    let cluster = bench.cluster()?;
    let etcd = cluster.etcd();
    let connection = cluster.connection();
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    let [before, after] =
        ["before", "after"].map(|name| folder.path().join(name).with_extension("jsonl.zst"));
    let run = |command: &str, code| calipam(program, command, &connection, code);

    run(&format!("export {} --quiet", before.display()), 0)?;
    let past = cluster.revision()?;
    let blocks: Vec<_> = etcd.entries_below(BLOCK_PREFIX)?.into_iter().collect();
    let emptied_block = |(key, (value, _)): &(String, (Vec<u8>, i64))| (key.clone(), emptied(value));
    etcd.put_all(
        &blocks
            .iter()
            .skip(1)
            .step_by(EMPTIED)
            .map(emptied_block)
            .collect::<Vec<_>>(),
    )?;
    cluster.leak(10)?;
    run(&format!("export {} --quiet", after.display()), 0)?;

    let diff = |old: &str, new: &str| run(&format!("diff --settle 0 -o json {old} {new}"), 1);
    let read = async |path| datastore::observe(&datastore::open(datastore::file(path)).await).await;
    // Files are read concurrently, and states of etcd one after another, so that etcd serves one read at a time.
    let files = || Measured::of(|| Ok(runtime.block_on(async { tokio::join!(read(&before), read(&after)) })));
    let states = || {
        let read = async || {
            let store = cluster.open().await;
            let old = store.observe_at(past, &datastore::quiet()).await?;
            Ok((old, datastore::observe(&store).await))
        };
        Measured::of(|| runtime.block_on(read()))
    };
    let [old, new] = [&before, &after].map(|path| path.display().to_string());
    bench.compare("diff of two exports", COMPARISONS, files, || diff(&old, &new))?;
    let of_past = || diff(&format!("etcd@{past}"), "etcd");
    bench.compare(
        "diff of a past revision and what is live",
        COMPARISONS,
        states,
        of_past,
    )?;

    let (key, (block, _)) = blocks.first().context("there is no block")?;
    let address = key
        .rsplit('/')
        .next()
        .and_then(|cidr| cidr.split('-').next())
        .unwrap_or_default();
    let mut ask_both = |revisions| {
        for (command, quick) in [("history", ""), ("show", " --quick")] {
            let line = format!("{command} --quiet --ip {address}{quick}");
            let millis = (0..RUNS).map(|_| Ok(run(&line, 0)?.seconds * 1e3));
            let millis = millis.collect::<Result<Vec<f64>>>()?;
            let slowest = millis.iter().copied().fold(0.0, f64::max);
            let middle = median(millis);
            let cells = format!("{revisions} | `{command} --ip{quick}` | {middle:.0} ms | {slowest:.0} ms");
            bench.row(1, &cells);
        }
        anyhow::Ok(())
    };
    for turn in 0..CHURN {
        etcd.put(
            key,
            if turn % 2 == 0 {
                emptied(block)
            } else {
                block.clone()
            },
        )?;
    }
    ask_both(cluster.revision()?)?;
    // kube-controllers compact all but the newest revisions every ten minutes.
    etcd.compact(cluster.revision()? - CHURN)?;
    ask_both(CHURN)
}

/// Returns a block without its allocations.
fn emptied(stored: &[u8]) -> Vec<u8> {
    let block: Value = serde_json::from_slice(stored).unwrap_or_default();
    let cidr = block["cidr"].as_str().unwrap_or_default();
    values::block(cidr, block["affinity"].clone(), [])
        .to_string()
        .into_bytes()
}
