//! Reads a whole datastore.

use std::collections::BTreeMap;

use calipam_datastore::Datastore;
use calipam_datastore::read::quiet;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_model::snapshot::Snapshot;

use crate::Failed;

/// Reads the datastore that the settings name, in its current state or as it was at a revision.
pub(crate) async fn observe(overrides: &Overrides, revision: Option<i64>) -> Result<Snapshot, Failed> {
    let settings = Settings::resolve(overrides, &BTreeMap::new(), &LocalFiles)?;
    let datastore = Datastore::open(&settings).await?;
    Ok(match revision {
        Some(revision) => datastore.observe_at(revision, &quiet()).await?,
        None => datastore.observe(&quiet()).await?,
    })
}
