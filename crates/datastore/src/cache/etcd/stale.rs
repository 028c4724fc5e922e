//! When the cache of an etcd is stale, and everything is read: before anything is asked for ([`check`]), where etcd does not report
//! all changes ([`require_all`]), and where the last write that the cache knows is another one in etcd
//! ([`require_same_last_write`]).

use tokio::time::error::Elapsed;

use super::{Begun, State};
use crate::cache::WhyWhole;
use crate::cache::newest::Newest;
use crate::client::etcd::EtcdClient;
use crate::error::{Error, Failure, Result};

/// Fails if everything has to be read.
pub(super) async fn check(
    client: &EtcdClient,
    state: &State,
    begun: &Begun,
) -> std::result::Result<(), WhyWhole> {
    require_same_history(state, begun)?;
    require_exact(client).await
}

/// etcd cannot have gone back since the cache was made.
fn require_same_history(state: &State, begun: &Begun) -> std::result::Result<(), WhyWhole> {
    let reason = if begun.revision < state.revision {
        format!("its revision was {}, and is {}", state.revision, begun.revision)
    } else if begun.raft_term < state.raft_term {
        format!("its raft term was {}, and is {}", state.raft_term, begun.raft_term)
    } else {
        return Ok(());
    };
    Err(WhyWhole::AnotherHistory(reason))
}

/// Refuses versions of etcd that may say too early that everything was sent (issue 15220 of etcd).
pub(crate) async fn require_exact(client: &EtcdClient) -> std::result::Result<(), WhyWhole> {
    let version = client.version().await.map_err(|error| WhyWhole::CannotWatch(error.to_string()))?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let [major, minor, patch] = [(); 3].map(|()| numbers.next().unwrap_or_default());
    let is_exact = match (major, minor) {
        (3, 4) => patch >= 25,
        (3, 5) => patch >= 8,
        later => later >= (3, 6),
    };
    if is_exact {
        return Ok(());
    }
    let reason =
        format!("etcd {version} may confirm too early that these are all changes; 3.4.25 and 3.5.8 do not");
    Err(WhyWhole::CannotWatch(reason))
}

/// Fails if etcd did not report all changes within the time it has.
pub(super) fn require_all<T>(
    reported: std::result::Result<Result<T>, Elapsed>,
) -> std::result::Result<T, WhyWhole> {
    match reported {
        Ok(Ok(changes)) => Ok(changes),
        Ok(Err(Error::Request { failure: Failure::Compacted, .. })) => Err(WhyWhole::Compacted),
        Ok(Err(error)) => Err(WhyWhole::CannotWatch(error.to_string())),
        Err(_) => Err(WhyWhole::CannotWatch("etcd does not confirm that these are all changes".to_owned())),
    }
}

/// Fails if what etcd reports again of the revision of the last known write, by sums, is not that write: its data was restored
/// from a backup since.
pub(super) fn require_same_last_write(
    known: &Newest,
    reported_again: &[u32],
) -> std::result::Result<(), WhyWhole> {
    if known.is_among(reported_again) {
        return Ok(());
    }
    Err(WhyWhole::AnotherHistory(format!("at revision {} something else was written", known.last)))
}
