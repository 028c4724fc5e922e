//! The clusters of a command that works on many, which are read in parallel.

mod contexts;
mod file;
mod folder;
mod run;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;

pub(crate) use self::folder::place;
pub(crate) use self::run::{ReadOfCluster, documents, each, read};
pub(crate) use self::source::{Named, Source};
use crate::args::{FleetArgs, Global};
use crate::exit::{Failure, Result};
use crate::hints;

/// The clusters that a command works on.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub clusters: Vec<Named>,
    /// Ranges that other networks use, from the fleet's file.
    pub taken: Vec<IpNet>,
    /// Sentences about what is not read as a cluster.
    pub notes: Vec<String>,
}

impl Fleet {
    /// Returns the clusters that the options name; `None` if they name a single cluster.
    ///
    /// # Errors
    /// If the options contradict each other, or the file, folder or kubeconfig cannot be read or names no clusters.
    pub(crate) fn of_call(args: &FleetArgs, global: &Global) -> Result<Option<Self>> {
        let several = global.names_several();
        if args.routed && !several {
            return Err(Failure::usage("--routed needs several contexts")
                .hint("repeat --context, or use wildcards: --context '*'"));
        }
        let fleet = if several {
            contexts::fleet(args, global)?
        } else if let Some(path) = &args.fleet {
            Self::read(path, &base(global))?
        } else {
            return Ok(None);
        };
        // Hints for one of the clusters need its connection options.
        let connections = fleet
            .clusters
            .iter()
            .map(|cluster| (cluster.name.as_str(), &cluster.source.overrides));
        hints::remember_fleet(connections);
        Ok(Some(fleet))
    }

    /// Reads the clusters of a file or folder.
    ///
    /// # Errors
    /// If it cannot be read, names no clusters, or contains a cluster name that is invalid or not unique.
    pub(crate) fn read(path: &Path, base: &Overrides) -> Result<Self> {
        let is_folder = fs::metadata(path).map_err(Failure::io_at("read", path))?.is_dir();
        let fleet = if is_folder {
            folder::fleet(path)?
        } else {
            file::fleet(path, base)?
        };
        if fleet.clusters.is_empty() {
            return Err(Failure::usage(format!("{} names no cluster", path.display())));
        }
        fleet.check_names(path)?;
        Ok(fleet)
    }

    /// Refuses names that cannot appear in `--ignore` lines, metrics and links, and names that two clusters have.
    /// Errors begin with `path`, that of the fleet.
    fn check_names(&self, path: &Path) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        for cluster in &self.clusters {
            let name = cluster.name.as_str();
            if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(Failure::usage(format!(
                    "{}: the name {name:?} contains a space or a control character",
                    path.display()
                )));
            }
            names.push(name);
        }
        names.sort_unstable();
        let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) else {
            return Ok(());
        };
        Err(Failure::usage(format!(
            "{}: two clusters have the name {:?}",
            path.display(),
            pair[0]
        ))
        .hint("each cluster needs a name of its own"))
    }

    /// Reads the clusters as they were at an earlier time, from a file or folder like the one for `--fleet`.
    ///
    /// # Errors
    /// The same as for [`Self::read`] and [`Self::require_distinct_places`].
    pub(crate) fn earlier(path: &Path) -> Result<Earlier> {
        let fleet = Self::read(path, &unattended())?;
        fleet.require_distinct_places()?;
        let mut clusters = BTreeMap::new();
        for cluster in fleet.clusters {
            clusters.insert(place_in_fleet(&cluster), cluster);
        }
        Ok(Earlier(clusters))
    }

    /// Refuses two clusters whose exports or archives would be the same in the folder of a fleet, such as `a/b` and
    /// `a_b`: one of them would be read or written as the other.
    pub(crate) fn require_distinct_places(&self) -> Result<()> {
        let mut names: BTreeMap<PathBuf, &str> = BTreeMap::new();
        for cluster in &self.clusters {
            let place = place_in_fleet(cluster);
            if let Some(other) = names.get(&place) {
                return Err(Failure::usage(format!(
                    "the exports of {other:?} and {:?} would have the same name: {}",
                    cluster.name,
                    place.display()
                ))
                .hint("rename one of the clusters"));
            }
            names.insert(place, &cluster.name);
        }
        Ok(())
    }
}

/// The clusters of a fleet as they were at an earlier time, by the path that each cluster's export has in the folder of
/// a fleet.
pub(crate) struct Earlier(BTreeMap<PathBuf, Named>);

impl Earlier {
    /// Returns the earlier state of a cluster; `None` if there is none.
    pub(crate) fn of(&self, cluster: &Named) -> Option<&Named> {
        self.0.get(&place_in_fleet(cluster))
    }

    /// Returns the names of the earlier clusters that are not in `clusters`.
    pub(crate) fn others(&self, clusters: &[Named]) -> Vec<&str> {
        let places: BTreeSet<PathBuf> = clusters.iter().map(place_in_fleet).collect();
        let mut names = Vec::new();
        for (place, earlier) in &self.0 {
            if !places.contains(place) {
                names.push(earlier.name.as_str());
            }
        }
        names
    }
}

fn place_in_fleet(cluster: &Named) -> PathBuf {
    place(Path::new(""), cluster, "")
}

/// Refuses a call for several clusters with an option that works on one. `options` has the names of such options, and
/// whether each is given.
pub(crate) fn refuse(options: &[(&str, bool)], hint: &'static str) -> Result<()> {
    let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) else {
        return Ok(());
    };
    Err(Failure::usage(format!("{option} works on one cluster, but several are named")).hint(hint))
}

/// Returns settings for connections that cannot ask questions.
pub(crate) fn unattended() -> Overrides {
    Overrides {
        unattended: true,
        ..Overrides::default()
    }
}

/// Returns the settings from the command line that apply to every cluster. With them, credential plugins cannot ask
/// questions.
fn base(global: &Global) -> Overrides {
    Overrides {
        unattended: true,
        context: None,
        ..global.overrides()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_whose_exports_have_one_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.yaml");
        let fleet = |second: &str| {
            let text = format!(
                "clusters: [{{name: a/b, datastore: one.jsonl}}, {{name: {second}, datastore: two.jsonl}}]"
            );
            fs::write(&path, text).unwrap();
            Fleet::earlier(&path)
        };
        assert_eq!(fleet("b").unwrap().0.len(), 2);
        let refusal = fleet("a_b").err().expect("one name");
        assert!(
            refusal.message.contains("\"a/b\" and \"a_b\""),
            "{}",
            refusal.message
        );
    }
}
