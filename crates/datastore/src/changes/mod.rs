//! Every change of what a check reads, as it happens: on etcd every revision, on Kubernetes what the API server reports of each kind.
//! What has changed since a read as a whole is the question of [`follow`](crate::follow).

pub(crate) mod etcd;
pub(crate) mod kubernetes;
mod why_whole;

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_files::recording::{Change, Positions};

use self::etcd::EtcdChanges;
use self::kubernetes::KubeChanges;
pub(crate) use self::kubernetes::positions;
pub use self::why_whole::WhyWhole;
use crate::client::kubernetes::watch;
use crate::error::{Error, Result};
use crate::store::{Datastore, Pending};

/// What comes within this time after a change is reported with it.
const TOGETHER: Duration = Duration::from_secs(1);
/// After this time it is reported that nothing has changed.
const QUIET: Duration = Duration::from_secs(60);

/// What the server has reported since the last time.
#[derive(Debug, Default)]
pub struct Reported {
    /// Up to where the changes of a kind are known, where nothing was changed there.
    pub reached: BTreeMap<String, i64>,
    pub changes: Vec<Change>,
}

/// Why changes cannot be followed any more.
#[derive(Debug)]
pub enum Broken {
    /// What has happened since is not known: everything has to be read.
    Lost(WhyWhole),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The changes of a datastore from some position on.
pub struct Changes(Source);

enum Source {
    Etcd(EtcdChanges),
    Kubernetes(KubeChanges),
}

impl Changes {
    /// Waits for what happens next; after a minute, that nothing has.
    pub fn reported(&mut self) -> Pending<'_, Result<Reported, Broken>> {
        Box::pin(async move {
            match &mut self.0 {
                Source::Etcd(etcd) => etcd.next().await,
                Source::Kubernetes(kubernetes) => kubernetes.next().await,
            }
        })
    }
}

impl Datastore {
    /// Follows all changes after these positions. Of an etcd that is read with its Kubernetes, those of etcd.
    pub fn changes_after(&self, from: Positions) -> Pending<'_, Result<Changes>> {
        Box::pin(async move {
            Ok(Changes(match self {
                Self::Etcd(client, _) => Source::Etcd(EtcdChanges::begin(client, &from).await?),
                Self::Kubernetes(client) => Source::Kubernetes(KubeChanges::begin(client, &from).await?),
                Self::EtcdV2(client, _) => {
                    return Err(Error::NotForCalico2 { location: client.endpoint(), what: "record changes" });
                }
                Self::File(file) => return Err(Error::NoRevisions { location: file.name() }),
            }))
        })
    }

    /// Waits until something of Calico is written after the revision of a snapshot: on etcd anything that it reads there, on the Kubernetes
    /// datastore a block. What is reported of nothing else is waited for forever.
    pub fn next_change<'a>(&'a self, after: i64) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            match self {
                Self::Etcd(client, _) => client.next_change(&etcd::range(), after).await,
                Self::Kubernetes(client) => {
                    let reported = watch::next_change(client, after.cast_unsigned()).await;
                    reported.map_err(|failure| client.error("changes of blocks", failure))
                }
                Self::EtcdV2(..) | Self::File(_) => std::future::pending().await,
            }
        })
    }
}
