//! Watches for the changes to some keys between two revisions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) use calipam_files::recording::Change;
use etcd_client::{EventType, WatchOptions, WatchResponse};
use tokio::time::timeout;

use super::{AuthorizedChannel, EtcdClient, PROBE, Range, client_of};
use crate::error::{Error, Failure, Result};

/// Interval between requests for the watch's progress. A watch reaches a past revision within a tenth of a second.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);

/// The changes that a watch must report before it is complete. Each key has the revision of its last change, or `None`
/// if that change is a deletion. Some etcd versions report too early that everything was sent (etcd issue 15220).
pub(crate) type ExpectedChanges = BTreeMap<Vec<u8>, Option<i64>>;

enum Watched {
    Changes(Vec<Change>),
    Compacted,
    Refused(String),
}

impl EtcdClient {
    /// The oldest readable revision.
    pub(crate) async fn oldest_revision(&self) -> Result<i64> {
        let now = self
            .get(&[Range::key(PROBE).keys_only()], "its newest revision")
            .await?;
        self.oldest_kept(now.revision).await
    }

    /// Searches for the oldest readable revision. `newest` must be readable.
    pub(crate) async fn oldest_kept(&self, newest: i64) -> Result<i64> {
        let mut compacted = 0;
        let mut kept = newest;
        while kept - compacted > 1 {
            let middle = compacted + (kept - compacted) / 2;
            let probe = Range::key(PROBE).at(middle).keys_only();
            match self.get(&[probe], "its oldest revision").await {
                Ok(_) => kept = middle,
                Err(Error::Request {
                    failure: Failure::Compacted,
                    ..
                }) => compacted = middle,
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// Waits for the first change in a range after a revision. Returns at once if etcd has compacted the next revision,
    /// or has not reached the revision `after`.
    pub(crate) async fn next_change(&self, range: &Range, after: i64) -> Result<()> {
        loop {
            let change = first_change(self.channel(), range, after);
            let Ok(watched) = timeout(self.settings.timeouts.request, change).await else {
                // Nothing was written for a while, so the watch starts again. This is no time without an answer.
                continue;
            };
            let failure = match watched {
                Ok(()) => return Ok(()),
                Err(error) => self.classify(&error),
            };
            // With a new token, the watch starts again.
            let renewed = match failure {
                Failure::AuthNeeded if self.settings.user.is_some() => self.authenticate().await,
                failure => Err(failure),
            };
            renewed.map_err(|failure| self.error("the next changes", failure))?;
        }
    }

    /// All changes of `revisions` in the given ranges, in ascending order. Errors name the read data as `what`.
    pub(crate) async fn changes(
        &self,
        ranges: &[Range],
        revisions: RangeInclusive<i64>,
        expected: &ExpectedChanges,
        what: &str,
    ) -> Result<Vec<Change>> {
        let watched = self
            .call(|| watch(self.channel(), ranges, revisions.clone(), expected))
            .await;
        let failure = match watched {
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

/// Waits for the first event after a revision. Returns at once if the next revision is compacted, or if etcd has not
/// reached `after`.
async fn first_change(
    channel: AuthorizedChannel,
    range: &Range,
    after: i64,
) -> Result<(), etcd_client::Error> {
    let options = WatchOptions::new()
        .with_start_revision(after + 1)
        .with_range(range.end.clone());
    let mut client = client_of(channel)
        .await?
        .watch_client()
        .max_decoding_message_size(usize::MAX);
    let mut stream = client.watch(range.start.clone(), Some(options)).await?;
    while let Some(answer) = stream.message().await? {
        let is_older = answer.created() && answer.header().is_some_and(|header| header.revision() < after);
        if is_older || answer.compact_revision() > 0 || !answer.events().is_empty() {
            return Ok(());
        }
        if answer.canceled() {
            return Err(etcd_client::Error::WatchError(answer.cancel_reason().to_owned()));
        }
    }
    Err(etcd_client::Error::WatchError("the stream ended".to_owned()))
}

/// Watches ranges for the changes of `revisions`. Returns once all ranges report progress up to the last revision, and
/// all expected changes have arrived.
async fn watch(
    channel: AuthorizedChannel,
    ranges: &[Range],
    revisions: RangeInclusive<i64>,
    expected: &ExpectedChanges,
) -> Result<Watched, etcd_client::Error> {
    let (first_revision, last_revision) = revisions.into_inner();
    let mut client = client_of(channel)
        .await?
        .watch_client()
        .max_decoding_message_size(usize::MAX);
    let options = |range: &Range| {
        let options = WatchOptions::new()
            .with_start_revision(first_revision)
            .with_fragment();
        if range.end.is_empty() {
            options
        } else {
            options.with_range(range.end.clone())
        }
    };
    let mut changes = Vec::new();
    let Some((first, others)) = ranges.split_first() else {
        return Ok(Watched::Changes(changes));
    };
    let mut stream = client.watch(first.start.clone(), Some(options(first))).await?;
    for range in others {
        stream.watch(range.start.clone(), Some(options(range))).await?;
    }

    let mut created_watches = 0;
    let mut missing = expected.clone();
    let mut progress_due = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        let answer = tokio::select! {
            answer = stream.message() => answer?,
            _ = progress_due.tick() => {
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
        if answer.created() {
            created_watches += 1;
        }

        let mut new_changes: Vec<Change> = changes_of(&answer).collect();
        // Later changes were not requested.
        new_changes.retain(|change| change.revision <= last_revision);
        remove_received(&new_changes, &mut missing);
        changes.append(&mut new_changes);

        let is_progress_report = !answer.created() && answer.events().is_empty();
        let reached = answer.header().map_or(0, |header| header.revision());
        let all_created = created_watches == ranges.len();
        if is_progress_report && reached >= last_revision && all_created && missing.is_empty() {
            return Ok(Watched::Changes(changes));
        }
    }
}

/// The changes in an answer of a watch.
fn changes_of(answer: &WatchResponse) -> impl Iterator<Item = Change> {
    answer.events().iter().filter_map(|event| {
        let entry = event.kv()?;
        let value = match event.event_type() {
            EventType::Put => Some(entry.value().to_vec()),
            EventType::Delete => None,
        };
        Some(Change {
            revision: entry.mod_revision(),
            key: entry.key().to_vec(),
            value,
        })
    })
}

/// Removes the received changes from those that are missing.
fn remove_received(changes: &[Change], missing: &mut ExpectedChanges) {
    for change in changes {
        let is_received = match missing.get(&change.key) {
            Some(Some(revision)) => change.revision >= *revision,
            Some(None) => change.value.is_none(),
            None => false,
        };
        if is_received {
            missing.remove(&change.key);
        }
    }
}
