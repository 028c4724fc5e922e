//! The etcd datastore for an allocator. A read sends all of its queries in one transaction if they fit, and each write
//! is a transaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use calipam_assign::{Entry, Query, StoreError, Swap, blocks_holding_elsewhere};
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot};
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::again;
use super::client::{EtcdClient, Range, entries};
use super::connection::Connection;
use super::write::LIMITS;
use crate::allocation::spans::{Span, beginnings, spans};
use crate::allocation::{Records, unavailable};
use crate::error::{Cause, Error, Failure};
use crate::retries::{ALLOCATIONS, Retries};

/// Time limit for a server to answer a read. It is short, because the container runtime waits and another endpoint may
/// answer. Writes have more time, since the outcome of an abandoned write is unknown.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of keys to read in a span. Only a span in which most keys are not wanted has more.
const MAX_KEYS_IN_SPAN: i64 = 1_000;

#[derive(Debug)]
pub(crate) struct EtcdStore {
    connection: Arc<Connection>,
}

impl EtcdStore {
    pub(crate) fn new(client: Arc<EtcdClient>) -> Self {
        Self {
            connection: Connection::new(&client),
        }
    }

    /// Reads the keys of all blocks and selects the wanted ones, since the query's ranges contain too many unwanted
    /// keys.
    async fn read_filtered(&self, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let all_keys = Range::prefix(&query.path()).keys_only();
        let mut entries = Vec::new();
        for answer in self.get(&[all_keys]).await? {
            entries.extend(decode(query, &answer).into_iter().flatten());
        }
        Ok(entries)
    }

    /// Reads ranges. Retries temporary failures at any endpoint that answers.
    async fn get(&self, ranges: &[Range]) -> Result<Vec<GetResponse>, StoreError> {
        let what = "the data for an allocation";
        let mut retries = Retries::new(&ALLOCATIONS);
        loop {
            let client = self.connection.current();
            let answer = tokio::time::timeout(READ_TIMEOUT, client.get(ranges, what)).await;
            let has_timed_out = answer.is_err();
            let error = match answer {
                Ok(Ok(answers)) => return Ok(answers.ranges),
                Ok(Err(error)) => error,
                Err(_) => client.error(what, Cause::TimedOut(READ_TIMEOUT.as_secs()).into()),
            };

            // An endpoint that did not answer in time would not answer a retry either.
            if has_timed_out && !client.has_other_endpoints() {
                return Err(unavailable(error));
            }
            retries.wait(error).await.map_err(unavailable)?;

            // Fails if no endpoint answers, since a retry would then be pointless.
            self.connection.replace(&client).await.map_err(unavailable)?;
        }
    }

    /// The error for a change that is not sent.
    fn refused(&self, reason: &str) -> StoreError {
        let client = self.connection.current();
        unavailable(client.write_error("a record", Failure::Other(reason.to_owned())))
    }
}

#[async_trait]
impl Records for EtcdStore {
    fn request_count(&self) -> u64 {
        self.connection.current().request_count()
    }

    /// Answers queries, as many as possible in one request.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        let ranges_of_queries: Vec<Vec<Range>> = queries.iter().map(ranges).collect();
        let ranges = ranges_of_queries.concat();
        let mut answers = Vec::with_capacity(ranges.len());
        for part in ranges.chunks(LIMITS.conditions) {
            answers.extend(self.get(part).await?);
        }

        let mut entries = Vec::with_capacity(queries.len());
        let mut answers = answers.iter();
        for (query, ranges) in queries.iter().zip(ranges_of_queries) {
            let answers_of_query = answers.by_ref().take(ranges.len());
            // None if one of the answers is incomplete.
            let decoded: Option<Vec<_>> = answers_of_query.map(|answer| decode(query, answer)).collect();
            entries.push(match decoded {
                Some(decoded) => decoded.concat(),
                None => self.read_filtered(query).await?,
            });
        }
        Ok(entries)
    }

    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Snapshot, Error> {
        again::reread(&self.connection.current(), keys).await
    }

    /// Sends a change once, on condition that the key still has the revision that was read. If the result is
    /// `Unavailable`, the change may have taken place.
    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let key = swap.record.key();
        let path = key.to_string();
        let expected_revision = match &swap.read {
            None => 0,
            // Revision 0 would match an absent key.
            Some(Revision::Etcd(revision)) if *revision > 0 => *revision,
            Some(other) => return Err(self.refused(&format!("{other} is not an etcd revision"))),
        };
        let change = match swap.after().map(|record| record.encode()) {
            None => TxnOp::delete(path.as_str(), None),
            Some(Some(value)) => TxnOp::put(path.as_str(), value, None),
            Some(None) => return Err(self.refused("records of this kind are never written")),
        };
        let compare = Compare::mod_revision(path.as_str(), CompareOp::Equal, expected_revision);
        // Tells a changed key from a deleted one.
        let get_key = TxnOp::get(path.as_str(), Some(GetOptions::new().with_keys_only()));
        let transaction = Txn::new().when([compare]).and_then([change]).or_else([get_key]);

        // After a failure, the next request, such as one that undoes earlier writes, is sent to an endpoint that
        // answers.
        let write = |client: Arc<EtcdClient>| async move { client.write(transaction, &path).await };
        let response = self.connection.ask(write).await.map_err(unavailable)?;
        if response.succeeded() {
            let revision = response.header().map_or(0, |header| header.revision());
            return Ok(Revision::Etcd(revision));
        }

        Err(if swap.read.is_none() {
            StoreError::Exists(key)
        } else if has_found(&response) {
            StoreError::Conflict(key)
        } else {
            StoreError::NotFound(key)
        })
    }
}

/// Returns true if a read in the transaction has found its key.
fn has_found(response: &TxnResponse) -> bool {
    response.op_responses().iter().any(|answer| match answer {
        TxnOpResponse::Get(found) => !found.kvs().is_empty(),
        _ => false,
    })
}

/// Key ranges that cover a query. They may also contain keys that the query does not ask for.
fn ranges(query: &Query) -> Vec<Range> {
    let path = query.path();
    let block_key = |cidr: IpNet| Range::key(Key::Block(cidr).to_string()).keys_only();
    let mut ranges = Vec::new();
    match query {
        Query::Get(_) => ranges.push(Range::key(path)),
        Query::BlockKey(_) => ranges.push(Range::key(path).keys_only()),
        Query::BlockKeys(pools) | Query::BlockRevisions(pools) => {
            // A set, since pools can have beginnings in common.
            let mut all_beginnings: BTreeSet<String> = BTreeSet::new();
            for pool in pools {
                all_beginnings.extend(beginnings(*pool));
            }
            for begin in all_beginnings {
                ranges.push(Range::prefix(&format!("{path}{begin}")).keys_only());
            }
            for pool in pools {
                ranges.extend(blocks_holding_elsewhere(*pool).map(block_key));
            }
        }
        Query::Overlapping(cidr) => {
            for Span { first, last } in spans(*cidr) {
                let span = Range::span(format!("{path}{first}"), &format!("{path}{last}"));
                ranges.push(span.with_limit(MAX_KEYS_IN_SPAN).keys_only());
            }
            ranges.extend(blocks_holding_elsewhere(*cidr).map(block_key));
        }
        Query::Pools
        | Query::Reservations
        | Query::Affinities { .. }
        | Query::HostAffinities
        | Query::Blocks(_) => ranges.push(Range::prefix(&path)),
    }
    ranges
}

/// The records in an answer; `None` if the answer is incomplete because of its limit. Like Calico's lists, omits keys
/// that do not have the form of an object's key.
fn decode(query: &Query, answer: &GetResponse) -> Option<Vec<Entry>> {
    if answer.more() {
        return None;
    }
    let mut records = Vec::new();
    for entry in entries(answer) {
        if let Ok(path) = std::str::from_utf8(entry.key)
            && let Ok(Some(key)) = Key::parse(path)
            && let Some(record) = query.decode(&key, entry.value)
        {
            records.push(Entry {
                record,
                revision: Revision::Etcd(entry.mod_revision),
            });
        }
    }
    Some(records)
}
