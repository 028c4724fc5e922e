//! `export`.

use std::path::Path;

use calipam_datastore::Datastore;

use crate::error::Error;
use crate::operator::{Activity, Operator, Pending};
use crate::read::watched;

/// Writes what a check reads into a file, and gives the number of objects.
pub fn export<'a>(
    datastore: &'a Datastore,
    path: &'a Path,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<u64, Error>> {
    Box::pin(async move {
        watched(Activity::Exporting, operator, async |progress| datastore.export(path, progress).await).await
    })
}
