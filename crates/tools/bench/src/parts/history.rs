//! Histories of addresses and comparisons of states on etcd.

use std::process::Command;

use calipam_datastore::settings::Overrides;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::servers::{Etcd, EtcdOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bench::Bench;
use crate::cluster::seeded_etcd;
use crate::measured::{Measured, median};
use crate::{Failed, child, form, leak, observe};

/// Runs of each query. The table shows the median and the slowest run.
const RUNS: usize = 21;
/// Runs of each comparison and of its floor. The fastest run counts.
const COMPARISONS: usize = 3;
const BLOCKS: &str = "/calico/ipam/v2/assignment/ipv4/block/";
/// The interval of emptied blocks: every 50th block is emptied.
const EMPTIED: usize = 50;
/// Number of writes to the block of the address whose history is queried.
const CHURN: i64 = 40;

pub(super) const QUESTIONS: &str = "allocations | kept revisions | <command | median | slowest";

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let (program, runtime) = (bench.program, Runtime::new()?);
    let etcd = seeded_etcd(bench.number()?, EtcdOptions::new())?;
    let endpoint = ["--etcd-endpoints".to_owned(), etcd.endpoint()];
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    let exports = ["before", "after"].map(|name| folder.path().join(name).with_extension("jsonl.zst"));
    let [before, after] = exports.map(|path| path.display().to_string());
    let run = |arguments: &[&str], code| {
        child::measure(Command::new(program).args(arguments).args(&endpoint), &[code])
    };

    run(&["export", &before, "--quiet"], 0)?;
    let past = format!("etcd@{}", revision(&etcd)?);
    let blocks: Vec<_> =
        etcd.entries_below(BLOCKS)?.into_iter().map(|(key, (value, _))| (key, value)).collect();
    let emptied_block = |(key, value): &(String, Vec<u8>)| (key.clone(), emptied(value));
    etcd.put_all(&blocks.iter().skip(1).step_by(EMPTIED).map(emptied_block).collect::<Vec<_>>())?;
    leak::every_tenth(&etcd, form::ETCD.pods)?;
    run(&["export", &after, "--quiet"], 0)?;
    for (what, states) in [
        ("diff of two exports", [&*before, &after]),
        ("diff of a past revision and what is live", [&*past, "etcd"]),
    ] {
        let floor = || Measured::of(|| runtime.block_on(read_both(&etcd, states)));
        let diff = || run(&["diff", "--settle", "0", "-o", "json", states[0], states[1]], 1);
        bench.compare(what, COMPARISONS, floor, diff)?;
    }

    let (key, block) = blocks.first().ok_or("there is no block")?;
    let address = key.trim_start_matches(BLOCKS).split('-').next().unwrap_or_default();
    let mut ask_both = |revisions| {
        for (command, quick) in [("history", ""), ("show", " --quick")] {
            let line = format!("{command} --quiet --ip {address}{quick}");
            let arguments: Vec<&str> = line.split(' ').collect();
            let ask = |_| Ok(run(&arguments, 0)?.seconds * 1e3);
            let millis = (0..RUNS).map(ask).collect::<Result<Vec<f64>, Failed>>()?;
            let (middle, slowest) = (median(millis.iter().copied()), millis.into_iter().fold(0.0, f64::max));
            let cells = format!("{revisions} | `{command} --ip{quick}` | {middle:.0} ms | {slowest:.0} ms");
            bench.row(1, &cells);
        }
        Ok::<(), Failed>(())
    };
    for turn in 0..CHURN {
        etcd.put(key, if turn % 2 == 0 { emptied(block) } else { block.clone() })?;
    }
    ask_both(revision(&etcd)?)?;
    // kube-controllers compact all but the newest revisions every ten minutes.
    etcd.compact(revision(&etcd)? - CHURN)?;
    ask_both(CHURN)
}

/// The current revision of the server.
fn revision(etcd: &Etcd) -> Result<i64, Failed> {
    let answer = etcd.with_client(async |mut client| client.get(BLOCKS, None).await)?;
    Ok(answer.header().ok_or("an answer without a header")?.revision())
}

/// Returns a block without its allocations.
fn emptied(stored: &[u8]) -> Vec<u8> {
    let mut block: Value = serde_json::from_slice(stored).unwrap_or_default();
    let size = block["allocations"].as_array().map_or(0, Vec::len);
    block["allocations"] = vec![Value::Null; size].into();
    block["unallocated"] = (0..size).collect::<Vec<_>>().into();
    block["attributes"] = json!([]);
    block.to_string().into_bytes()
}

/// Reads two states. Files are read concurrently. States of etcd are read one after another, so that etcd serves only
/// one read at a time.
async fn read_both(etcd: &Etcd, states: [&str; 2]) -> Result<(Snapshot, Snapshot), Failed> {
    let [old, new] = states.map(|state| read(etcd, state));
    if states.contains(&"etcd") {
        return Ok((old.await?, new.await?));
    }
    tokio::try_join!(old, new)
}

/// Reads a file, `etcd`, or `etcd@` and a past revision.
async fn read(etcd: &Etcd, state: &str) -> Result<Snapshot, Failed> {
    let (place, revision) = match state.split_once('@') {
        Some((place, revision)) => (place, Some(revision.parse()?)),
        None => (state, None),
    };
    let overrides = Overrides {
        datastore: Some(place.to_owned()),
        etcd_endpoints: (place == "etcd").then(|| etcd.endpoint()),
        ..Overrides::default()
    };
    observe::observe(&overrides, revision).await
}
