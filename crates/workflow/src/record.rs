//! `record`: records every change.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::Path;

use calipam_datastore::clock;
use calipam_datastore::feed::{Broken, Reported, WholeReadReason};
use calipam_files::archive::Archive;
use calipam_files::recording::{Journal, Positions, Recorder};
use calipam_history::keep::Keep;
use calipam_model::time::CLOCK_SKEW;
use calipam_model::words::quoted;
use jiff::{SignedDuration, Timestamp};

use crate::archive::{thin_out, warn_of_unknown};
use crate::failure::{Failure, Result};
use crate::operator::{Access, Activity};
use crate::read::guid;
use crate::read::watched;

/// The age of a journal at which a new journal with a full state begins. This limits the time to read a past state.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);
/// The length of a journal, in bytes, at which a new journal with a full state begins, for the same reason.
const MAX_LENGTH: u64 = 64 << 20;

/// Records every change of a datastore in a folder until an error. A later call continues the recording. `has_begun` is
/// set once it is clear that changes can be recorded. Removes the full states that `keep` does not retain, together
/// with the changes after them.
///
/// # Errors
/// If the datastore cannot be read, or the folder cannot be written, is in use, or has data of another cluster.
pub async fn record(
    access: Access<'_>,
    folder: &Path,
    keep: Option<&Keep>,
    has_begun: &Cell<bool>,
) -> Result<Infallible> {
    if !access.datastore.is_live() {
        return Err(Failure::not_live("a recording"));
    }
    // A datastore that cannot be followed is refused before anything is written.
    access.datastore.changes_after(Positions::new()).await?;
    let recording = Recording {
        access,
        recorder: Recorder::open(folder)?,
        keep,
    };
    let guid = guid(access.datastore).await?;
    let mut journal = match recording.recorder.resume(&guid)? {
        Some(journal) => {
            let path = quoted(&journal.export().path);
            access
                .operator
                .info(format!("recording continues after {}, {path}", journal.last()));
            journal
        }
        None => {
            let lost = None;
            recording.begin(lost).await?
        }
    };

    has_begun.set(true);
    loop {
        let positions = journal.positions().clone();
        let mut changes = access.datastore.changes_after(positions).await?;
        let reason = loop {
            match changes.reported().await {
                Ok(reported) => journal = recording.append(journal, reported)?,
                Err(Broken::Lost(reason)) => break reason,
                Err(Broken::Failed(error)) => return Err(error.into()),
            }
        };
        if reason != WholeReadReason::Interrupted {
            let lost = Some((&reason, journal.last()));
            journal = recording.begin(lost).await?;
        }
    }
}

struct Recording<'a> {
    access: Access<'a>,
    recorder: Recorder,
    keep: Option<&'a Keep>,
}

impl Recording<'_> {
    /// Appends changes to the journal. If the journal is old or long, continues with a new full state.
    fn append(&self, mut journal: Journal, reported: Reported) -> Result<Journal> {
        let Reported { reached, changes } = reported;
        let now = clock::now();
        let last = journal.last();
        if last.duration_since(now) > CLOCK_SKEW {
            self.access.operator.warn(format!(
                "the clock was set back from {last:.0} to {now:.0}: changes are recorded as of {last:.0} until the clock has passed that time"
            ));
        }

        let is_old = now.duration_since(journal.export().taken_at) >= MAX_AGE;
        let is_long = journal.length() >= MAX_LENGTH;
        // Without `block_in_place`, encoding and writing many changes would block other tasks.
        tokio::task::block_in_place(|| journal.append(now, reached, changes))?;
        if is_old || is_long {
            let adding = self.recorder.begin()?;
            journal = tokio::task::block_in_place(|| journal.renew(adding))?;
            let lost_because = None;
            self.report_begin(&journal, lost_because);
            self.thin_out(&journal)?;
        }
        Ok(journal)
    }

    /// Begins with a full state of the datastore. If changes were lost, `lost` contains the reason and the time of the
    /// last recorded change.
    async fn begin(&self, lost: Option<(&WholeReadReason, Timestamp)>) -> Result<Journal> {
        let (reason, last) = lost.unzip();
        let adding = self.recorder.begin()?;
        let (entries, positions) = watched(self.access, Activity::Exporting, async |datastore, progress| {
            datastore.export_with_positions(&adding.path(), progress).await
        })
        .await?;
        let added = adding.finish_last(entries, last)?;
        if added.export.guid.is_empty() {
            warn_of_unknown(self.access.operator);
        }
        let is_restored = matches!(reason, Some(WholeReadReason::AnotherHistory(_)));
        let journal = Journal::create(&added, positions, is_restored)?;
        self.report_begin(&journal, reason);
        self.thin_out(&journal)?;
        Ok(journal)
    }

    /// Reports the full state that a recording begins with. `lost_because` is the reason if changes were lost; `None`
    /// means that there is no full state yet, or that the last one is old.
    fn report_begin(&self, journal: &Journal, lost_because: Option<&WholeReadReason>) {
        let path = quoted(&journal.export().path);
        let message = match lost_because {
            None | Some(WholeReadReason::New) => format!("recording changes after {path}"),
            Some(reason) => format!("a gap: {reason}; recording changes after {path}"),
        };
        self.access.operator.info(message);
    }

    /// Removes the full states that `keep` does not retain.
    fn thin_out(&self, journal: &Journal) -> Result<()> {
        if let Some(keep) = self.keep {
            let (archive, _) = Archive::open_with_damage(self.recorder.folder())?;
            thin_out(&archive, keep, journal.export().taken_at)?;
        }
        Ok(())
    }
}
