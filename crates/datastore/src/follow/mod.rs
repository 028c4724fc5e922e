//! A datastore that is read once and then followed in memory: etcd by changes, Kubernetes by watches, or both together.

mod etcd;
mod kubernetes;
mod objects;

use std::sync::Arc;

use calipam_files::{Extent, ProgressFn};
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;
use tokio::time::Instant;

use self::etcd::{EtcdFollowed, EtcdNews};
use self::kubernetes::{KubeFollowed, KubeNews};
use crate::changes::WhyWhole;
use crate::changes::kubernetes::{positions, require_watch};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::error::{Error, Result};
use crate::read::whole::kubernetes::list::Counter;
use crate::read::whole::kubernetes::order::{Lists, lists, lists_in_order};
use crate::read::whole::kubernetes::{assemble, plan};
use crate::read::with_kubernetes;
use crate::store::{Datastore, Pending};

/// A result, or the reason that everything must be read.
type OrWhole<T> = Result<T, WhyWhole>;

/// The point up to which a datastore was followed.
pub struct Followed {
    etcd: Option<EtcdFollowed>,
    kubernetes: Option<KubeFollowed>,
}

/// Changes after the point up to which a datastore was followed.
pub struct News {
    etcd: Option<EtcdNews>,
    kubernetes: Option<KubeNews>,
}

/// Changed objects, in their old and new state.
#[derive(Debug)]
pub struct Changed {
    pub before: Snapshot,
    pub now: Snapshot,
}

impl Followed {
    /// The revision up to which all changes are known; on the Kubernetes datastore, all changes of blocks.
    pub fn revision(&self) -> i64 {
        let of_etcd = self.etcd.as_ref().map(EtcdFollowed::revision);
        of_etcd.or(self.kubernetes.as_ref().map(|kubernetes| kubernetes.blocks)).unwrap_or_default()
    }

    /// True if changes of some kinds may be known before earlier changes of other kinds.
    pub fn is_apart(&self) -> bool {
        self.kubernetes.is_some()
    }

    /// The current time, by the clock of the snapshot.
    pub fn now(&self) -> Timestamp {
        match (&self.etcd, &self.kubernetes) {
            (None, Some(kubernetes)) => kubernetes.clock.now(),
            _ => crate::clock::now(),
        }
    }

    /// The time up to which all changes are known. On etcd alone, this is `taken_at`, the time of the snapshot; with
    /// Kubernetes, the time of the last [`Datastore::prove`], or of the whole read if there was none.
    pub fn proven(&self, taken_at: Timestamp) -> Timestamp {
        self.kubernetes.as_ref().map_or(taken_at, |kubernetes| kubernetes.proven)
    }
}

impl News {
    /// Number of changed objects.
    pub fn len(&self) -> usize {
        self.etcd.as_ref().map_or(0, |news| news.keys.len())
            + self.kubernetes.as_ref().map_or(0, |news| news.changed.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Updates the followed snapshot to the current data.
    pub fn apply(self, snapshot: &mut Snapshot, followed: &mut Followed) -> Changed {
        let mut changed = Changed { before: Snapshot::default(), now: Snapshot::default() };
        let mut add = |other: Changed| {
            changed.before.absorb(other.before);
            changed.now.absorb(other.now);
        };
        if let (Some(news), Some(followed)) = (self.kubernetes, &mut followed.kubernetes) {
            add(news.apply(snapshot, followed));
            snapshot.revision = followed.blocks.to_string();
        }
        // etcd determines time and revision, if there is an etcd.
        if let (Some(news), Some(followed)) = (self.etcd, &mut followed.etcd) {
            add(news.apply(snapshot, followed));
        }
        changed
    }
}

impl Datastore {
    /// Reads everything and starts to follow it, or returns the reason that this datastore cannot be followed.
    ///
    /// # Errors
    /// The same as for [`Self::observe`].
    pub fn follow<'a>(
        &'a self,
        progress: &'a ProgressFn,
    ) -> Pending<'a, Result<OrWhole<(Snapshot, Followed)>>> {
        Box::pin(async move {
            let (mut snapshot, followed) = match self {
                Self::Etcd(client, None) => {
                    let (snapshot, etcd) = etcd::start(client, progress).await?;
                    (snapshot, Followed { etcd: Some(etcd), kubernetes: None })
                }
                Self::Kubernetes(client) => match follow_kubernetes(client, progress).await? {
                    Ok(read) => read,
                    Err(why) => return Ok(Err(why)),
                },
                Self::Etcd(client, Some(kubernetes)) => {
                    let kinds = with_kubernetes::kinds(kubernetes).await?;
                    if let Some(why) = why_not(kubernetes, &kinds).await? {
                        return Ok(Err(why));
                    }
                    let (mut snapshot, etcd) = etcd::start(client, progress).await?;
                    let kubernetes = add_kubernetes(kubernetes, &mut snapshot, kinds, progress).await?;
                    (snapshot, Followed { etcd: Some(etcd), kubernetes: Some(kubernetes) })
                }
                Self::EtcdV2(..) | Self::File(_) => return Ok(Err(WhyWhole::NotForThisDatastore)),
            };
            self.add_namespaces(&mut snapshot, true).await;
            Ok(Ok((snapshot, followed)))
        })
    }

    /// Returns the changes since the last call, or the reason that everything must be read again: for example, the
    /// server no longer has all the changes, or has been replaced by another server.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn news<'a>(&'a self, followed: &'a mut Followed) -> Pending<'a, Result<OrWhole<News>>> {
        Box::pin(async move {
            let mut news = News { etcd: None, kubernetes: None };
            if let (Some(client), Some(followed)) = (self.etcd(), &followed.etcd) {
                match etcd::news(client, followed).await? {
                    Ok(of_etcd) => news.etcd = Some(of_etcd),
                    Err(why) => return Ok(Err(why)),
                }
            }
            // No `await` from here on, so changes that were taken cannot be lost.
            if let Some(followed) = &mut followed.kubernetes {
                match followed.news()? {
                    Ok(of_kubernetes) => news.kubernetes = Some(of_kubernetes),
                    Err(why) => return Ok(Err(why)),
                }
            }
            Ok(Ok(news))
        })
    }

    /// Waits for a change, or until it is certain that changes can no longer be known.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn await_news<'a>(&'a self, followed: &'a mut Followed) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let of_etcd = async {
                match (self.etcd(), &followed.etcd) {
                    (Some(client), Some(followed)) => etcd::wait(client, followed).await,
                    _ => std::future::pending().await,
                }
            };
            let of_kubernetes = async {
                match &mut followed.kubernetes {
                    Some(followed) => followed.wait().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = of_etcd => changed,
                () = of_kubernetes => Ok(()),
            }
        })
    }

    /// Ensures that the next [`Self::news`] has all changes up to now, or the reason that they are unknown. For etcd,
    /// this is always the case.
    ///
    /// # Errors
    /// If the server does not confirm that these are all changes.
    pub fn prove<'a>(&'a self, followed: &'a mut Followed) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let now = followed.now();
            match (self.kubernetes(), &mut followed.kubernetes) {
                (Some(client), Some(followed)) => followed.prove(client, now).await,
                _ => Ok(()),
            }
        })
    }
}

/// The reason that the kinds cannot be followed; `None` if they can.
async fn why_not(client: &Arc<KubeClient>, kinds: &[Kind]) -> Result<Option<WhyWhole>> {
    if !client.api().whole_lists {
        return Ok(Some(WhyWhole::old_server()));
    }
    match require_watch(client, kinds).await {
        Ok(()) => Ok(None),
        Err(error @ Error::Permission { .. }) => Ok(Some(WhyWhole::CannotWatch(error.to_string()))),
        Err(error) => Err(error),
    }
}

async fn follow_kubernetes(
    client: &Arc<KubeClient>,
    progress: &ProgressFn,
) -> Result<OrWhole<(Snapshot, Followed)>> {
    let plan = plan(client, &Extent::Whole).await?;
    if let Some(why) = why_not(client, &plan.kinds).await? {
        return Ok(Err(why));
    }
    let begin = Instant::now();
    let reader = Lists { client: Arc::clone(client), counter: Counter::new(progress) };
    let lists = lists_in_order::<Snapshot>(&reader, &plan).await?;
    let positions = positions(&plan.kinds, &lists);
    let mut snapshot = assemble(client, plan.coverage, lists);
    let clock = (begin, snapshot.taken_at);
    let kubernetes = KubeFollowed::begin(client, plan.kinds, &positions, clock, &mut snapshot);
    Ok(Ok((snapshot, Followed { etcd: None, kubernetes: Some(kubernetes) })))
}

/// Adds the users of addresses to a snapshot of etcd, and starts to follow them.
async fn add_kubernetes(
    client: &Arc<KubeClient>,
    snapshot: &mut Snapshot,
    kinds: Vec<Kind>,
    progress: &ProgressFn,
) -> Result<KubeFollowed> {
    let begin = (Instant::now(), crate::clock::now());
    let reader = Lists { client: Arc::clone(client), counter: with_kubernetes::counter(snapshot, progress) };
    let lists = lists::<Snapshot>(&reader, &kinds).await?;
    let positions = positions(&kinds, &lists);
    with_kubernetes::add_lists(client, snapshot, lists)?;
    Ok(KubeFollowed::begin(client, kinds, &positions, begin, snapshot))
}
