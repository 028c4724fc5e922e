//! Runs that a kill or a failure ended while they wrote.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Finds such runs on the cluster with a GUID, by the journals in some folders. A folder that cannot be read has
    /// none: a run that writes fails there by itself.
    pub fn find(folders: &[PathBuf], cluster: &str) -> Option<Self> {
        Self::of_clusters(folders, &BTreeSet::from([cluster])).remove(cluster)
    }

    /// Like [`Self::find`], for several clusters. Returns the runs by GUID.
    pub fn of_clusters(folders: &[PathBuf], clusters: &BTreeSet<&str>) -> BTreeMap<String, Self> {
        let mut of_clusters: BTreeMap<String, Self> = BTreeMap::new();
        for folder in folders {
            for run in unfinished_runs(folder, clusters).unwrap_or_default() {
                let Some(known) = of_clusters.get_mut(&run.header.cluster) else {
                    let cluster = run.header.cluster.clone();
                    let only = Self {
                        newest: run,
                        others: 0,
                    };
                    of_clusters.insert(cluster, only);
                    continue;
                };
                known.others += 1;
                if run.header.started_at >= known.newest.header.started_at {
                    known.newest = run;
                }
            }
        }
        of_clusters
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
