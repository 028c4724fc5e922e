//! One look at the cluster: a read, its judgement, and a second read of what could be half-done.

use calipam_check::{Finding, Options, Report, check, settle, suspects};
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use jiff::SignedDuration;

use crate::exit::Failure;
use crate::output::Console;
use crate::{connect, progress, render};

/// What was read, and what was found in it.
pub struct Sight {
    /// What was read.
    pub snapshot: Snapshot,
    /// What was found and stands.
    pub report: Report,
    /// What was found but had changed when it was read again.
    pub dropped: Vec<Finding>,
}

/// Reads and judges. What a half-done operation could explain is read again after `pause`, and dropped where it
/// has changed.
///
/// # Errors
/// Where the datastore cannot be read.
pub async fn sight(
    datastore: &Datastore,
    options: &Options,
    pause: SignedDuration,
    console: &Console,
) -> Result<Sight, Failure> {
    let mut snapshot = connect::observe(datastore, console).await?;
    snapshot.settled = false;
    let mut report = check(&snapshot, options);
    let mut dropped = Vec::new();
    if !datastore.is_live() || !pause.is_positive() {
        return Ok(Sight { snapshot, report, dropped });
    }
    let keys = suspects(&report);
    if keys.is_empty() {
        report.settled = true;
        return Ok(Sight { snapshot, report, dropped });
    }
    console
        .verbose(&format!("{} objects are read again after {pause:#}", render::text::thousands(keys.len())));
    progress::wait(console, pause, "waiting to read suspects again").await;
    if let Some(later) = datastore.reread(&keys).await? {
        dropped = settle(&mut report, &snapshot, &later);
    }
    Ok(Sight { snapshot, report, dropped })
}
