//! Reads two whole states: the floor of a comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use calipam_datastore::Datastore;
use calipam_datastore::read::ProgressFn;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::servers::Etcd;

use crate::Failed;

/// Reads both states and returns the seconds: files at the same time, and states of etcd one after another, so that it
/// serves only one at a time.
pub(super) async fn seconds(etcd: &Etcd, states: [&str; 2]) -> Result<f64, Failed> {
    let start = Instant::now();
    let [old, new] = states.map(|state| read(etcd, state));
    let read = match states.iter().any(|state| state.starts_with("etcd")) {
        true => (old.await?, new.await?),
        false => tokio::try_join!(old, new)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    drop(read);
    Ok(seconds)
}

/// Reads a file, `etcd`, or `etcd@` and a past revision.
async fn read(etcd: &Etcd, state: &str) -> Result<Snapshot, Failed> {
    let (place, revision) = match state.split_once('@') {
        Some((place, revision)) => (place, Some(revision.parse()?)),
        None => (state, None),
    };
    let overrides = Overrides {
        datastore: Some(place.to_owned()),
        etcd_endpoints: (place == "etcd").then(|| etcd.endpoint()),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&overrides, &BTreeMap::new(), &LocalFiles)?;
    let datastore = Datastore::open(&settings).await?;
    let silent: ProgressFn = Arc::new(|_| ());
    Ok(match revision {
        Some(revision) => datastore.observe_at(revision, &silent).await?,
        None => datastore.observe(&silent).await?,
    })
}
