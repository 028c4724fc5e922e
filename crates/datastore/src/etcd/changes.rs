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
    let mut numbers = version
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or_default());
    let [major, minor, patch] = [(); 3].map(|()| numbers.next().unwrap_or_default());
    let is_exact = match (major, minor) {
        (3, 4) => patch >= 25,
        (3, 5) => patch >= 8,
        later => later >= (3, 6),
    };
    if is_exact {
        return Ok(());
    }
    let reason = format!(
        "etcd {version} can report too early that there are no more changes: update it to 3.4.25, 3.5.8 or later"
    );
    Err(WholeReadReason::CannotWatch(reason))
}

/// The changes after a position up to `newest`. etcd must first report the last known change again, as proof that its
/// history is the same.
pub(crate) async fn since(
    client: &EtcdClient,
    Position {
        revision: reached,
        last,
    }: Position,
    newest: i64,
) -> Result<Vec<Change>, Broken> {
    let is_another = |reason: String| Err(Broken::Lost(WholeReadReason::AnotherHistory(reason)));
    if newest < reached {
        return is_another(format!("its revision was {reached}, but is now {newest}"));
    }
    let known = last.map_or(reached, |(revision, _)| revision);
    let from = known + i64::from(last.is_none());
    if from > newest {
        return Ok(Vec::new());
    }
    let mut changes = match client
        .changes(&[range()], from..=newest, &ExpectedChanges::new(), "the changes")
        .await
    {
        Err(Error::Request {
            failure: Failure::Compacted,
            ..
        }) => {
            return Err(Broken::Lost(WholeReadReason::Compacted));
        }
        changes => changes?,
    };
    if let Some((revision, own)) = last
        && !changes
            .iter()
            .any(|change| change.revision == revision && checksum(change) == own)
    {
        return is_another(format!("revision {revision} has other content than before"));
    }
    changes.retain(|change| change.revision > known && is_read(&change.key));
    Ok(changes)
}

/// The changes in etcd after a position.
struct EtcdChanges {
    client: Arc<EtcdClient>,
    position: Position,
}

/// Follows etcd's changes after a position.
pub(super) async fn begin(client: &Arc<EtcdClient>, from: Positions) -> Result<Box<dyn Changes>> {
    if let Err(why) = require_exact(client).await {
        return Err(client.error("its changes", Failure::Other(why.to_string())));
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
        let from = self.position;
        if from.last.is_none() {
            let watched = range();
            let next = self.client.next_change(&watched, from.revision);
            if let Ok(changed) = timeout(IDLE_INTERVAL, next).await {
                changed?;
                // Changes that belong together arrive together.
                sleep(GROUPING_INTERVAL).await;
            }
        }

        let probe = [Range::key(PROBE).keys_only()];
        let newest: Answers = self.client.get(&probe, "its newest revision").await?;
        if Position::at(newest.revision) == from {
            return Ok(Reported::default());
        }
        let changes = since(&self.client, from, newest.revision).await?;
        self.position = Position::at(newest.revision);
        Ok(Reported {
            reached: [(KIND.to_owned(), newest.revision)].into(),
            changes,
        })
    }
}
