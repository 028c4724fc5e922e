//! How long harmless reads of a datastore take.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use calipam_datastore::Datastore;
use calipam_model::key::Key;

use crate::error::Error;
use crate::operator::{Operator, Pending};
use crate::read::read;

/// Reads of a single key that are timed.
const READS: usize = 200;
/// A handle that no datastore has.
const NO_HANDLE: &str = "calipam-measure";

/// How long reads took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// Of single keys, ascending.
    pub single: Vec<Duration>,
    /// Of everything that a check reads.
    pub whole: Duration,
    /// How many objects that was.
    pub objects: u64,
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
        Ok(ReadTimes { single, whole, objects: counts.into_iter().map(|count| count as u64).sum() })
    })
}
