//! Every change of the data that a check reads, as it happens: on etcd every revision, on Kubernetes the changes that
//! the API server reports for each kind. [`follow`](crate::follow) instead finds the differences since a whole read.

pub(crate) mod etcd;
pub(crate) mod kubernetes;
mod why_whole;

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_files::recording::{Change, Positions};

use self::etcd::EtcdChanges;
use self::kubernetes::Watches;
pub(crate) use self::kubernetes::positions;
pub use self::why_whole::WhyWhole;
use crate::client::kubernetes::watch;
use crate::error::{Error, Result};
use crate::store::{Datastore, Pending};

/// Changes within this time after a change are reported together with it.
const TOGETHER: Duration = Duration::from_secs(1);
/// Time without changes after which their absence is reported.
const QUIET: Duration = Duration::from_secs(60);

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
    Lost(WhyWhole),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The changes of a datastore after some position.
pub struct Changes(Source);

enum Source {
    Etcd(EtcdChanges),
    Kubernetes(Watches),
}

impl Changes {
    /// Waits for the next changes; after a minute without any, reports that there were none.
    pub fn reported(&mut self) -> Pending<'_, Result<Reported, Broken>> {
        Box::pin(async move {
            match &mut self.0 {
                Source::Etcd(etcd) => etcd.next().await,
                Source::Kubernetes(kubernetes) => kubernetes.next_group().await,
            }
        })
    }
}

impl Datastore {
    /// Follows all changes after these positions. If the data is in etcd and also read from Kubernetes, follows only
    /// the changes in etcd.
    pub fn changes_after(&self, from: Positions) -> Pending<'_, Result<Changes>> {
        Box::pin(async move {
            Ok(Changes(match self {
                Self::Etcd(client, _) => Source::Etcd(EtcdChanges::begin(client, &from).await?),
                Self::Kubernetes(client) => Source::Kubernetes(Watches::begin_all(client, &from).await?),
                Self::EtcdV2(client, _) => {
                    return Err(Error::NotForCalico2 { location: client.endpoint(), what: "record changes" });
                }
                Self::File(file) => return Err(Error::NoRevisions { location: file.name() }),
            }))
        })
    }

    /// Waits until a Calico object is written after a snapshot's revision. On etcd, this can be any object that a check
    /// reads there. On the Kubernetes datastore, it must be a block. Other changes do not end the wait, and in any
    /// other datastore it never ends. Returns at once if the server no longer has the changes since that revision.
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
