//! `export`.

use std::path::Path;

use calipam_datastore::Datastore;

use crate::error::Error;
use crate::look::progress;
use crate::operator::{Activity, Operator};

/// Writes what a check reads into a file, and gives the number of objects.
pub async fn export(datastore: &Datastore, path: &Path, operator: &impl Operator) -> Result<u64, Error> {
    let meter = operator.start(Activity::Exporting);
    let result = datastore.export(path, &progress(&meter)).await;
    meter.end();
    Ok(result?)
}
