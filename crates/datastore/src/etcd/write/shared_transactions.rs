//! Combines the simultaneous reads and writes of parallel tasks into requests of up to 128 keys. The overhead of
//! separate requests would cost etcd and the client as much as the reads and writes themselves.
//!
//! Each caller sends the waiting reads or writes as soon as the limit of parallel requests allows it. If there are only
//! a few callers, none of them waits. Writes stay independent: if a precondition of any batch in a transaction fails,
//! each batch is sent again in its own transaction.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use calipam_model::key::Key;
use calipam_model::parallel::lock;
use calipam_model::snapshot::Revision;
use tokio::sync::{Semaphore, oneshot};

use super::{LIMITS, Parts};
use crate::error::{Failure, Result};
use crate::etcd::client::{EtcdClient, Range};
use crate::write::{BATCH, Batch, Stored, Swap};

/// Maximum number of parallel requests for reads.
const READS: usize = 8;
/// Maximum number of parallel requests for writes. It is higher than that for reads, since etcd syncs the writes of
/// several requests to disk together.
const WRITES: usize = 16;

/// The waiting reads and writes of one run.
#[derive(Debug)]
pub(super) struct SharedTransactions {
    reads: Queue<Read>,
    writes: Queue<Write>,
    /// True if each batch is sent in its own transaction, because evidence in Kubernetes is read just before it, or
    /// because a combined transaction has failed and the server's limits may be lower than the defaults.
    alone: AtomicBool,
}

/// The keys of a waiting read, and the channel for their values.
#[derive(Debug)]
struct Read {
    paths: Vec<String>,
    answer: oneshot::Sender<Vec<Option<Value>>>,
}

/// Revision and value of a key.
type Value = (i64, Bytes);

/// A waiting batch, and the channel for its outcome.
#[derive(Debug)]
struct Write {
    parts: Parts,
    answer: oneshot::Sender<Sent>,
}

/// The outcome of a batch.
#[derive(Debug)]
enum Sent {
    /// The batch was committed at this revision.
    Done(i64),
    /// An object was not in the expected state.
    Conflict,
    /// Several batches were sent together, and none was committed, because an object was not in the expected state.
    NoneOfSeveral,
    /// The request failed, but the batch may have been committed.
    Failed(Failure),
}

impl SharedTransactions {
    /// Creates queues for reads and writes. If `alone` is true, each write is sent by itself.
    pub(super) fn new(alone: bool) -> Arc<Self> {
        let reads = Queue::new(READS);
        let writes = Queue::new(WRITES);
        Arc::new(Self {
            reads,
            writes,
            alone: AtomicBool::new(alone),
        })
    }

    /// Reads keys, together with other reads that wait; many keys are read by themselves.
    pub(super) async fn read(&self, client: &Arc<EtcdClient>, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        if keys.is_empty() || keys.len() > LIMITS.conditions / 2 {
            return super::read(client, keys).await;
        }
        let (answer, answered) = oneshot::channel();
        self.reads.push(Read {
            paths: keys.iter().map(Key::to_string).collect(),
            answer,
        });
        let values = self.reads.wait(answered, || self.read_several(client)).await;
        let Some(values) = values.filter(|values| values.len() == keys.len()) else {
            // The combined request failed, perhaps because of another read, so this read is sent alone.
            return super::read(client, keys).await;
        };

        let mut objects = Vec::with_capacity(keys.len());
        for (key, value) in keys.iter().zip(values) {
            objects.push(value.map(|(revision, raw)| Stored::new(key, Revision::Etcd(revision), raw)));
        }
        Ok(objects)
    }

    /// Sends a request for waiting reads; returns false if there are none.
    async fn read_several(&self, client: &Arc<EtcdClient>) -> bool {
        let mut reads = Vec::new();
        let mut room = LIMITS.conditions;
        while let Some(read) = self.reads.take_if(|read| read.paths.len() <= room) {
            room -= read.paths.len();
            reads.push(read);
        }
        if reads.is_empty() {
            return false;
        }
        let mut ranges = Vec::new();
        for path in reads.iter().flat_map(|read| &read.paths) {
            ranges.push(Range::key(path.as_str()));
        }
        // After a failure, each read is sent alone.
        if let Ok(answers) = client.get(&ranges, "the objects to change").await {
            let mut values = Vec::with_capacity(ranges.len());
            for mut answer in answers.ranges {
                let value = answer.take_kvs().pop().map(|kv| {
                    let revision = kv.mod_revision();
                    let (_, value) = kv.into_key_value();
                    (revision, value.into())
                });
                values.push(value);
            }
            let mut values = values.into_iter();
            for Read { paths, answer } in reads {
                answer.send(values.by_ref().take(paths.len()).collect()).ok();
            }
        }
        true
    }

    /// Writes a batch, together with other writes that wait. If the combined transaction does nothing, sends the batch
    /// alone.
    pub(super) async fn commit(&self, client: &Arc<EtcdClient>, batch: &Batch) -> Result<Swap> {
        if self.alone.load(Ordering::Relaxed) {
            return super::commit(client, batch).await;
        }
        let parts = Parts::new(batch).map_err(|failure| client.write_error(BATCH, failure))?;
        let (answer, answered) = oneshot::channel();
        self.writes.push(Write { parts, answer });
        match self.writes.wait(answered, || self.write_several(client)).await {
            Some(Sent::Done(revision)) => Ok(super::committed(batch, revision)),
            Some(Sent::Conflict) => Ok(Swap::Conflict),
            Some(Sent::NoneOfSeveral) => super::commit(client, batch).await,
            Some(Sent::Failed(failure)) => Err(client.write_error(&super::name_of(batch), failure)),
            None => {
                let failure = Failure::broken("the write was abandoned");
                Err(client.write_error(&super::name_of(batch), failure))
            }
        }
    }

    /// Sends a transaction of waiting batches; returns false if there are none.
    async fn write_several(&self, client: &Arc<EtcdClient>) -> bool {
        let Some(Write { mut parts, answer }) = self.take_write(None) else {
            return false;
        };
        let mut answers = vec![answer];
        while let Some(next) = self.take_write(Some(&parts)) {
            parts.join(next.parts);
            answers.push(next.answer);
        }

        let result = client.transact(parts.transaction()).await;
        let has_several = answers.len() > 1;
        if result.is_err() && has_several {
            self.alone.store(true, Ordering::Relaxed);
        }
        for answer in answers {
            let sent = match &result {
                Ok(response) if response.succeeded() => {
                    Sent::Done(response.header().map_or(0, |header| header.revision()))
                }
                Ok(_) if has_several => Sent::NoneOfSeveral,
                Ok(_) => Sent::Conflict,
                Err(failure) => Sent::Failed(failure.clone()),
            };
            answer.send(sent).ok();
        }
        true
    }

    /// Takes the next waiting batch, if it can share a transaction with the batches in `combined`. Drops batches whose
    /// outcome no task waits for any more.
    fn take_write(&self, combined: Option<&Parts>) -> Option<Write> {
        let is_alone = self.alone.load(Ordering::Relaxed);
        loop {
            let write = self.writes.take_if(|next| match combined {
                Some(combined) => !is_alone && combined.can_share_transaction_with(&next.parts),
                None => true,
            })?;
            if !write.answer.is_closed() {
                return Some(write);
            }
        }
    }
}

/// Waiting items, and the limit of parallel requests.
#[derive(Debug)]
struct Queue<T> {
    waiting: Mutex<VecDeque<T>>,
    permits: Semaphore,
}

impl<T> Queue<T> {
    fn new(permits: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            permits: Semaphore::new(permits),
        }
    }

    fn push(&self, item: T) {
        lock(&self.waiting).push_back(item);
    }

    /// Takes the first waiting item if it is wanted.
    fn take_if(&self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut waiting = lock(&self.waiting);
        if waiting.front().is_some_and(is_wanted) {
            waiting.pop_front()
        } else {
            None
        }
    }

    /// Waits for an answer; `None` if it was lost. Meanwhile calls `send` to send waiting items when the limit allows
    /// it. `send` returns false if there are none.
    async fn wait<A, F: Future<Output = bool>>(
        &self,
        mut answered: oneshot::Receiver<A>,
        send: impl Fn() -> F,
    ) -> Option<A> {
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => return answer.ok(),
                _permit = self.permits.acquire() => {
                    // Lets other tasks that are about to send something join this request.
                    tokio::task::yield_now().await;
                    if !send().await {
                        break;
                    }
                }
            }
        }
        // Another task has sent the item.
        answered.await.ok()
    }
}
