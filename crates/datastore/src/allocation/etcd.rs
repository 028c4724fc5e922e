//! etcd for an allocator: all queries of a reading in one transaction, each write in one of its own.

use std::sync::Arc;
use std::time::Duration;

use calipam_assign::{Entry, Family, Query, Record, StoreError, blocks_holding_elsewhere};
use calipam_model::cidr;
use calipam_model::key::{BLOCK_PREFIX, IPAM_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::snapshot::Revision;
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse};

use super::spans::{Span, spans};
use super::{Retries, unavailable};
use crate::client::etcd::{EtcdClient, Range, entries};
use crate::error::{Cause, Failure};
use crate::store::Pending;
use crate::write::{Connection, ETCD_LIMITS};

/// How long a server may take to answer a reading: a runtime waits, and another endpoint may answer. Writes have longer, since what
/// became of one that is given up is not known.
const SILENCE: Duration = Duration::from_secs(4);

/// Most keys that a span may give. They are a thousand only if most are not asked for.
const MOST_IN_SPAN: i64 = 1_000;

#[derive(Debug)]
pub(super) struct EtcdStore {
    connection: Arc<Connection>,
}

impl EtcdStore {
    pub(super) fn new(client: Arc<EtcdClient>) -> Self {
        Self { connection: Connection::new(&client) }
    }

    pub(super) fn request_count(&self) -> u64 {
        self.connection.current().request_count()
    }

    pub(super) fn read<'a>(
        &'a self,
        queries: &'a [Query],
    ) -> Pending<'a, Result<Vec<Vec<Entry>>, StoreError>> {
        Box::pin(async move {
            let ranges: Vec<Vec<Range>> = queries.iter().map(ranges).collect();
            let all = ranges.concat();
            let mut answers = Vec::with_capacity(all.len());
            for part in all.chunks(ETCD_LIMITS.conditions) {
                answers.extend(self.get(part).await?);
            }

            let (mut found, mut answers) = (Vec::with_capacity(queries.len()), answers.iter());
            for (query, ranges) in queries.iter().zip(ranges) {
                let answers = answers.by_ref().take(ranges.len());
                match answers.map(|answer| decode(query, answer)).collect::<Option<Vec<_>>>() {
                    Some(entries) => found.push(entries.concat()),
                    None => found.push(self.filtered(query).await?),
                }
            }
            Ok(found)
        })
    }

    /// Which of all blocks are asked for, where the ranges that have their keys have too many others.
    async fn filtered(&self, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let Query::Overlapping(cidr) = query else { return Ok(Vec::new()) };
        let all = self.get(&[block_keys(Family::of(*cidr))]).await?;
        Ok(all.iter().filter_map(|answer| decode(query, answer)).flatten().collect())
    }

    /// Reads ranges; if that fails for a reason that passes, again, from any endpoint that answers. A server that stands still
    /// is asked once if there is no other.
    async fn get(&self, ranges: &[Range]) -> Result<Vec<GetResponse>, StoreError> {
        let mut retries = Retries::new();
        loop {
            let client = self.connection.current();
            let what = "what an allocation needs";
            let Ok(answer) = tokio::time::timeout(SILENCE, client.get(ranges, what)).await else {
                let error = client.error(what, Cause::TimedOut(SILENCE.as_secs()).into());
                if !client.has_other_endpoints() {
                    return Err(unavailable(error));
                }
                retries.wait(error).await?;
                self.connection.replace(&client).await.map_err(unavailable)?;
                continue;
            };
            match answer {
                Ok(answers) => return Ok(answers.ranges),
                Err(error) if error.may_pass() => retries.wait(error).await?,
                Err(error) => return Err(unavailable(error)),
            }
            // Where no endpoint answers there is nothing to try again.
            self.connection.replace(&client).await.map_err(unavailable)?;
        }
    }

    /// The value of a key that no allocator reads.
    pub(super) async fn value_of(&self, key: &Key) -> Result<Option<Vec<u8>>, StoreError> {
        let mut answers = self.get(&[Range::key(key.to_string())]).await?;
        let kv = answers.first_mut().and_then(|answer| answer.take_kvs().pop());
        Ok(kv.map(|kv| kv.into_key_value().1))
    }

    pub(super) fn create<'a>(&'a self, record: &'a Record) -> Pending<'a, Result<Revision, StoreError>> {
        Box::pin(async move {
            let (key, value) = (record.key(), self.value(record)?);
            let path = key.to_string();
            let put = TxnOp::put(path.as_str(), value, None);
            match self.swap(&key, Compare::mod_revision(path, CompareOp::Equal, 0), put).await? {
                Swapped::Done(revision) => Ok(revision),
                Swapped::Absent | Swapped::Changed => Err(StoreError::Exists(key)),
            }
        })
    }

    pub(super) fn update<'a>(
        &'a self,
        record: &'a Record,
        revision: &'a Revision,
    ) -> Pending<'a, Result<Revision, StoreError>> {
        Box::pin(async move {
            let (key, value) = (record.key(), self.value(record)?);
            let path = key.to_string();
            let put = TxnOp::put(path.as_str(), value, None);
            self.replace(key, self.at(path, revision)?, put).await
        })
    }

    pub(super) fn delete<'a>(&'a self, entry: &'a Entry) -> Pending<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let key = entry.record.key();
            let path = key.to_string();
            let delete = TxnOp::delete(path.as_str(), None);
            self.replace(key, self.at(path, &entry.revision)?, delete).await.map(drop)
        })
    }

    async fn replace(&self, key: Key, compare: Compare, change: TxnOp) -> Result<Revision, StoreError> {
        match self.swap(&key, compare, change).await? {
            Swapped::Done(revision) => Ok(revision),
            Swapped::Changed => Err(StoreError::Conflict(key)),
            Swapped::Absent => Err(StoreError::NotFound(key)),
        }
    }

    /// Makes one change where the comparison holds; sent once. An error leaves open whether it was made.
    async fn swap(&self, key: &Key, compare: Compare, change: TxnOp) -> Result<Swapped, StoreError> {
        let path = key.to_string();
        let look = TxnOp::get(path.as_str(), Some(GetOptions::new().with_keys_only()));
        let transaction = Txn::new().when([compare]).and_then([change]).or_else([look]);
        let client = self.connection.current();
        let response = match client.write(transaction, &path).await {
            Ok(response) => response,
            Err(error) => {
                if error.may_pass() {
                    // What comes next, such as taking back what was done, goes to an endpoint that answers.
                    self.connection.replace(&client).await.ok();
                }
                return Err(unavailable(error));
            }
        };
        if response.succeeded() {
            let revision = response.header().map_or(0, |header| header.revision());
            return Ok(Swapped::Done(Revision::Etcd(revision)));
        }
        let is_there =
            |answer: &TxnOpResponse| matches!(answer, TxnOpResponse::Get(found) if !found.kvs().is_empty());
        Ok(if response.op_responses().iter().any(is_there) { Swapped::Changed } else { Swapped::Absent })
    }

    fn value(&self, record: &Record) -> Result<Vec<u8>, StoreError> {
        record.encode().ok_or_else(|| self.refused("records of this kind are not written"))
    }

    /// The comparison with the revision at which a key was read. 0 would be true of an absent key.
    fn at(&self, path: String, revision: &Revision) -> Result<Compare, StoreError> {
        match revision {
            Revision::Etcd(revision) if *revision > 0 => {
                Ok(Compare::mod_revision(path, CompareOp::Equal, *revision))
            }
            other => Err(self.refused(&format!("{other} is not a revision of etcd"))),
        }
    }

    fn refused(&self, reason: &str) -> StoreError {
        unavailable(self.connection.current().write_error("a record", Failure::Other(reason.to_owned())))
    }
}

/// What became of a change.
enum Swapped {
    Done(Revision),
    /// The key has another revision.
    Changed,
    /// There is no such key.
    Absent,
}

/// The keys that a query asks for; others may be among them.
fn ranges(query: &Query) -> Vec<Range> {
    let range = match query {
        Query::Get(key) => Range::key(key.to_string()),
        Query::Pools => Range::prefix(&format!("{RESOURCE_PREFIX}ippools/")),
        Query::Reservations => Range::prefix(&format!("{RESOURCE_PREFIX}ipreservations/")),
        Query::Affinities { kind, holder, family } => {
            Range::prefix(&format!("{IPAM_PREFIX}{kind}/{holder}/ipv{}/block/", family.number()))
        }
        Query::HostAffinities => Range::prefix(&format!("{IPAM_PREFIX}host/")),
        Query::Blocks(family) => Range::prefix(&block_prefix(*family)),
        Query::BlockKey(cidr) => Range::key(Key::Block(*cidr).to_string()).keys_only(),
        Query::BlockKeys(family) | Query::BlockRevisions(family) => block_keys(*family),
        Query::Overlapping(cidr) => {
            let prefix = block_prefix(Family::of(*cidr));
            let inside = spans(*cidr).into_iter().map(|Span { first, last }| {
                Range::span(format!("{prefix}{first}"), &format!("{prefix}{last}")).with_limit(MOST_IN_SPAN)
            });
            let outside =
                blocks_holding_elsewhere(*cidr).map(|larger| Range::key(Key::Block(larger).to_string()));
            return inside.chain(outside).map(Range::keys_only).collect();
        }
    };
    vec![range]
}

fn block_prefix(family: Family) -> String {
    format!("{BLOCK_PREFIX}ipv{}/block/", family.number())
}

fn block_keys(family: Family) -> Range {
    Range::prefix(&block_prefix(family)).keys_only()
}

/// The records of an answer; `None` if it was cut off. As Calico's lists, it leaves out what is under a key of a shape
/// that nothing has.
fn decode(query: &Query, answer: &GetResponse) -> Option<Vec<Entry>> {
    let records = entries(answer).filter_map(|entry| {
        let key = Key::parse(std::str::from_utf8(entry.key).ok()?).ok()??;
        if !is_asked_for(query, &key) {
            return None;
        }
        let record = match key {
            Key::Block(cidr) if query.asks_for_block_keys() => Record::BlockKey(cidr),
            key => Record::decode(&key, entry.value)?,
        };
        Some(Entry { record, revision: Revision::Etcd(entry.mod_revision) })
    });
    (!answer.more()).then(|| records.collect())
}

fn is_asked_for(query: &Query, key: &Key) -> bool {
    match (query, key) {
        (Query::Get(asked), found) => asked == found,
        (Query::Pools, Key::Pool(_)) | (Query::Reservations, Key::Reservation(_)) => true,
        (Query::Affinities { kind, holder, .. }, Key::Affinity(found)) => {
            found.kind == *kind && found.node == *holder
        }
        (Query::HostAffinities, Key::Affinity(_)) => true,
        (
            Query::Blocks(family) | Query::BlockKeys(family) | Query::BlockRevisions(family),
            Key::Block(cidr),
        ) => Family::of(*cidr) == *family,
        (Query::BlockKey(asked), Key::Block(cidr)) => asked == cidr,
        (Query::Overlapping(asked), Key::Block(cidr)) => cidr::overlap(*asked, *cidr),
        _ => false,
    }
}
