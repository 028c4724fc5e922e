//! Every change of what a check reads, as it happens: on etcd every revision, on Kubernetes what the API server reports of each kind.

mod etcd;
mod kubernetes;

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_files::recording::{Change, Positions};

use self::etcd::EtcdFollower;
use self::kubernetes::KubeFollower;
pub(crate) use self::kubernetes::positions;
use crate::cache::WhyWhole;
use crate::error::{Error, Result};
use crate::store::{Datastore, Pending};

/// What comes within this time after a change is told with it.
const TOGETHER: Duration = Duration::from_secs(1);
/// After this time it is told that nothing has changed.
const QUIET: Duration = Duration::from_secs(60);

/// What has happened since the last time.
#[derive(Debug, Default)]
pub struct News {
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

/// Follows the changes of a datastore.
pub struct Follower(Source);

enum Source {
    Etcd(EtcdFollower),
    Kubernetes(KubeFollower),
}

impl Follower {
    /// Waits for what happens next; after a minute, that nothing has.
    pub fn news(&mut self) -> Pending<'_, std::result::Result<News, Broken>> {
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
    pub fn changes_after(&self, from: Positions) -> Pending<'_, Result<Follower>> {
        Box::pin(async move {
            Ok(Follower(match self {
                Self::Etcd(client) | Self::EtcdAndKubernetes(client, _) => {
                    Source::Etcd(EtcdFollower::begin(client, &from).await?)
                }
                Self::Kubernetes(client) => Source::Kubernetes(KubeFollower::begin(client, from).await?),
                Self::EtcdV2(client, _) => {
                    return Err(Error::NotForCalico2 { location: client.endpoint(), what: "record changes" });
                }
                Self::File(file) => return Err(Error::NoRevisions { location: file.name() }),
            }))
        })
    }
}
