//! Reads the parts of a plan in parallel, and passes them on in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use calipam_files::raw::{RawEntry, next_key};
use calipam_files::{Progress, ProgressFn};
use calipam_model::block::RecordDetail;
use calipam_model::parallel::lock;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::plan::{LEAST_LIMIT, Part};
use crate::error::{Error, Failure, Result};
use crate::etcd::client::EtcdClient;

/// Maximum number of parallel requests.
const IN_FLIGHT: usize = 4;
/// Maximum number of parts that have been started but not passed on.
const AHEAD: usize = 32;
/// Maximum size of an answer in bytes, as predicted from the previous answer.
const MOST_BYTES: usize = 32 << 20;

/// Receives the entries of a read. Parts are filled in parallel, then passed on in the order of the queue.
pub(crate) trait Collector: Send + 'static {
    type Chunk: Send + 'static;

    /// Creates a part without entries.
    fn chunk(records: RecordDetail) -> Self::Chunk;

    /// Adds an entry to a part.
    fn add(chunk: &mut Self::Chunk, entry: RawEntry<'_>);

    /// Receives a part, or the next piece of one.
    fn commit(&mut self, chunk: Self::Chunk) -> Result<()>;
}

/// An ongoing read: a queue of parts, and the collector that receives them in order.
pub(crate) struct Pull<C: Collector> {
    client: Arc<EtcdClient>,
    revision: i64,
    records: RecordDetail,
    queue: Mutex<Queue<C>>,
    queue_changed: Notify,
    entries_read: AtomicU64,
    entries_expected: AtomicU64,
    progress: ProgressFn,
}

struct Queue<C: Collector> {
    /// Parts that no task has started to read.
    waiting: VecDeque<Part>,
    /// True once no more parts are added.
    is_closed: bool,
    /// Number of parts that were started.
    started: usize,
    /// Number of parts that were fully committed.
    committed: usize,
    /// Finished parts that wait for earlier ones.
    finished: BTreeMap<usize, C::Chunk>,
    collector: C,
}

impl<C: Collector> Pull<C> {
    /// Creates a read of etcd's keys as of `revision`, which passes their entries to `collector` and reports to
    /// `progress` how many it has read. [`Self::push`] then adds the parts to read.
    pub(crate) fn new(
        client: Arc<EtcdClient>,
        revision: i64,
        records: RecordDetail,
        collector: C,
        progress: ProgressFn,
    ) -> Arc<Self> {
        let empty_queue = Queue {
            waiting: VecDeque::new(),
            is_closed: false,
            started: 0,
            committed: 0,
            finished: BTreeMap::new(),
            collector,
        };
        Arc::new(Self {
            client,
            revision,
            records,
            queue: Mutex::new(empty_queue),
            queue_changed: Notify::new(),
            entries_read: AtomicU64::new(0),
            entries_expected: AtomicU64::new(0),
            progress,
        })
    }

    /// Starts the tasks that read the parts of the queue. Dropping the returned set ends them.
    pub(crate) fn start(self: &Arc<Self>) -> JoinSet<Result<()>> {
        let mut tasks = JoinSet::new();
        for _ in 0..IN_FLIGHT {
            let pull = Arc::clone(self);
            tasks.spawn(async move {
                while let Some((index, part)) = pull.next_part().await {
                    pull.read_part(index, part).await?;
                }
                Ok(())
            });
        }
        tasks
    }

    /// Appends parts to the queue.
    pub(crate) fn push(&self, parts: Vec<Part>) {
        let expected: usize = parts.iter().map(|part| part.expected).sum();
        self.entries_expected
            .fetch_add(expected as u64, Ordering::Relaxed);
        lock(&self.queue).waiting.extend(parts);
        self.queue_changed.notify_waiters();
    }

    /// Marks the end of the queue.
    pub(crate) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.queue_changed.notify_waiters();
    }

    /// Adds entries that were read earlier. Must be called before the first [`Self::push`].
    pub(crate) fn add<'e>(&self, entries: impl Iterator<Item = RawEntry<'e>>) -> Result<()> {
        let mut chunk = C::chunk(self.records);
        let mut added = 0;
        for entry in entries {
            C::add(&mut chunk, entry);
            added += 1;
        }
        self.count(added);
        lock(&self.queue).collector.commit(chunk)
    }

    /// The number of entries that were read.
    pub(crate) fn entries(&self) -> u64 {
        self.entries_read.load(Ordering::Relaxed)
    }

    /// Returns the collector; `None` before all tasks have ended.
    pub(crate) fn finish(self: Arc<Self>) -> Option<C> {
        let pull = Arc::into_inner(self)?;
        let queue = pull.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(queue.collector)
    }

    /// Waits for the next part and its index; `None` at the end of the queue. Does not return a part while
    /// [`AHEAD`] others are read or wait for earlier ones, since they are kept in memory.
    async fn next_part(&self) -> Option<(usize, Part)> {
        loop {
            let queue_changed = self.queue_changed.notified();
            tokio::pin!(queue_changed);
            // No notification is missed from here on.
            queue_changed.as_mut().enable();
            {
                let mut queue = lock(&self.queue);
                let may_start = queue.started < queue.committed + AHEAD;
                if may_start && let Some(part) = queue.waiting.pop_front() {
                    let index = queue.started;
                    queue.started += 1;
                    return Some((index, part));
                }
                if queue.is_closed && queue.waiting.is_empty() {
                    return None;
                }
            }
            queue_changed.await;
        }
    }

    /// Reads one part, in several requests if it has more keys than expected.
    async fn read_part(&self, index: usize, part: Part) -> Result<()> {
        let mut chunk = C::chunk(self.records);

        // The first limit has a margin, since a sample is never exact.
        let limit = (part.expected * 4).max(LEAST_LIMIT) as i64;
        let mut range = part.range.clone().at(self.revision).with_limit(limit);
        loop {
            let reply = self.client.read_bulk(&range, part.what).await?;
            reply
                .for_each(|entry| C::add(&mut chunk, entry))
                .ok_or_else(|| self.malformed("an answer"))?;
            self.count(reply.len as u64);
            if !reply.more {
                return self.commit(index, chunk);
            }

            // The next request starts after the last key, so the reply must have one.
            let mut after_last = None;
            reply
                .for_each(|entry| after_last = Some(next_key(entry.key)))
                .ok_or_else(|| self.malformed(part.what))?;
            range.start = after_last.ok_or_else(|| self.malformed(part.what))?;

            // The limit is doubled, unless answers would become too large.
            let average = reply.size() / reply.len.max(1);
            let max_limit = i64::try_from(MOST_BYTES / average.max(1)).unwrap_or(i64::MAX);
            range.limit = (range.limit * 2).min(max_limit).max(1);
            chunk = self.commit_piece(index, chunk)?;
        }
    }

    /// Counts entries that were read, and reports the progress.
    fn count(&self, entries: u64) {
        let read = self.entries_read.fetch_add(entries, Ordering::Relaxed) + entries;
        let expected = self.entries_expected.load(Ordering::Relaxed).max(read);
        (self.progress)(Progress { read, expected });
    }

    /// Passes on the data of an incomplete part if it is the part's turn, and returns an empty chunk for its rest.
    /// Otherwise returns the data.
    fn commit_piece(&self, index: usize, chunk: C::Chunk) -> Result<C::Chunk> {
        let mut queue = lock(&self.queue);
        if queue.committed != index {
            return Ok(chunk);
        }
        queue.collector.commit(chunk)?;
        Ok(C::chunk(self.records))
    }

    /// Passes on a complete part, and the finished parts that waited for it.
    fn commit(&self, index: usize, chunk: C::Chunk) -> Result<()> {
        let mut queue = lock(&self.queue);
        queue.finished.insert(index, chunk);
        loop {
            let next_index = queue.committed;
            let Some(next_chunk) = queue.finished.remove(&next_index) else {
                break;
            };
            queue.collector.commit(next_chunk)?;
            queue.committed += 1;
        }
        drop(queue);

        // Tasks that were too far ahead may start the next part now.
        self.queue_changed.notify_waiters();
        Ok(())
    }

    fn malformed(&self, what: &str) -> Error {
        self.client
            .error(what, Failure::NotEtcd("its answer cannot be decoded".into()))
    }
}
