//! Helpers to open a datastore.

use std::path::Path;

use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::{Datastore, Result};
use calipam_testkit::datastore;

/// Settings from command-line options and environment variables.
pub(crate) fn resolve(overrides: &Overrides, environment: &[(&str, &str)]) -> Settings {
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::resolve(overrides, &environment.collect(), &LocalFiles).unwrap()
}

/// Opens a data file; returns an error for any other file.
pub(crate) async fn open_file(path: &Path) -> Result<Datastore> {
    Datastore::open(&datastore::settings(&datastore::file(path))).await
}
