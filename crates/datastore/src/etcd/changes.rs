//! Changes in etcd, revision by revision.

use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::raw::is_read;
use calipam_files::recording::{Change, Position, Positions, checksum};
use calipam_model::key::{ENDPOINT_PREFIX, IPAM_PREFIX};
use tokio::time::{sleep, timeout};

use crate::error::{Error, Failure, Result};
use crate::etcd::client::{Answers, EtcdClient, ExpectedChanges, PROBE, Range};
use crate::feed::{Broken, Changes, GROUPING_INTERVAL, IDLE_INTERVAL, Reported, WholeReadReason};

/// The kind to which all changes in etcd belong, since etcd has a single position for everything.
const KIND: &str = "etcd";

/// A key range that contains all data that a check reads, and few other keys.
pub(crate) fn range() -> Range {
    Range::span(IPAM_PREFIX, ENDPOINT_PREFIX)
}

/// Rejects etcd versions that may report the end of the changes too early (etcd issue 15220).
pub(crate) async fn require_exact(client: &EtcdClient) -> Result<(), WholeReadReason> {
    let version = client
        .version()
        .await
        .map_err(|error| WholeReadReason::CannotWatch(error.to_string()))?;
    if reports_progress_exactly(&version) {
        return Ok(());
    }
    let reason = format!(
        "etcd {version} can report too early that there are no more changes: update it to 3.4.25, 3.5.8 or later"
    );
    Err(WholeReadReason::CannotWatch(reason))
}

/// True if an etcd of this version, such as `3.5.8`, never reports the end of the changes too early.
fn reports_progress_exactly(version: &str) -> bool {
    let mut numbers = [0; 3];
    for (number, text) in numbers.iter_mut().zip(version.split('.')) {
        *number = text.parse::<u32>().unwrap_or_default();
    }
    match numbers {
        [3, 4, patch] => patch >= 25,
        [3, 5, patch] => patch >= 8,
        [major, minor, _] => (major, minor) >= (3, 6),
    }
}

/// The changes after a position up to `newest`. etcd must first report the last known change again, as proof that its
/// history is the same.
pub(crate) async fn since(
    client: &EtcdClient,
    position: Position,
    newest: i64,
) -> Result<Vec<Change>, Broken> {
    let reached = position.revision;
    if newest < reached {
        return another_history(format!("its revision was {reached}, but is now {newest}"));
    }
    let (known_revision, first_revision) = match position.last {
        Some((last_revision, _)) => (last_revision, last_revision),
        None => (reached, reached + 1),
    };
    if first_revision > newest {
        return Ok(Vec::new());
    }

    let revisions = first_revision..=newest;
    let mut changes = match client
        .changes(&[range()], revisions, &ExpectedChanges::new(), "the changes")
        .await
    {
        Err(Error::Request {
            failure: Failure::Compacted,
            ..
        }) => return Err(Broken::Lost(WholeReadReason::Compacted)),
        changes => changes?,
    };

    if let Some((last_revision, last_checksum)) = position.last {
        let mut of_last_revision = changes.iter().filter(|change| change.revision == last_revision);
        if !of_last_revision.any(|change| checksum(change) == last_checksum) {
            return another_history(format!("revision {last_revision} has other content than before"));
        }
    }
    changes.retain(|change| change.revision > known_revision && is_read(&change.key));
    Ok(changes)
}

fn another_history<T>(reason: String) -> Result<T, Broken> {
    Err(Broken::Lost(WholeReadReason::AnotherHistory(reason)))
}

/// The changes in etcd after a position.
struct EtcdChanges {
    client: Arc<EtcdClient>,
    position: Position,
}

/// Follows etcd's changes after a position.
pub(super) async fn begin(client: &Arc<EtcdClient>, from: Positions) -> Result<Box<dyn Changes>> {
    if let Err(reason) = require_exact(client).await {
        return Err(client.error("its changes", Failure::Other(reason.to_string())));
    }
    let position = from.get(KIND).copied().unwrap_or_default();
    Ok(Box::new(EtcdChanges {
        client: Arc::clone(client),
        position,
    }))
}

#[async_trait]
impl Changes for EtcdChanges {
    /// Waits for a change for some time, and returns the changes up to the newest revision.
    async fn reported(&mut self) -> Result<Reported, Broken> {
        let before = self.position;
        if before.last.is_none() {
            let watched = range();
            let next_change = self.client.next_change(&watched, before.revision);
            if let Ok(changed) = timeout(IDLE_INTERVAL, next_change).await {
                changed?;
                // Changes that belong together arrive together.
                sleep(GROUPING_INTERVAL).await;
            }
        }

        let probe = [Range::key(PROBE).keys_only()];
        let newest: Answers = self.client.get(&probe, "its newest revision").await?;
        if Position::at(newest.revision) == before {
            return Ok(Reported::default());
        }
        let changes = since(&self.client, before, newest.revision).await?;
        self.position = Position::at(newest.revision);
        Ok(Reported {
            reached: [(KIND.to_owned(), newest.revision)].into(),
            changes,
        })
    }
}
