//! `calipam release --leaked` and its undo compared with only the same writes. Every tenth address is leaked, or every
//! hundredth for a size such as `1000000/100`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use calipam_model::parallel;
use calipam_repair::journal::{Recorded, Value};
use calipam_testkit::kube::{Flavour, read};
use calipam_testkit::servers::{Etcd, EtcdOptions, KubeApiserver};
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::cluster::Cluster;
use crate::kubernetes;
use crate::measured::Measured;
use crate::process::calipam;

/// Number of concurrent transactions. calipam's executor sends as many requests at a time.
const IN_FLIGHT: usize = 256;

/// Maximum number of operations in a transaction of etcd.
const MOST_OPERATIONS: usize = 128;

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(32).expect("it is not zero");

pub(super) const TITLES: &str = "size | released | check | command | writes | writing | a second | floor | ratio | undo | its writing | \
                                 floor | ratio | peak memory";

/// Leaks some addresses of a cluster, releases them, and undoes that. Sizes are allocations on `etcd` and pods on
/// `kubernetes`.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    // The folder is not in a memory-backed file system, where durable writes would be free.
    let folder = tempfile::tempdir_in(".")?;
    let durable = EtcdOptions::new().argument("--unsafe-no-fsync=false");
    let (size, step) = bench.size.split_once('/').unwrap_or((bench.size, "10"));
    let size: usize = size.parse()?;
    let cluster = Cluster::sized(bench.datastore, size as u64, durable)?;
    let leaked = cluster.leak(step.parse()?)?;
    if let Some(server) = cluster.api_server() {
        kubernetes::wait_for_caches(server)?;
        let pods = read(server, "/api/v1/pods")["items"]
            .as_array()
            .map_or(0, Vec::len);
        ensure!(
            pods == size - leaked,
            "{pods} pods are left of {size}, and {leaked} were deleted"
        );
    }

    let program = bench.program;
    let connection = cluster.connection();
    let checked = calipam(program, "check --grace 0 --settle 0 -o json", &connection, 1)?;
    let run = |command: &str, journal: &Path| {
        let command = format!("{command} --yes --journal {}", journal.display());
        calipam(program, &command, &connection, 0)
    };
    let release = "release --leaked --grace 0 --settle 0";
    let journal = folder.path().join("run.journal");
    let released = run(release, &journal)?;
    let recorded = Recorded::read(&journal)?;
    let writing = writing_time(&journal)?;

    let back = journal.with_extension("back");
    let undo = || run(&format!("undo {}", journal.display()), &back);
    let undone;
    let floor;
    let floor_back;
    match cluster.api_server() {
        None => {
            undone = undo()?;
            // The writes of the release leave the objects as they were before the undo.
            floor = floor_on_etcd(cluster.etcd(), &recorded)?;
            floor_back = floor_on_etcd(cluster.etcd(), &Recorded::read(&back)?)?;
        }
        Some(server) => {
            (undone, floor) = floor_on_kubernetes(server, undo)?;
            floor_back = floor;
        }
    }
    let check = checked.seconds;
    let writing_back = writing_time(&back)?;
    let cells = format!(
        "{leaked} | {check:.2} s | {:.2} s | {} | {writing:.2} s | {:.0} | {floor:.2} s | {:.2} | {:.2} s | \
         {writing_back:.2} s | {floor_back:.2} s | {:.2} | {:.0} MiB",
        released.seconds,
        recorded.intents.len(),
        leaked as f64 / writing,
        writing / floor,
        undone.seconds,
        writing_back / floor_back,
        released.peak_mib,
    );
    bench.row(0, &cells);
    Ok(())
}

/// The time in seconds from the first line of a journal to the last.
fn writing_time(journal: &Path) -> Result<f64> {
    let begun: jiff::Timestamp = Recorded::read(journal)?.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(fs::metadata(journal)?.modified()?)?;
    Ok(ended.duration_since(begun).as_secs_f64())
}

/// The time in seconds that etcd needs for the transactions of a run, with all that they compare, but without any read
/// before them. The objects must be as they were before the run.
fn floor_on_etcd(etcd: &Etcd, run: &Recorded) -> Result<f64> {
    let revisions = revisions(etcd, run)?;
    let mut transactions = Vec::new();
    for intent in &run.intents {
        let changed = intent.changes.iter().map(|change| &change.key);
        let guards = intent.guards.iter().map(|guard| &guard.key);
        let mut compares = Vec::new();
        for key in changed.chain(guards) {
            let revision = revisions.get(key).copied().unwrap_or_default();
            compares.push(Compare::mod_revision(key.as_str(), CompareOp::Equal, revision));
        }

        let mut operations = Vec::new();
        for change in &intent.changes {
            let after = change.after.as_ref().and_then(Value::bytes);
            operations.push(match after {
                Some(value) => TxnOp::put(change.key.as_str(), value.to_vec(), None),
                None => TxnOp::delete(change.key.as_str(), None),
            });
        }
        transactions.push(Txn::new().when(compares).and_then(operations));
    }

    let (seconds, lost) = etcd.with_client(async |client| {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        let mut lost = 0;
        let mut transactions = transactions.into_iter();
        loop {
            while running.len() < IN_FLIGHT
                && let Some(transaction) = transactions.next()
            {
                let mut client = client.clone();
                running.spawn(async move { client.txn(transaction).await });
            }
            match running.join_next().await {
                Some(done) => lost += u32::from(!done.expect("it does not panic")?.succeeded()),
                None => return Ok((begin.elapsed().as_secs_f64(), lost)),
            }
        }
    })?;
    ensure!(lost == 0, "{lost} transactions are lost");
    Ok(seconds)
}

/// The current revisions of all objects that a run has changed or compared, by their keys. Absent objects are left out.
fn revisions(etcd: &Etcd, run: &Recorded) -> Result<BTreeMap<String, i64>> {
    let mut keys = BTreeSet::new();
    for intent in &run.intents {
        keys.extend(intent.changes.iter().map(|change| change.key.clone()));
        keys.extend(intent.guards.iter().map(|guard| guard.key.clone()));
    }
    let keys = Vec::from_iter(keys);
    etcd.with_client(async |mut client| {
        let mut revisions = BTreeMap::new();
        for part in keys.chunks(MOST_OPERATIONS) {
            let keys_only = GetOptions::new().with_keys_only();
            let reads: Vec<TxnOp> = part
                .iter()
                .map(|key| TxnOp::get(key.as_str(), Some(keys_only.clone())))
                .collect();
            let answer = client.txn(Txn::new().and_then(reads)).await?;
            for read in answer.op_responses() {
                if let TxnOpResponse::Get(found) = read {
                    for kv in found.kvs() {
                        revisions.insert(kv.key_str()?.to_owned(), kv.mod_revision());
                    }
                }
            }
        }
        Ok(revisions)
    })
}

/// Undoes a release, and measures the time in seconds that the API server needs for its writes. Blocks are replaced, and
/// handles are marked and then deleted. Nothing is read. Also returns what `undo` took.
fn floor_on_kubernetes(
    server: &KubeApiserver,
    undo: impl FnOnce() -> Result<Measured>,
) -> Result<(Measured, f64)> {
    let blocks = list(server, "ipamblocks");
    let handles = list(server, "ipamhandles");
    let undone = undo()?;
    let mut work: Vec<Vec<(&str, String, String)>> = Vec::new();
    for (path, mut now) in list(server, "ipamblocks") {
        let after = blocks.get(&path).map(|after| &after["spec"]);
        if let Some(after) = after.filter(|after| after["allocations"] != now["spec"]["allocations"]) {
            now["spec"] = after.clone();
            work.push(vec![("PUT", path, now.to_string())]);
        }
    }
    for (path, mut now) in list(server, "ipamhandles") {
        if !handles.contains_key(&path) {
            now["spec"]["deleted"] = true.into();
            let options = json!({"preconditions": {"uid": now["metadata"]["uid"]}});
            let put = ("PUT", path.clone(), now.to_string());
            work.push(vec![put, ("DELETE", path, options.to_string())]);
        }
    }
    let sent = Measured::of(|| {
        let send = |place: usize| {
            work[place].iter().try_for_each(|(method, path, body)| {
                let response = server.request(method, path, body)?;
                ensure!(response.status == 200, "{method} {path}: {:.200}", response.body);
                Ok(())
            })
        };
        parallel::map(CONNECTIONS, work.len(), send)
            .into_iter()
            .collect::<Result<()>>()
    })?;
    Ok((undone, sent.seconds))
}

/// All objects of a kind, by their paths.
fn list(server: &KubeApiserver, plural: &str) -> BTreeMap<String, Json> {
    let path = Flavour::Classic.path(plural);
    let Json::Array(items) = read(server, &path)["items"].take() else {
        return BTreeMap::new();
    };
    let named = |item: Json| {
        (
            format!("{path}/{}", item["metadata"]["name"].as_str().unwrap_or_default()),
            item,
        )
    };
    items.into_iter().map(named).collect()
}
