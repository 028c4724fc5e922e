//! Reads two whole states: the floor of a comparison.

use calipam_datastore::settings::Overrides;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::servers::Etcd;

use crate::{Failed, observe};

/// Reads both states. Files are read concurrently. States of etcd are read one after another, so that etcd serves only
/// one read at a time.
pub(super) async fn both(etcd: &Etcd, states: [&str; 2]) -> Result<(Snapshot, Snapshot), Failed> {
    let [old, new] = states.map(|state| read(etcd, state));
    if states.iter().any(|state| state.starts_with("etcd")) {
        return Ok((old.await?, new.await?));
    }
    tokio::try_join!(old, new)
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
    observe::observe(&overrides, revision).await
}
