//! etcd as one process sees it. It replaces the connection of calipam's client and receives the requests in the wire
//! format, so that all other code runs as it does with a real server.

mod message;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use calipam_datastore::settings::Timeouts;
use calipam_datastore::{Datastore, EtcdClient, Transport, TransportError};
use calipam_model::parallel::lock;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::body::Body;
use tower::BoxError;

use self::message::{Answer, Expected, Range, Transaction};
use super::{ALL, Footprint, PATIENCE, Values, World, no_answer, timeless};

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
    let etcd = Arc::new(Etcd { world: Arc::clone(world), actor, seen: Mutex::default() });
    let answer = tower::service_fn(move |request: Request<Body>| {
        let etcd = Arc::clone(&etcd);
        async move { etcd.answer(request).await.map_err(TransportError) }
    });
    let timeouts = Timeouts { connect: PATIENCE, request: PATIENCE };
    let client = EtcdClient::over(Transport::new(answer), timeouts).await;
    Datastore::of_etcd(client.expect("a connection without a network"))
}

impl Etcd {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        // The gRPC header: one byte for the compression, four for the length.
        let message = body.get(5..).unwrap_or_default();
        let answer = match &*path {
            "/etcdserverpb.KV/Txn" => {
                let mut transaction =
                    Transaction::decode(message).ok_or("a transaction that is not understood")?;
                for expected in &mut transaction.expected {
                    if let Expected::NoneSince(_, revision, known) = expected {
                        *known = self.seen(*revision).ok_or("a revision at which nothing was read")?;
                    }
                }
                self.transact(transaction).await?.encode()
            }
            "/etcdserverpb.KV/Range" => {
                let range = Range::decode(message).ok_or("a range that is not understood")?;
                self.read(vec![range]).await?.encode_range()
            }
            other => return Err(format!("{other} is not there").into()),
        };
        Ok(response(&answer))
    }

    async fn transact(&self, transaction: Transaction) -> Result<Answer, BoxError> {
        match (&*transaction.reads, &*transaction.writes) {
            ([], _) => self.write(transaction).await,
            (_, []) if transaction.expected.is_empty() => self.read(transaction.reads).await,
            _ => Err("a transaction that reads and writes".into()),
        }
    }

    /// The values that were read at a revision.
    fn seen(&self, revision: i64) -> Option<Arc<Values>> {
        let seen = lock(&self.seen);
        usize::try_from(revision - READINGS).ok().and_then(|number| seen.get(number).cloned())
    }

    /// Reads ranges at one revision.
    async fn read(&self, ranges: Vec<Range>) -> Result<Answer, BoxError> {
        let named = ranges.iter().map(|range| range.revision).max().unwrap_or_default();
        let (values, revision) = match self.seen(named) {
            Some(values) => (values, named),
            None => {
                self.wait_to_read(&ranges).await?;
                let values = Arc::new(self.world.memory.values(ALL));
                let mut seen = lock(&self.seen);
                seen.push(Arc::clone(&values));
                (values, READINGS + seen.len() as i64 - 1)
            }
        };
        Ok(Answer {
            revision,
            has_succeeded: true,
            found: ranges.iter().map(|range| range.find(&values)).collect(),
        })
    }

    async fn wait_to_read(&self, ranges: &[Range]) -> Result<(), BoxError> {
        let Self { world, actor, .. } = self;
        let footprint = ranges.iter().fold(Footprint::default(), Range::footprint);
        let what: Vec<String> = ranges.iter().map(Range::to_string).collect();
        if !world.turn(*actor, format!("read {}", what.join(", ")), footprint).answered().await {
            return Err(no_answer().into());
        }
        let values = world.memory.values(ALL);
        let found = ranges.iter().flat_map(|range| range.find(&values).kvs);
        let found = found.map(|(path, value, revision)| (path, timeless(&value), revision));
        world.record_answer(*actor, found.collect::<Vec<_>>());
        Ok(())
    }

    async fn write(&self, transaction: Transaction) -> Result<Answer, BoxError> {
        let Self { world, actor, .. } = self;
        let transaction = Arc::new(transaction);
        let later = Arc::clone(&transaction);
        let write: super::Write = Arc::new(move |store| drop(later.apply(store)));
        let turn = world.turn(*actor, transaction.to_string(), transaction.footprint()).writing(write);
        if !turn.intends(&transaction.writes).answered().await {
            return Err(no_answer().into());
        }
        let answer = transaction.apply(&world.memory);
        world.record_answer(*actor, (answer.has_succeeded, answer.revision));
        Ok(answer)
    }
}

/// A message in gRPC's format.
fn response(message: &[u8]) -> Response<Body> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let frame: Vec<u8> = [&[0], &length.to_be_bytes()[..], message].concat();
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    let trailers = async { Some(Ok::<_, Infallible>(HeaderMap::from_iter([status]))) };
    let mut response = Response::new(Body::new(Full::new(Bytes::from(frame)).with_trailers(trailers)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
