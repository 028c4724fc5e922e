//! What happened to some keys between two revisions.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse};
use tonic::service::interceptor::InterceptedService;

use super::{EtcdClient, Line, PROBE, Range, client_of};
use crate::error::{Error, Failure, Result};

/// How often the server is asked how far it has come. It begins with a past revision within a tenth of a second.
const ASK: Duration = Duration::from_millis(20);

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub revision: i64,
    pub key: Vec<u8>,
    /// What is stored from this revision on; `None` where the key is deleted.
    pub value: Option<Vec<u8>>,
}

/// What has to have been seen before a watch is at its end: by key, the revision of its last change, or `None` for a
/// deletion. Some versions of etcd say too early that everything was sent (issue 15220 of etcd).
pub(crate) type Due = BTreeMap<Vec<u8>, Option<i64>>;

/// How a watch ended.
enum Watched {
    Changes(Vec<Change>),
    Compacted,
    Refused(String),
}

impl EtcdClient {
    /// The oldest revision that can be read.
    pub(crate) async fn oldest_revision(&self) -> Result<i64> {
        let now = self.get(&[Range::key(PROBE).keys_only()], "its newest revision").await?;
        self.oldest_kept(now.revision).await
    }

    /// The same; `newest` can be read.
    pub(crate) async fn oldest_kept(&self, newest: i64) -> Result<i64> {
        let (mut forgotten, mut kept) = (0, newest);
        while kept - forgotten > 1 {
            let middle = forgotten + (kept - forgotten) / 2;
            match self.get(&[Range::key(PROBE).at(middle).keys_only()], "its oldest revision").await {
                Ok(_) => kept = middle,
                Err(Error::Request { failure: Failure::Compacted, .. }) => forgotten = middle,
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// Every change of the keys of some ranges from revision `from` to `to`, both included, ascending.
    pub(crate) async fn changes(
        &self,
        ranges: &[Range],
        (from, to): (i64, i64),
        due: &Due,
        what: &str,
    ) -> Result<Vec<Change>> {
        let watched = self.call(|| {
            let line = InterceptedService::new(self.channel.clone(), self.token.clone());
            watch(line, ranges, from, to, due)
        });
        let failure = match watched.await {
            Ok(Watched::Changes(mut changes)) => {
                changes.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
                changes.dedup();
                return Ok(changes);
            }
            Ok(Watched::Compacted) => Failure::Compacted,
            Ok(Watched::Refused(reason)) if reason.contains("permission denied") => {
                Failure::PermissionDenied(String::new())
            }
            Ok(Watched::Refused(reason)) => Failure::Other(reason),
            Err(failure) => failure,
        };
        Err(self.error(what, failure))
    }
}

async fn watch(
    line: Line,
    ranges: &[Range],
    from: i64,
    to: i64,
    due: &Due,
) -> std::result::Result<Watched, etcd_client::Error> {
    let mut client = client_of(line).await?.watch_client().max_decoding_message_size(usize::MAX);
    let options = |range: &Range| {
        let options = WatchOptions::new().with_start_revision(from).with_fragment();
        if range.end.is_empty() { options } else { options.with_range(range.end.clone()) }
    };
    let mut waiting = ranges.iter();
    let Some(first) = waiting.next() else { return Ok(Watched::Changes(Vec::new())) };
    let mut stream = client.watch(first.start.clone(), Some(options(first))).await?;
    for range in waiting {
        stream.watch(range.start.clone(), Some(options(range))).await?;
    }

    let (mut changes, mut begun, mut due) = (Vec::new(), 0, due.clone());
    let mut ask = tokio::time::interval(ASK);
    loop {
        let answer = tokio::select! {
            answer = stream.message() => answer?,
            _ = ask.tick() => {
                stream.request_progress().await?;
                continue;
            }
        };
        let Some(answer) = answer else {
            return Err(etcd_client::Error::WatchError("the stream ended".to_owned()));
        };
        if answer.compact_revision() > 0 {
            return Ok(Watched::Compacted);
        }
        if answer.canceled() {
            return Ok(Watched::Refused(answer.cancel_reason().to_owned()));
        }
        begun += usize::from(answer.created());
        take(&answer, to, &mut changes, &mut due);

        let reached = answer.header().map_or(0, |header| header.revision());
        let is_progress = !answer.created() && answer.events().is_empty();
        if is_progress && reached >= to && begun == ranges.len() && due.is_empty() {
            return Ok(Watched::Changes(changes));
        }
    }
}

/// Adds the changes of an answer, and takes what they settle from what is due.
fn take(answer: &WatchResponse, to: i64, changes: &mut Vec<Change>, due: &mut Due) {
    for event in answer.events() {
        let Some(kv) = event.kv().filter(|kv| kv.mod_revision() <= to) else { continue };
        let value = (event.event_type() == EventType::Put).then(|| kv.value().to_vec());
        let is_due = match due.get(kv.key()) {
            Some(Some(revision)) => kv.mod_revision() >= *revision,
            Some(None) => value.is_none(),
            None => false,
        };
        if is_due {
            due.remove(kv.key());
        }
        changes.push(Change { revision: kv.mod_revision(), key: kv.key().to_vec(), value });
    }
}
