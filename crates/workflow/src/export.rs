//! `export`.

use std::path::Path;

use calipam_datastore::Datastore;

use crate::error::Error;
use crate::look::watched;
use crate::operator::{Activity, Operator};

/// Writes what a check reads into a file, and gives the number of objects.
pub async fn export(datastore: &Datastore, path: &Path, operator: &impl Operator) -> Result<u64, Error> {
    watched(Activity::Exporting, operator, async |progress| datastore.export(path, progress).await).await
}
