//! The whole read of an etcd datastore at one revision.

mod plan;
pub(crate) mod pull;

use std::panic::resume_unwind;
use std::sync::Arc;

use calipam_files::raw::{RawEntry, next_key, prefix_end};
use calipam_files::{Extent, ProgressFn, newest_time};
use calipam_model::block::RecordDetail;
use calipam_model::key::{BLOCK_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, RESOURCE_PREFIX};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot, Source};
use etcd_client::GetResponse;
use jiff::Timestamp;

use self::plan::{Part, Sample};
use self::pull::{Collector, Pull};
use crate::error::{Error, Failure, Result};
use crate::etcd::client::{Answers, EtcdClient, FUTURE, Range, entries};
use crate::retries::{Retries, WHOLE_READS, always_compacted};
use crate::secret::redact_url;

/// Maximum number of keys to read from each range in the first request.
const FIRST_LIMIT: i64 = 20_000;
/// Maximum number of nodes to read in the first request, since the values of nodes are large.
const FIRST_NODES: i64 = 1_000;

/// The result of a whole read.
#[derive(Debug)]
pub(crate) struct Observed<C> {
    pub collector: C,
    pub start: Start,
}

/// The beginning of a whole read.
#[derive(Debug)]
pub(crate) struct Start {
    pub endpoint: String,
    /// The revision of the whole read.
    pub revision: i64,
    /// The time of the first answer.
    pub taken_at: Timestamp,
    /// The answers to the first request, which contain all objects of the small kinds. Their `ranges` are cleared once
    /// their entries have been passed on.
    pub first: Answers,
}

/// Reads `extent` at `requested_revision`, or else at the revision of the first answer. `collect` creates the collector
/// for each attempt. Starts over if the revision is compacted, unless it was requested. Also starts over, on a new
/// connection, if the connection breaks.
///
/// # Errors
/// If etcd cannot be read, or has no Calico data.
pub(crate) async fn observe<C: Collector>(
    client: &Arc<EtcdClient>,
    requested_revision: Option<i64>,
    extent: &Extent,
    collect: impl Fn(&Start) -> Result<C>,
    progress: &ProgressFn,
) -> Result<Observed<C>> {
    let mut client = Arc::clone(client);
    let mut retries = Retries::new(&WHOLE_READS);
    loop {
        let error = match observe_once(&client, requested_revision, extent, &collect, progress).await {
            Ok(observed) => return Ok(observed),
            Err(error) => error,
        };
        if let Some(revision) = requested_revision
            && let Some(unreadable) = unreadable_revision(&client, revision, &error).await
        {
            return Err(unreadable);
        }
        if let Error::Request {
            failure: Failure::Compacted,
            endpoint,
            ..
        } = &error
        {
            // The next attempt reads at a newer revision.
            if !retries.pause().await {
                return Err(always_compacted(endpoint));
            }
        } else if error.is_transient() && retries.pause().await {
            client = client.reconnect().await?;
        } else {
            return Err(error);
        }
        tracing::info!("reading again from the start: {error}");
    }
}

/// The error for a requested revision that cannot be read; `None` if `error` has another meaning.
async fn unreadable_revision(client: &EtcdClient, revision: i64, error: &Error) -> Option<Error> {
    let Error::Request {
        failure, endpoint, ..
    } = error
    else {
        return None;
    };
    match failure {
        Failure::Compacted => Some(compacted(endpoint, revision, client.oldest_revision().await.ok())),
        Failure::NoQuorum(message) if message.contains(FUTURE) => Some(Error::other(
            format!("{endpoint}: has not reached revision {revision}"),
            "is it a revision of this etcd? A restored etcd continues from the revision of its snapshot",
        )),
        _ => None,
    }
}

/// The error for a requested revision that is no longer kept. `oldest` is the oldest one, if it is known.
fn compacted(endpoint: &str, revision: i64, oldest: Option<i64>) -> Error {
    let message = format!("{endpoint}: revision {revision} has been compacted");
    let Some(oldest) = oldest else {
        let hint = "etcd drops what is older than its last compaction: use a newer revision, or a snapshot or export from that time";
        return Error::other(message, hint);
    };
    let hint =
        format!("`etcd@{oldest}` can be read; earlier states can only come from a snapshot or an export");
    Error::other(
        format!("{message}; the oldest available revision is {oldest}"),
        hint,
    )
}

async fn observe_once<C: Collector>(
    client: &Arc<EtcdClient>,
    requested_revision: Option<i64>,
    extent: &Extent,
    collect: &impl Fn(&Start) -> Result<C>,
    progress: &ProgressFn,
) -> Result<Observed<C>> {
    client.widen().await;

    // Small kinds and affinities are read first. Their answer fixes the revision, and the affinities name the blocks.
    let ranges = first_ranges(requested_revision.unwrap_or_default(), extent);
    let mut start = begin(client, &ranges, requested_revision).await?;
    let revision = start.revision;
    let pull = Pull::new(
        Arc::clone(client),
        revision,
        extent.records(),
        collect(&start)?,
        Arc::clone(progress),
    );
    let mut remainders = Vec::new();
    let mut keys_of_affinities = Vec::new();
    for (range, answer) in ranges.iter().zip(&start.first.ranges) {
        pull.add(entries(answer))?;
        remainders.extend(remainder(range, answer));
        if range.start == affinities_start() {
            keys_of_affinities = affinity_keys(client, revision, range, answer).await?;
        }
    }
    pull.push(remainders);
    start.first.ranges.clear();

    let block_keys = plan::block_keys(keys_of_affinities.iter().map(Vec::as_slice));
    if extent.has(Source::Blocks) {
        pull.push(plan::blocks(&block_keys));
    }

    // While blocks are read, a sample of them determines the ranges of handles and endpoints.
    let mut tasks = pull.start();
    if extent.has_any(&[Source::Handles, Source::Endpoints]) {
        let sample = read_sample(client, revision, &block_keys).await?;
        pull.push(sample.handles_and_endpoints(block_keys.len(), extent));
    }
    pull.close();

    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok(result) => result?,
            Err(panicked) => resume_unwind(panicked.into_panic()),
        }
    }

    if pull.entries() == 0 {
        // An etcd without any Calico keys is probably not the right one.
        let range = Range::prefix("/calico/").at(revision).with_limit(1).keys_only();
        if client.get(&[range], "/calico/").await?.entries().count() == 0 {
            return Err(Error::NoCalico {
                location: client.endpoint().to_owned(),
            });
        }
    }

    let Some(collector) = pull.finish() else {
        let failure = Failure::Other("a task is still reading".into());
        return Err(client.error("everything", failure));
    };
    Ok(Observed { collector, start })
}

/// Sends the first request, which fixes the revision for all others.
async fn begin(client: &EtcdClient, ranges: &[Range], requested_revision: Option<i64>) -> Result<Start> {
    let first = client.get(ranges, "Calico's configuration").await?;
    let revision = requested_revision.unwrap_or(first.revision);
    Ok(Start {
        endpoint: redact_url(client.endpoint()),
        revision,
        taken_at: crate::clock::now(),
        first,
    })
}

/// The start of the affinities' keys, `host/` and `virtual/`, which follow the handles' keys.
fn affinities_start() -> Vec<u8> {
    prefix_end(HANDLE_PREFIX.as_bytes())
}

/// Returns the ranges of small kinds, and of affinities. Together with the ranges of blocks and handles, they cover
/// everything below the IPAM prefix, since unknown keys are reported as findings. Revision 0 is the newest one.
fn first_ranges(revision: i64, extent: &Extent) -> Vec<Range> {
    let after = |prefix: &str| prefix_end(prefix.as_bytes());
    let resource = |plural: &str| format!("{RESOURCE_PREFIX}{plural}/");
    let mut ranges = Vec::new();
    if *extent == Extent::Whole {
        // No known key is in this range.
        let before_blocks = Range::between(IPAM_PREFIX, BLOCK_PREFIX);
        ranges.push(before_blocks.with_limit(FIRST_LIMIT));
    }
    if extent.has(Source::IpamConfig) {
        let after_blocks = Range::between(after(BLOCK_PREFIX), HANDLE_PREFIX);
        ranges.push(after_blocks.with_limit(FIRST_LIMIT));
    }
    if extent.has_any(&[Source::Affinities, Source::Blocks]) {
        // Affinities name the blocks.
        let affinities = Range::between(affinities_start(), after(IPAM_PREFIX));
        ranges.push(affinities.with_limit(FIRST_LIMIT));
    }

    if extent.has(Source::ClusterInformation) {
        let cluster = Range::prefix(&resource("clusterinformations"));
        ranges.push(cluster.with_limit(FIRST_LIMIT));
    }
    if extent.has_any(&[
        Source::IpamConfiguration,
        Source::Pools,
        Source::Reservations,
        Source::KubeControllersConfiguration,
    ]) {
        // ipamconfigurations, ippools, ipreservations and kubecontrollersconfigurations are neighbors.
        let settings = Range::between(
            resource("ipamconfigurations"),
            after(&resource("kubecontrollersconfigurations")),
        );
        ranges.push(settings.with_limit(FIRST_LIMIT));
    }
    if extent.has(Source::Nodes) {
        ranges.push(Range::prefix(&resource("nodes")).with_limit(FIRST_NODES));
    }

    // Not serializable, since the member that answers may not have this revision yet.
    for range in &mut ranges {
        range.revision = revision;
    }
    ranges
}

/// The part of `range` after the last key in its answer; `None` if the answer contains all keys of the range.
fn remainder(range: &Range, answer: &GetResponse) -> Option<Part> {
    if !answer.more() {
        return None;
    }
    let last = answer.kvs().last()?;
    let count = usize::try_from(answer.count()).unwrap_or(0);
    Some(Part {
        range: Range::between(next_key(last.key()), range.end.as_slice()),
        expected: count.saturating_sub(answer.kvs().len()),
        what: "nodes and affinities",
    })
}

/// The keys of all affinities, from the first answer and beyond its limit.
async fn affinity_keys(
    client: &EtcdClient,
    revision: i64,
    range: &Range,
    first: &GetResponse,
) -> Result<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = entries(first).map(|entry| entry.key.to_vec()).collect();
    if let Some(part) = remainder(range, first) {
        let rest = part.range.at(revision).keys_only();
        // A malformed answer is detected when the same range is read with its values.
        client
            .read_bulk(&rest, part.what)
            .await?
            .for_each(|entry| keys.push(entry.key.to_vec()));
    }
    Ok(keys)
}

/// Reads a sample of blocks from the whole range.
async fn read_sample(client: &EtcdClient, revision: i64, block_keys: &[Vec<u8>]) -> Result<Sample> {
    let mut sample = Sample::default();
    let mut ranges = Vec::new();
    for range in plan::sample_ranges(block_keys) {
        ranges.push(range.at(revision));
    }
    if ranges.is_empty() {
        return Ok(sample);
    }

    for entry in client.get(&ranges, "blocks").await?.entries() {
        sample.add(entry.value);
    }
    Ok(sample)
}

/// Reads `extent` into a snapshot, at the newest revision or a past one. etcd does not record the times of its
/// revisions, so a snapshot of a past revision has the newest time in its data.
pub(crate) async fn observe_at(
    client: &Arc<EtcdClient>,
    past_revision: Option<i64>,
    extent: &Extent,
    progress: &ProgressFn,
) -> Result<Snapshot> {
    let collect = |_: &Start| {
        Ok(Snapshot {
            records: extent.records(),
            ..Snapshot::default()
        })
    };
    let Observed {
        collector: mut snapshot,
        start,
    } = observe(client, past_revision, extent, collect, progress).await?;

    let mut taken_at = start.taken_at;
    if past_revision.is_some()
        && let Some(newest) = newest_time(&snapshot, start.taken_at)
    {
        taken_at = newest;
    }
    snapshot.set_origin(start.endpoint, start.revision, taken_at);
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.mark_read(ETCD_SOURCES.into_iter().filter(|source| extent.has(*source)));
    extent.mark_unwanted(&mut snapshot);
    Ok(snapshot)
}

impl Collector for Snapshot {
    type Chunk = Self;

    fn chunk(records: RecordDetail) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        chunk.add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.absorb(chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::key::ENDPOINT_PREFIX;

    use super::*;

    /// The first ranges, together with the ranges of blocks and handles, cover every key below the IPAM prefix exactly
    /// once.
    #[test]
    fn nothing_below_the_ipam_prefix_is_left_out() {
        let mut ranges = first_ranges(0, &Extent::Whole);
        ranges.truncate(3);
        ranges.push(Range::prefix(BLOCK_PREFIX));
        ranges.push(Range::prefix(HANDLE_PREFIX));
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        assert_eq!(ranges[0].start, IPAM_PREFIX.as_bytes());
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
        assert_eq!(ranges.last().unwrap().end, prefix_end(IPAM_PREFIX.as_bytes()));
        let all = first_ranges(0, &Extent::Whole);
        assert!(
            all.iter()
                .all(|r| !r.start.starts_with(ENDPOINT_PREFIX.as_bytes()))
        );
        assert!(all.iter().any(|r| r.start == affinities_start()));
    }

    #[test]
    fn a_read_of_some_sources_has_their_ranges_only() {
        let starts = |sources: &[Source]| {
            let extent = Extent::Sources(sources.iter().copied().collect());
            let ranges = first_ranges(0, &extent).into_iter();
            ranges
                .map(|range| String::from_utf8(range.start).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(&[Source::Blocks]), ["/calico/ipam/v2/handle0"]);
        assert_eq!(
            starts(&[Source::Pools, Source::Nodes, Source::IpamConfig]),
            [
                "/calico/ipam/v2/assignment0",
                "/calico/resources/v3/projectcalico.org/ipamconfigurations/",
                "/calico/resources/v3/projectcalico.org/nodes/"
            ]
        );
    }
}
