//! How long reads of a datastore take, and writes, to which the operator has to agree.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use calipam_assign::{Entry, Record, Store, StoreError};
use calipam_check::ClusterIdentity;
use calipam_datastore::Datastore;
use calipam_datastore::write::Question;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_repair::Interrupt;

use crate::error::Error;
use crate::operator::{Activity, Operator, Pending};
use crate::read::read;
use crate::write::WritingNow;

/// Reads of a single key that are timed.
const READS: usize = 200;
/// A handle that no datastore has.
const NO_HANDLE: &str = "calipam-measure";

/// Writes of a key that are timed.
const WRITES: usize = 100;
/// A block that no cluster has, for a handle that claims an address of it (TEST-NET-1).
const NO_BLOCK: &str = "192.0.2.0/26";

/// How long reads took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// Of single keys, ascending.
    pub single: Vec<Duration>,
    /// Of everything that a check reads.
    pub whole: Duration,
    /// How many objects that was.
    pub objects: u64,
    /// The GUID of the cluster.
    pub cluster: String,
}

/// Reads a key that is not there a few times, one after the other, and everything once.
pub fn time_reads<'a>(
    datastore: &'a Datastore,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<ReadTimes, Error>> {
    Box::pin(async move {
        let keys = BTreeSet::from([Key::Handle(NO_HANDLE.to_owned())]);
        // The first request may open a connection.
        datastore.reread(&keys).await?;
        let mut single = Vec::with_capacity(READS);
        for _ in 0..READS {
            let begin = Instant::now();
            datastore.reread(&keys).await?;
            single.push(begin.elapsed());
        }
        single.sort();

        let begin = Instant::now();
        let snapshot = read(datastore, operator).await?;
        let whole = begin.elapsed();
        let counts = [
            snapshot.blocks.len(),
            snapshot.affinities.len(),
            snapshot.handles.len(),
            snapshot.pools.len(),
            snapshot.nodes.len(),
            snapshot.endpoints.len(),
            snapshot.pods.len(),
        ];
        let objects = counts.into_iter().map(|count| count as u64).sum();
        Ok(ReadTimes { single, whole, objects, cluster: ClusterIdentity::of(&snapshot).guid })
    })
}

/// Asks, writes a handle of its own many times, one write after the other, and removes it, after ctrl-c as well. Returns how long
/// the writes took, ascending.
///
/// The handle has an ID that no container has, and names a block that no cluster has: a check finds it as an orphan where this
/// process is killed.
pub fn time_writes<'a>(
    datastore: &'a Datastore,
    cluster: &'a str,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Vec<Duration>, Error>> {
    Box::pin(async move {
        let (cluster, location) = (cluster.to_owned(), datastore.location());
        let question = Question { cluster, location, handles: 1, ..Question::default() };
        let store = datastore.allocator(operator.ask(question).await.map_err(Error::NoConsent)?)?;
        let now = WritingNow::begin();
        let interrupt =
            Interrupt::on_signals().map_err(|error| Error::Io { doing: "wait for signals".into(), error })?;

        let meter = operator.start(Activity::Writing);
        let mut record = handle(0);
        let mut revision = store.create(&record).await?;
        let mut times = Vec::with_capacity(WRITES);
        let mut written: Result<(), StoreError> = Ok(());
        while written.is_ok() && times.len() < WRITES && !interrupt.is_set() {
            let begin = Instant::now();
            // Another value each time: an API server writes nothing if nothing changes.
            let next = handle(times.len() as i64 + 1);
            written = store.update(&next, &revision).await.map(|new| (record, revision) = (next, new));
            times.push(begin.elapsed());
            meter.set(times.len() as u64, WRITES as u64);
        }
        let removed = store.delete(&Entry { record, revision }).await;
        meter.end();
        drop(now);
        written?;
        removed?;
        times.sort();
        Ok(times)
    })
}

fn handle(count: i64) -> Record {
    let mut handle = Handle::new(NO_HANDLE);
    if let Ok(block) = NO_BLOCK.parse() {
        handle.set_count(block, count);
    }
    Record::Handle(handle)
}
