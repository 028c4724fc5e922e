//! What happened to some keys between two revisions.

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use calipam_files::recording::Change;
use etcd_client::{EventType, WatchOptions, WatchResponse};
use tonic::service::interceptor::InterceptedService;

use super::{EtcdClient, Line, PROBE, Range, client_of};
use crate::error::{Cause, Error, Failure, Result};

/// How often the server is asked how far it has come. It begins with a past revision within a tenth of a second.
const ASK: Duration = Duration::from_millis(20);

/// What has to have been seen before a watch is at its end: by key, the revision of its last change, or `None` for a
/// deletion. Some versions of etcd say too early that everything was sent (issue 15220 of etcd).
pub(crate) type Due = BTreeMap<Vec<u8>, Option<i64>>;

/// A change as an answer holds it.
pub(crate) struct WatchedChange<'a> {
    pub revision: i64,
    pub key: &'a [u8],
    /// As of a [`Change`].
    pub value: Option<&'a [u8]>,
}

/// A part of what a watch reports.
pub(crate) struct Answer {
    answer: WatchResponse,
    /// Later changes are not asked for.
    to: i64,
}

impl Answer {
    pub(crate) fn changes(&self) -> impl Iterator<Item = WatchedChange<'_>> {
        self.answer.events().iter().filter_map(|event| {
            let kv = event.kv().filter(|kv| kv.mod_revision() <= self.to)?;
            let value = (event.event_type() == EventType::Put).then(|| kv.value());
            Some(WatchedChange { revision: kv.mod_revision(), key: kv.key(), value })
        })
    }
}

/// What becomes of the answers of a watch, in their order.
pub(crate) trait TakeChanges: Send {
    fn take(&mut self, answer: Answer);
}

impl TakeChanges for Vec<Change> {
    fn take(&mut self, answer: Answer) {
        self.extend(answer.changes().map(|taken| Change {
            revision: taken.revision,
            key: taken.key.to_vec(),
            value: taken.value.map(<[u8]>::to_vec),
        }));
    }
}

/// How a watch ended.
enum Watched<T> {
    Changes(T),
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

    /// Waits for the first change of the keys of a range after a revision; after one that etcd has forgotten, not at all.
    pub(crate) async fn next_change(&self, range: &Range, after: i64) -> Result<()> {
        loop {
            let changed = self.call(|| {
                let line = InterceptedService::new(self.carrier.clone(), self.token.clone());
                first_change(line, range, after)
            });
            match changed.await {
                Ok(()) => return Ok(()),
                // Nothing was written for as long as a request may take.
                Err(failure)
                    if failure == Cause::TimedOut(self.settings.timeouts.request.as_secs()).into() => {}
                Err(failure) => return Err(self.error("what is written next", failure)),
            }
        }
    }

    /// Every change of the keys of some ranges from revision `from` to `to`, both included, ascending.
    pub(crate) async fn changes(
        &self,
        ranges: &[Range],
        (from, to): (i64, i64),
        due: &Due,
        what: &str,
    ) -> Result<Vec<Change>> {
        let mut changes = self.watch_changes(ranges, (from, to), due, what, Vec::new).await?;
        changes.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
        changes.dedup();
        Ok(changes)
    }

    /// Tells every change of the keys of some ranges from revision `from` to `to`, both included, while they are still being
    /// read: to what `begin` makes, which is made again if the request has to be made again. Of one range they are taken in
    /// the order of their revisions.
    pub(crate) async fn watch_changes<T: TakeChanges>(
        &self,
        ranges: &[Range],
        (from, to): (i64, i64),
        due: &Due,
        what: &str,
        begin: impl Fn() -> T,
    ) -> Result<T> {
        let watched = self.call(|| {
            let line = InterceptedService::new(self.carrier.clone(), self.token.clone());
            watch(line, ranges, (from, to), due, begin())
        });
        let failure = match watched.await {
            Ok(Watched::Changes(taken)) => return Ok(taken),
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

/// Ends with the first event after a revision, or where what came after it is forgotten.
async fn first_change(line: Line, range: &Range, after: i64) -> std::result::Result<(), etcd_client::Error> {
    let options = WatchOptions::new().with_start_revision(after + 1).with_range(range.end.clone());
    let mut stream = client_of(line).await?.watch_client().watch(range.start.clone(), Some(options)).await?;
    while let Some(answer) = stream.message().await? {
        if answer.compact_revision() > 0 || !answer.events().is_empty() {
            return Ok(());
        }
        if answer.canceled() {
            return Err(etcd_client::Error::WatchError(answer.cancel_reason().to_owned()));
        }
    }
    Err(etcd_client::Error::WatchError("the stream ended".to_owned()))
}

async fn watch<T: TakeChanges>(
    line: Line,
    ranges: &[Range],
    (from, to): (i64, i64),
    due: &Due,
    mut taken: T,
) -> std::result::Result<Watched<T>, etcd_client::Error> {
    let mut client = client_of(line).await?.watch_client().max_decoding_message_size(usize::MAX);
    let options = |range: &Range| {
        let options = WatchOptions::new().with_start_revision(from).with_fragment();
        if range.end.is_empty() { options } else { options.with_range(range.end.clone()) }
    };
    let mut waiting = ranges.iter();
    let Some(first) = waiting.next() else { return Ok(Watched::Changes(taken)) };
    let mut stream = client.watch(first.start.clone(), Some(options(first))).await?;
    for range in waiting {
        stream.watch(range.start.clone(), Some(options(range))).await?;
    }

    let (mut begun, mut due) = (0, due.clone());
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
        let reached = answer.header().map_or(0, |header| header.revision());
        let is_progress = !answer.created() && answer.events().is_empty();
        let answer = Answer { answer, to };
        strike_off(&answer, &mut due);
        taken.take(answer);
        if is_progress && reached >= to && begun == ranges.len() && due.is_empty() {
            return Ok(Watched::Changes(taken));
        }
    }
}

/// Takes what an answer brings from what is due.
fn strike_off(answer: &Answer, due: &mut Due) {
    if due.is_empty() {
        return;
    }
    for change in answer.changes() {
        let has_come = match due.get(change.key) {
            Some(Some(revision)) => change.revision >= *revision,
            Some(None) => change.value.is_none(),
            None => false,
        };
        if has_come {
            due.remove(change.key);
        }
    }
}
