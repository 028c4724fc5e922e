//! etcd as one process sees it. It replaces the connection of calipam's client and receives the requests in the wire
//! format, so that all other code runs as it does with a real server.

use std::sync::{Arc, Mutex};

use calipam_datastore::settings::Timeouts;
use calipam_datastore::{Datastore, EtcdClient, Transport, TransportError};
use calipam_model::parallel::lock;
use calipam_testkit::memory::MemoryStore;
use etcd_client::CompareOp;
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbCompare, PbDeleteRequest, PbDeleteResponse, PbKeyValue,
    PbKvServer, PbKvService, PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse,
    PbRangeStreamResponse, PbResponseHeader, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse,
    PbTxnRequest, PbTxnResponse,
};
use tonic::body::Body;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tower::util::{MapErr, MapResult};

use super::kubernetes::short;
use super::{ALL, Event, Footprint, PATIENCE, Values, World, no_answer, timeless};

/// The revision of the first read. Such revisions number the reads, and differ from those of all keys.
const READINGS: i64 = 1_000_000;

struct Etcd {
    world: Arc<World>,
    actor: usize,
    /// The values that reads have returned. A later read at the same revision returns the same values, as etcd
    /// promises.
    seen: Mutex<Vec<Arc<Values>>>,
}

/// Opens the datastore for an actor's process.
pub async fn open(world: &Arc<World>, actor: usize) -> Datastore {
    let etcd = Etcd {
        world: Arc::clone(world),
        actor,
        seen: Mutex::default(),
    };
    // A request that is not answered looks like a broken connection to the client.
    let server = MapErr::new(PbKvServer::new(etcd), |never| match never {});
    let server = MapResult::new(
        server,
        |answered: Result<http::Response<Body>, TransportError>| match answered? {
            refused if refused.extensions().get::<Status>().is_some() => {
                Err(TransportError(no_answer().into()))
            }
            response => Ok(response),
        },
    );
    let timeouts = Timeouts {
        connect: PATIENCE,
        request: PATIENCE,
    };
    let client = EtcdClient::over(Transport::new(server), timeouts).await;
    Datastore::of_etcd(client.expect("a connection without a network"))
}

impl From<Event> for Status {
    fn from(_: Event) -> Self {
        Self::unavailable("no answer")
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// calipam sends ranges and transactions.
#[tonic::async_trait]
impl PbKvService for Etcd {
    type RangeStreamStream = BoxStream<PbRangeStreamResponse>;

    async fn range(&self, request: Request<PbRangeRequest>) -> Answer<PbRangeResponse> {
        let (found, revision) = self.read(&[request.into_inner()]).await?;
        let found = found.into_iter().next().unwrap_or_default();
        Ok(Response::new(PbRangeResponse {
            header: header(revision),
            ..found
        }))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Answer<PbTxnResponse> {
        let PbTxnRequest {
            compare,
            success,
            failure,
        } = request.into_inner();
        assert!(
            failure.is_empty(),
            "calipam's transactions do nothing else if a comparison fails"
        );
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        for operation in success {
            match operation.request {
                Some(PbTxnOpRequest::RequestRange(range)) => reads.push(range),
                Some(PbTxnOpRequest::RequestPut(put)) => writes.push((text(&put.key), Some(put.value))),
                Some(PbTxnOpRequest::RequestDeleteRange(one)) if one.range_end.is_empty() => {
                    writes.push((text(&one.key), None));
                }
                other => unreachable!("calipam does not send {other:?}"),
            }
        }
        if reads.is_empty() {
            return self.write(compare, writes).await;
        }
        assert!(
            compare.is_empty() && writes.is_empty(),
            "calipam's transactions read or write"
        );
        let (found, revision) = self.read(&reads).await?;
        let response = |found| PbResponseOp {
            response: Some(PbTxnOpResponse::ResponseRange(found)),
        };
        let responses = found.into_iter().map(response).collect();
        Ok(Response::new(PbTxnResponse {
            header: header(revision),
            succeeded: true,
            responses,
        }))
    }

    async fn range_stream(&self, _: Request<PbRangeRequest>) -> Answer<Self::RangeStreamStream> {
        unreachable!("calipam sends transactions")
    }

    async fn put(&self, _: Request<PbPutRequest>) -> Answer<PbPutResponse> {
        unreachable!("calipam sends transactions")
    }

    async fn delete_range(&self, _: Request<PbDeleteRequest>) -> Answer<PbDeleteResponse> {
        unreachable!("calipam sends transactions")
    }

    async fn compact(&self, _: Request<PbCompactionRequest>) -> Answer<PbCompactionResponse> {
        unreachable!("calipam sends transactions")
    }
}

impl Etcd {
    /// The values that were read at a revision.
    fn seen(&self, revision: i64) -> Option<Arc<Values>> {
        let seen = lock(&self.seen);
        usize::try_from(revision - READINGS)
            .ok()
            .and_then(|number| seen.get(number).cloned())
    }

    /// Reads ranges at one revision.
    async fn read(&self, ranges: &[PbRangeRequest]) -> Result<(Vec<PbRangeResponse>, i64), Status> {
        let named = ranges
            .iter()
            .map(|range| range.revision)
            .max()
            .unwrap_or_default();
        let (values, revision) = match self.seen(named) {
            Some(values) => (values, named),
            None => self.read_newest(ranges).await?,
        };
        Ok((
            ranges.iter().map(|range| find(range, &values)).collect(),
            revision,
        ))
    }

    async fn read_newest(&self, ranges: &[PbRangeRequest]) -> Result<(Arc<Values>, i64), Status> {
        let Self { world, actor, seen } = self;
        let footprint = ranges.iter().fold(Footprint::default(), |all, range| {
            reading(all, &range.key, &range.range_end)
        });
        let shown = |range: &PbRangeRequest| {
            let more = if range.range_end.is_empty() { "" } else { "…" };
            format!("{}{more}", short(&text(&range.key)))
        };
        let what: Vec<String> = ranges.iter().map(shown).collect();
        world
            .turn(*actor, format!("read {}", what.join(", ")), footprint)
            .answered()
            .await?;
        let values = Arc::new(world.data.values(ALL));
        let found = ranges.iter().flat_map(|range| find(range, &values).kvs);
        let found = found.map(|kv| (kv.key, timeless(&kv.value), kv.mod_revision));
        world.record_answer(*actor, found.collect::<Vec<_>>());
        let mut seen = lock(seen);
        seen.push(Arc::clone(&values));
        Ok((values, READINGS + seen.len() as i64 - 1))
    }

    /// Executes writes atomically if all comparisons hold.
    async fn write(
        &self,
        compare: Vec<PbCompare>,
        writes: Vec<(String, Option<Vec<u8>>)>,
    ) -> Answer<PbTxnResponse> {
        let Self { world, actor, .. } = self;
        let verb = |value: &Option<_>| if value.is_some() { "put" } else { "delete" };
        let what = writes
            .iter()
            .map(|(key, value)| format!("{} {}", verb(value), short(key)));
        let what = what.collect::<Vec<_>>().join(", ");
        let footprint = compare.iter().fold(Footprint::default(), |all, compare| {
            reading(all, &compare.key, &compare.range_end)
        });
        let footprint = writes
            .iter()
            .fold(footprint, |all, (key, _)| all.write(key.clone()));
        let checks: Vec<Check> = compare.into_iter().map(|compare| self.check(compare)).collect();
        let turn = world.turn(*actor, what, footprint).intends(&writes);
        let write = move |store: &MemoryStore| {
            let succeeded = checks.iter().all(|holds| holds(store));
            (
                succeeded,
                store.change_together(if succeeded { &writes } else { &[] }),
            )
        };
        let (succeeded, revision) = turn.executed(write).await?;
        world.record_answer(*actor, (succeeded, revision));
        Ok(Response::new(PbTxnResponse {
            header: header(revision),
            succeeded,
            responses: Vec::new(),
        }))
    }

    /// Returns a comparison of one of the two kinds that calipam sends: a key has a revision, which is 0 if it must not
    /// exist, or no key of a range was created after a revision at which an earlier read was answered.
    fn check(
        &self,
        PbCompare {
            key,
            range_end,
            result,
            target_union,
            ..
        }: PbCompare,
    ) -> Check {
        const EQUAL: i32 = CompareOp::Equal as i32;
        const LESS: i32 = CompareOp::Less as i32;
        match (target_union, result) {
            (Some(PbTargetUnion::ModRevision(expected)), EQUAL) => {
                let key = text(&key);
                Box::new(move |store| store.value_at(&key).map_or(0, |(_, revision)| revision) == expected)
            }
            (Some(PbTargetUnion::CreateRevision(next)), LESS) => {
                let known = self.seen(next - 1).expect("a revision at which values were read");
                let range = PbRangeRequest {
                    key,
                    range_end,
                    ..PbRangeRequest::default()
                };
                let is_known = move |path: &[u8]| known.iter().any(|(known, ..)| known.as_bytes() == path);
                Box::new(move |store| {
                    find(&range, &store.values(ALL))
                        .kvs
                        .iter()
                        .all(|kv| is_known(&kv.key))
                })
            }
            other => unreachable!("calipam does not compare {other:?}"),
        }
    }
}

/// A comparison with the stored values.
type Check = Box<dyn Fn(&MemoryStore) -> bool + Send + Sync>;

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn header(revision: i64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader {
        revision,
        ..PbResponseHeader::default()
    })
}

/// Adds a read of a key, or of a range up to `end`, to a footprint.
fn reading(all: Footprint, start: &[u8], end: &[u8]) -> Footprint {
    if end.is_empty() {
        return all.read(text(start));
    }
    // The common prefix of both ends covers everything between them.
    let common = start.iter().zip(end).take_while(|(a, b)| a == b).count();
    all.read_range(text(&start[..common]))
}

/// Finds the values of a range. The end of a range is exclusive, and empty for a single key.
fn find(range: &PbRangeRequest, values: &Values) -> PbRangeResponse {
    let start = &*range.key;
    let end = &*range.range_end;
    let has = |path: &[u8]| {
        if end.is_empty() {
            path == start
        } else {
            (start..end).contains(&path)
        }
    };
    let found = values.iter().filter(|(path, ..)| has(path.as_bytes()));
    let entry = |(path, value, revision): &(String, Vec<u8>, i64)| PbKeyValue {
        key: path.clone().into_bytes(),
        value: if range.keys_only {
            Vec::new()
        } else {
            value.clone()
        },
        mod_revision: *revision,
        ..PbKeyValue::default()
    };
    let mut kvs: Vec<PbKeyValue> = found.map(entry).collect();
    let count = kvs.len();
    if range.limit > 0 {
        kvs.truncate(range.limit as usize);
    }
    PbRangeResponse {
        header: None,
        more: kvs.len() < count,
        kvs,
        count: count as i64,
    }
}
