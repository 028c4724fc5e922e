//! Runs that a kill or a failure ended while they wrote.

use std::fmt;
use std::path::PathBuf;

use calipam_model::hint::{Call, Hint};
use calipam_model::words::{count, quoted};
use calipam_repair::journal::{Listed, unfinished_runs};

/// Runs on a cluster that did not finish and were not undone. What they have left looks like interrupted operations of
/// Calico, so only their journals show where it comes from.
#[derive(Clone, Debug)]
pub struct Unfinished {
    newest: Listed,
    /// The number of older ones.
    others: usize,
}

impl Unfinished {
    /// Finds such runs by the journals in some folders. A folder that cannot be read has none: a run that writes fails
    /// there by itself.
    pub fn find(folders: &[PathBuf], cluster: &str) -> Option<Self> {
        let mut runs = Vec::new();
        for folder in folders {
            runs.extend(unfinished_runs(folder, cluster).unwrap_or_default());
        }
        let others = runs.len().saturating_sub(1);
        let newest = runs.into_iter().max_by_key(|run| run.header.started_at.clone())?;
        Some(Self { newest, others })
    }

    pub fn hint(&self) -> Hint {
        let undo = Call::to(["undo", &self.newest.to_undo().to_string_lossy()]);
        if self.newest.is_undo() {
            Hint::new("{} goes on with it", [undo])
        } else {
            Hint::new("{} restores what was there before that run", [undo])
        }
    }
}

impl fmt::Display for Unfinished {
    /// Names the newest run, and the number of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Listed { header, path, .. } = &self.newest;
        let objects = self.newest.objects_in_words();
        let unit = if objects == "1" { "object" } else { "objects" };
        write!(
            f,
            "the run `{}` of {} did not finish: it wrote {objects} {unit}, and what it had begun may be half-done \
             (journal {}",
            header.command,
            header.started_at,
            quoted(path)
        )?;
        if self.others > 0 {
            write!(
                f,
                "; {} did not finish either",
                count(self.others, "older run", "older runs")
            )?;
        }
        f.write_str(")")
    }
}
