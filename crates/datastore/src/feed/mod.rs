//! The changes of a datastore after a position, with the proof that these are all.
//!
//! [`Changes`] reports every change as it happens, for recordings. [`Followed`] keeps a snapshot up to date that was
//! read once.

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
/// Time without changes after which their absence is reported.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// Changes since the last report.
#[derive(Debug, Default)]
pub struct Reported {
    /// By kind, the version up to which all changes are known.
    pub reached: BTreeMap<String, i64>,
    pub changes: Vec<Change>,
}

/// The reason that changes can no longer be followed.
#[derive(Debug)]
pub enum Broken {
    /// Changes were missed: everything must be read again.
    Lost(WholeReadReason),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Every change of a datastore after some position.
#[async_trait]
pub trait Changes: Send {
    /// Waits for the next changes; after a minute without any, reports that there were none.
    async fn reported(&mut self) -> Result<Reported, Broken>;
}

/// A result, or the reason that everything must be read.
pub type OrWholeRead<T> = Result<T, WholeReadReason>;

/// Changed objects, in their old and new state.
#[derive(Debug, Default)]
pub struct Changed {
    pub before: Snapshot,
    pub now: Snapshot,
}

/// One server that was read and is followed.
#[async_trait]
pub(crate) trait Feed: Send + Sync {
    /// The revision up to which all changes were applied; on Kubernetes, all changes of blocks.
    fn revision(&self) -> i64;

    /// The current time, by the clock of the snapshot.
    fn now(&self) -> Timestamp;

    /// The time up to which all changes are known, if changes of some kinds may be known before earlier changes of
    /// other kinds. `None` if all changes before the last one are known.
    fn confirmed_until(&self) -> Option<Timestamp>;

    /// Goes on over another connection to etcd.
    fn resume(&mut self, _etcd: &Arc<EtcdClient>) {}

    /// Waits for a change, or until it is certain that changes cannot be known.
    async fn wait(&mut self) -> Result<()>;

    /// Ensures that the next [`Self::news`] has all changes up to now, or the reason that they are unknown.
    async fn confirm_current(&mut self, now: Timestamp) -> Result<()>;

    /// Collects the changes that were not applied, and returns the number of changed objects, or the reason that
    /// everything must be read again.
    async fn news(&mut self) -> Result<OrWholeRead<usize>>;

    /// Applies the collected changes to the snapshot.
    fn apply(&mut self, snapshot: &mut Snapshot) -> Changed;
}

/// A datastore that was read once and is followed: etcd by changes, Kubernetes by watches, or both together.
pub struct Followed {
    /// The datastore, then the API server beside etcd if there is one.
    feeds: Vec<Box<dyn Feed>>,
}

impl Followed {
    pub(crate) fn new(feeds: Vec<Box<dyn Feed>>) -> Self {
        Self { feeds }
    }

    /// The revision up to which all changes were applied; on the Kubernetes datastore, all changes of blocks.
    pub fn revision(&self) -> i64 {
        self.feeds.first().map_or(0, |feed| feed.revision())
    }

    /// True if changes of some kinds may be known before earlier changes of other kinds.
    pub fn kinds_are_independent(&self) -> bool {
        self.feeds.iter().any(|feed| feed.confirmed_until().is_some())
    }

    /// The current time, by the clock of the snapshot.
    pub fn now(&self) -> Timestamp {
        self.feeds.first().map_or_else(crate::clock::now, |feed| feed.now())
    }

    /// The time up to which all changes are known. On etcd alone, this is `taken_at`, the time of the snapshot; with
    /// Kubernetes, the time of the last [`Self::confirm_current`], or of the whole read if there was none.
    pub fn confirmed_until(&self, taken_at: Timestamp) -> Timestamp {
        self.feeds.iter().find_map(|feed| feed.confirmed_until()).unwrap_or(taken_at)
    }

    pub(crate) fn resume(&mut self, etcd: &Arc<EtcdClient>) {
        self.feeds.iter_mut().for_each(|feed| feed.resume(etcd));
    }

    /// Waits for a change, or until it is certain that changes cannot be known.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn wait(&mut self) -> Result<()> {
        let mut waits: Vec<_> = self.feeds.iter_mut().map(|feed| feed.wait()).collect();
        poll_fn(move |context| {
            let mut ended = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
            ended.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Ensures that the next [`Self::news`] has all changes up to now, or the reason that they are unknown. It always
    /// has the changes in etcd.
    ///
    /// # Errors
    /// If the server does not confirm that.
    pub async fn confirm_current(&mut self) -> Result<()> {
        let now = self.now();
        for feed in &mut self.feeds {
            feed.confirm_current(now).await?;
        }
        Ok(())
    }

    /// Collects the changes that were not [applied](Self::apply), and returns the number of changed objects. Returns
    /// the reason that everything must be read again, such as a server that no longer has all the changes, or is
    /// another server.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn news(&mut self) -> Result<OrWholeRead<usize>> {
        let mut changed = 0;
        for feed in &mut self.feeds {
            match feed.news().await? {
                Ok(own) => changed += own,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(changed))
    }

    /// Updates the followed snapshot with the changes that [`Self::news`] has collected.
    pub fn apply(&mut self, snapshot: &mut Snapshot) -> Changed {
        let mut changed = Changed::default();
        // etcd determines time and revision, if there is an etcd.
        for feed in self.feeds.iter_mut().rev() {
            let Changed { before, now } = feed.apply(snapshot);
            changed.before.absorb(before);
            changed.now.absorb(now);
        }
        changed
    }
}
