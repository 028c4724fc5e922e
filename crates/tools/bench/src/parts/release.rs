//! `calipam release --leaked` and its undo compared with only the same writes. Every tenth address is leaked, or every
//! hundredth for a size such as `1000000/100`.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use calipam_model::parallel;
use calipam_repair::journal::Recorded;
use calipam_testkit::kube::{Flavour, read};
use calipam_testkit::servers::{Etcd, EtcdOptions, KubeApiserver};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::cluster::Cluster;
use crate::kubernetes;
use crate::measured::Measured;
use crate::process::calipam;

/// Number of concurrent transactions. calipam's executor sends as many requests at a time.
const IN_FLIGHT: usize = 256;

/// Number of connections of the floor; more do not make it faster.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(32).expect("it is not zero");

pub(super) const TITLES: &str = "size | released | check | command | writes | writing | a second | floor | ratio | undo | its writing | \
                                 ratio | peak memory";

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
    let (undone, floor) = match cluster.api_server() {
        None => {
            let undone = undo()?;
            let again = journal.with_extension("again");
            run(release, &again)?;
            (undone, floor_on_etcd(cluster.etcd(), &Recorded::read(&again)?)?)
        }
        Some(server) => floor_on_kubernetes(server, undo)?,
    };
    let check = checked.seconds;
    let writing_back = writing_time(&back)?;
    let cells = format!(
        "{leaked} | {check:.2} s | {:.2} s | {} | {writing:.2} s | {:.0} | {floor:.2} s | {:.2} | {:.2} s | \
         {writing_back:.2} s | {:.2} | {:.0} MiB",
        released.seconds,
        recorded.intents.len(),
        leaked as f64 / writing,
        writing / floor,
        undone.seconds,
        writing_back / floor,
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

/// The time in seconds that etcd needs for the same transactions as the undo, without its reads.
fn floor_on_etcd(etcd: &Etcd, recorded: &Recorded) -> Result<f64> {
    let mut transactions = Vec::new();
    for intent in &recorded.intents {
        let Some(revisions) = recorded.outcomes.get(&intent.id).and_then(|o| o.written.as_ref()) else {
            continue;
        };
        let mut compares = Vec::new();
        let mut puts = Vec::new();
        for (change, revision) in intent.changes.iter().zip(revisions) {
            let revision = change
                .after
                .as_ref()
                .and(revision.as_ref())
                .map_or(Ok(0), |r| r.parse())?;
            compares.push(Compare::mod_revision(
                change.key.as_str(),
                CompareOp::Equal,
                revision,
            ));
            let before = change
                .before
                .as_ref()
                .and_then(|b| b.value.bytes())
                .unwrap_or_default();
            puts.push(TxnOp::put(change.key.as_str(), before.to_vec(), None));
        }
        transactions.push(Txn::new().when(compares).and_then(puts));
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
fn list(server: &KubeApiserver, plural: &str) -> BTreeMap<String, Value> {
    let path = Flavour::Classic.path(plural);
    let Value::Array(items) = read(server, &path)["items"].take() else {
        return BTreeMap::new();
    };
    let named = |item: Value| {
        (
            format!("{path}/{}", item["metadata"]["name"].as_str().unwrap_or_default()),
            item,
        )
    };
    items.into_iter().map(named).collect()
}
