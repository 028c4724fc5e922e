//! The changes in a datastore after a position, with the proof that none is missing.
//!
//! [`Changes`] reports every change as it happens, for recordings. [`Followed`] keeps a snapshot up to date after it
//! was read once.

mod whole_read_reason;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use calipam_files::recording::Change;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

pub use self::whole_read_reason::WholeReadReason;
use crate::error::{Error, Result};
use crate::etcd::client::EtcdClient;

/// Changes within this time after a change are reported together with it.
pub(crate) const GROUPING_INTERVAL: Duration = Duration::from_secs(1);
/// Time without changes after which an empty report is returned.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// Changes since the last report.
#[derive(Debug, Default)]
pub struct Reported {
    /// By kind, the version up to which all changes are known.
    pub reached: BTreeMap<String, i64>,
    pub changes: Vec<Change>,
}

/// The reason why changes cannot be followed, or no longer.
#[derive(Debug)]
pub enum Broken {
    /// Changes are not reported, or were missed, so everything must be read again.
    Lost(WholeReadReason),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<WholeReadReason> for Broken {
    fn from(reason: WholeReadReason) -> Self {
        Self::Lost(reason)
    }
}

/// A stream of all changes in a datastore after some position.
#[async_trait]
pub trait Changes: Send {
    /// Waits for the next changes. Returns an empty report after a minute without changes.
    async fn reported(&mut self) -> Result<Reported, Broken>;
}

/// Changed objects, in their old and new state.
#[derive(Debug, Default)]
pub struct Changed {
    pub before: Snapshot,
    pub now: Snapshot,
}

/// A server whose data has been read, and whose changes are now followed.
#[async_trait]
pub(crate) trait Feed: Send + Sync {
    /// The revision up to which all changes were applied. On Kubernetes, this covers only changes to blocks.
    fn revision(&self) -> i64;

    /// The current time, by the clock of the snapshot.
    fn now(&self) -> Timestamp;

    /// The time up to which all changes are known. `None` if changes of all kinds arrive in order, so that every change
    /// before the last one is known.
    fn confirmed_until(&self) -> Option<Timestamp>;

    /// Continues over another connection to etcd.
    fn resume(&mut self, _etcd: &Arc<EtcdClient>) {}

    /// Waits for a change, or until changes can no longer be known.
    async fn wait(&mut self) -> Result<()>;

    /// Ensures that the next [`Self::news`] returns all changes up to now, or the reason why they are unknown.
    async fn confirm_current(&mut self, now: Timestamp) -> Result<()>;

    /// Collects the changes that have not been applied, and returns the number of changed objects.
    ///
    /// # Errors
    /// If the server cannot be reached, or everything must be read again.
    async fn news(&mut self) -> Result<usize, Broken>;

    /// Applies the collected changes to the snapshot.
    fn apply(&mut self, snapshot: &mut Snapshot) -> Changed;
}

/// A datastore that was read once, and whose changes are now followed: etcd by its revisions, Kubernetes by watches, or
/// both together.
pub struct Followed {
    /// The feed of the datastore, then that of the API server if it is read in addition to etcd.
    feeds: Vec<Box<dyn Feed>>,
}

impl Followed {
    pub(crate) fn new(feeds: Vec<Box<dyn Feed>>) -> Self {
        Self { feeds }
    }

    /// The revision up to which all changes were applied. On the Kubernetes datastore, this covers only changes to
    /// blocks.
    pub fn revision(&self) -> i64 {
        self.feeds.first().map_or(0, |feed| feed.revision())
    }

    /// True if changes of some kinds may be known before earlier changes of other kinds.
    pub fn kinds_are_independent(&self) -> bool {
        self.feeds.iter().any(|feed| feed.confirmed_until().is_some())
    }

    /// The current time, by the clock of the snapshot.
    pub fn now(&self) -> Timestamp {
        self.feeds
            .first()
            .map_or_else(crate::clock::now, |feed| feed.now())
    }

    /// The time up to which all changes are known. If only etcd is followed, this is `taken_at`, the time of the
    /// snapshot. With Kubernetes, it is the time of the last [`Self::confirm_current`], or of the whole read if that
    /// was not called.
    pub fn confirmed_until(&self, taken_at: Timestamp) -> Timestamp {
        self.feeds
            .iter()
            .find_map(|feed| feed.confirmed_until())
            .unwrap_or(taken_at)
    }

    pub(crate) fn resume(&mut self, etcd: &Arc<EtcdClient>) {
        for feed in &mut self.feeds {
            feed.resume(etcd);
        }
    }

    /// Waits for a change, or until changes can no longer be known.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn wait(&mut self) -> Result<()> {
        let mut waits: Vec<_> = self.feeds.iter_mut().map(|feed| feed.wait()).collect();
        poll_fn(move |context| {
            for wait in &mut waits {
                let polled = wait.as_mut().poll(context);
                if polled.is_ready() {
                    return polled;
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Ensures that the next [`Self::news`] returns all changes up to now, or the reason why they are unknown.
    /// [`Self::news`] always returns all changes in etcd.
    ///
    /// # Errors
    /// If a server does not confirm that it has reported all changes.
    pub async fn confirm_current(&mut self) -> Result<()> {
        let now = self.now();
        for feed in &mut self.feeds {
            feed.confirm_current(now).await?;
        }
        Ok(())
    }

    /// Collects the changes that have not been [applied](Self::apply), and returns the number of changed objects.
    ///
    /// # Errors
    /// If the server cannot be reached, or everything must be read again: for example, a server no longer has all the
    /// changes, or was replaced by another one.
    pub async fn news(&mut self) -> Result<usize, Broken> {
        let mut changed = 0;
        for feed in &mut self.feeds {
            changed += feed.news().await?;
        }
        Ok(changed)
    }

    /// Updates the followed snapshot with the changes that [`Self::news`] has collected.
    pub fn apply(&mut self, snapshot: &mut Snapshot) -> Changed {
        let mut changed = Changed::default();
        // The datastore's own feed is applied last, since it sets the snapshot's time and revision.
        for feed in self.feeds.iter_mut().rev() {
            let Changed { before, now } = feed.apply(snapshot);
            changed.before.absorb(before);
            changed.now.absorb(now);
        }
        changed
    }
}
